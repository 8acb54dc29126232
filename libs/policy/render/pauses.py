"""Labels of nodes that an upgrade pauses, so that DaemonSets take their pods off the node."""

from functools import cache

from libs.contracts.identities import Writer
from libs.policy.owners import DEPLOY_DRIVER, DEPLOY_OPERANDS
from libs.policy.render.agents import AGENTS, is_deployed
from libs.policy.wanted import Operands


@cache
def never_paused_labels(absent: frozenset[Writer]) -> frozenset[str]:
    """Return the labels of a node that an upgrade leaves as they are, so that their pods stay.

    The whole-node switch and the driver's label belong to people. The labels that select Sluice's
    agents are in the list because the agents do the upgrade. Those of the `absent` agents are not:
    without the agent, the label selects a DaemonSet of somebody else, such as NVIDIA's device
    plugin, whose pods hold the GPUs and have to end.
    """
    own = (agent.selector[0] for agent in AGENTS if agent.component not in absent)
    return frozenset((DEPLOY_OPERANDS, DEPLOY_DRIVER, *own))


def absent_agents(operands: Operands) -> frozenset[Writer]:
    """Return the agents that are not deployed."""
    components = (agent.component for agent in AGENTS)
    return frozenset(each for each in components if not is_deployed(each, operands))
