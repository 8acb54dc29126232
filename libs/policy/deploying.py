"""The labels that place operands on nodes, and which of them ever stand aside. Data only."""

from typing import Final

from libs.policy.rendering.agents import AGENTS

DEPLOY: Final = "nvidia.com/gpu.deploy."
"""Before the name of an operand: whether a node is to have it."""

OPERANDS: Final = f"{DEPLOY}operands"
"""A person's: `false` for a node that is to have none."""
DRIVER: Final = f"{DEPLOY}driver"

NEVER_PAUSED: Final = frozenset((OPERANDS, DRIVER, *(agent.selector[0] for agent in AGENTS)))
"""What a person says of a whole node, the driver, and what our own agents are selected by: whoever
is selected by one of these does not go for an upgrade, and is not waited for."""
