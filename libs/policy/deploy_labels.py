"""The labels that place operands on nodes, and which of them ever stand aside. Data only."""

from typing import Final

from libs.policy.render.agents import AGENTS

DEPLOY_PREFIX: Final = "nvidia.com/gpu.deploy."
"""Before the name of an operand: whether a node is to have it."""

DEPLOY_OPERANDS: Final = f"{DEPLOY_PREFIX}operands"
"""A person's: `false` for a node that is to have none."""
DEPLOY_DRIVER: Final = f"{DEPLOY_PREFIX}driver"

NEVER_PAUSED_LABELS: Final = frozenset(
    (DEPLOY_OPERANDS, DEPLOY_DRIVER, *(agent.selector[0] for agent in AGENTS))
)
"""What a person says of a whole node, the driver, and what our own agents are selected by: whoever
is selected by one of these does not go for an upgrade, and is not waited for."""
