"""The node labels that select operands, and which operands are never paused for an upgrade."""

from typing import Final

from libs.policy.render.agents import AGENTS

DEPLOY_PREFIX: Final = "nvidia.com/gpu.deploy."
"""Prefix of the labels that say whether a node gets an operand; the operand's name follows."""

DEPLOY_OPERANDS: Final = f"{DEPLOY_PREFIX}operands"
"""Set to `false` by people on a node that gets no operands at all."""
DEPLOY_DRIVER: Final = f"{DEPLOY_PREFIX}driver"

NEVER_PAUSED_LABELS: Final = frozenset(
    (DEPLOY_OPERANDS, DEPLOY_DRIVER, *(agent.selector[0] for agent in AGENTS))
)
"""Labels that are not paused during an upgrade: pods selected by them stay, and nothing waits for
them to go. The whole-node switch, the driver, and the selectors of Sluice's own agents."""
