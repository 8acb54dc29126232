"""Which labels of operands are paused during an upgrade."""

from functools import cache

from libs.contracts.identities import Writer
from libs.policy.owners import DEPLOY_DRIVER, DEPLOY_OPERANDS
from libs.policy.render.agents import AGENTS, is_deployed
from libs.policy.wanted import Operands


@cache
def never_paused_labels(absent: frozenset[Writer]) -> frozenset[str]:
    """Return the labels that are not paused during an upgrade.

    Pods selected by them stay, and no upgrade waits for them. These are the whole-node switch, the
    driver, and the selectors of Sluice's own agents but the `absent` ones, which are not deployed:
    what selects by the label of such an agent is another's, such as NVIDIA's device plugin.
    """
    own = (agent.selector[0] for agent in AGENTS if agent.component not in absent)
    return frozenset((DEPLOY_OPERANDS, DEPLOY_DRIVER, *own))


def absent_agents(operands: Operands) -> frozenset[Writer]:
    """Return the agents that are not deployed."""
    components = (agent.component for agent in AGENTS)
    return frozenset(each for each in components if not is_deployed(each, operands))
