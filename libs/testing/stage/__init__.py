"""The stage of `libs.forecast` with people, faults, a journal and copies, for tests and benches."""

from libs.forecast.stage.objects import Tenant
from libs.forecast.stage.stage import ViewUpdate
from libs.forecast.stage.state import Latencies
from libs.testing.stage.effect_faults import EffectFault
from libs.testing.stage.faults import StageFaults
from libs.testing.stage.specs import StageNodeSpec
from libs.testing.stage.stage import SimulatedStage
from libs.testing.stage.state import SimulatedState
from libs.testing.stage.users import UserActions

__all__ = [
    "EffectFault",
    "Latencies",
    "SimulatedStage",
    "SimulatedState",
    "StageFaults",
    "StageNodeSpec",
    "Tenant",
    "UserActions",
    "ViewUpdate",
]
