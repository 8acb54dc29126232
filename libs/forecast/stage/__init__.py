"""A small cluster in memory on which decisions are carried out, in virtual time.

The ground of the forecast, of simulations and of exhaustive exploration. Here may live: objects and
machines as they are, what makes them change, faults, what people do, and the views of all that.
Here must not live: any decision about a rollout.
"""

from libs.forecast.stage.effects import EffectFault, EffectFaultSource
from libs.forecast.stage.faults import StageFaults
from libs.forecast.stage.from_specs import StageNodeSpec
from libs.forecast.stage.latencies import Latencies
from libs.forecast.stage.objects import Tenant
from libs.forecast.stage.stage import ChangedNames, Stage, ViewUpdate
from libs.forecast.stage.users import UserActions

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
