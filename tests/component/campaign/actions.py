"""All actions of a campaign, by name."""

from collections.abc import Mapping
from typing import Final

from tests.component.campaign.fault_actions import FAULT_ACTIONS
from tests.component.campaign.gate_actions import GATE_ACTIONS
from tests.component.campaign.mig_actions import MIG_ACTIONS
from tests.component.campaign.user_actions import USER_ACTIONS, ActionKind

COMMON_ACTIONS: Final[Mapping[str, ActionKind]] = {**FAULT_ACTIONS, **USER_ACTIONS, **GATE_ACTIONS}
ALL_ACTIONS: Final[Mapping[str, ActionKind]] = {**COMMON_ACTIONS, **MIG_ACTIONS}
