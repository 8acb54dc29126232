"""A small cluster in memory on which decisions are carried out, in virtual time.

The ground of the forecast, of simulations and of exhaustive exploration. Here may live: objects and
machines as they are, what makes them change, faults, what people do, and the views of all that.
Here must not live: any decision about a rollout.
"""

from libs.forecast.stage.effects import Fate, Fates
from libs.forecast.stage.faults import Faults
from libs.forecast.stage.objects import Tenant
from libs.forecast.stage.pace import Pace
from libs.forecast.stage.people import People
from libs.forecast.stage.plans import NodePlan
from libs.forecast.stage.stage import Changed, News, Stage

__all__ = [
    "Changed",
    "Fate",
    "Fates",
    "Faults",
    "News",
    "NodePlan",
    "Pace",
    "People",
    "Stage",
    "Tenant",
]
