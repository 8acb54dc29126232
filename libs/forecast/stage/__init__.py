"""A small cluster in memory and virtual time, on which decisions are carried out.

Used by the forecast, the simulations and the exhaustive exploration. Makes no decision about a
rollout.
"""

from libs.forecast.stage.effects import EffectFaultSource
from libs.forecast.stage.faults import StageFaults
from libs.forecast.stage.from_specs import StageNodeSpec
from libs.forecast.stage.latencies import Latencies
from libs.forecast.stage.objects import Tenant
from libs.forecast.stage.stage import ChangedNames, Stage, ViewUpdate
from libs.forecast.stage.users import UserActions
from libs.testing.stage.effect_faults import EffectFault

__all__ = [
    "ChangedNames",
    "EffectFault",
    "EffectFaultSource",
    "Latencies",
    "Stage",
    "StageFaults",
    "StageNodeSpec",
    "Tenant",
    "UserActions",
    "ViewUpdate",
]
