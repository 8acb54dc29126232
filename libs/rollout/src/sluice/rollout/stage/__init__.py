"""A small cluster in memory on which decisions are carried out, in virtual time.

The ground of the forecast, of simulations and of exhaustive exploration. Here may live: objects and
machines as they are, what makes them change, faults, what people do, and the views of all that.
Here must not live: any decision about a rollout.
"""

from sluice.rollout.stage.effects import Fate, Fates
from sluice.rollout.stage.faults import Faults
from sluice.rollout.stage.objects import Tenant
from sluice.rollout.stage.pace import Pace
from sluice.rollout.stage.people import People
from sluice.rollout.stage.plans import NodePlan
from sluice.rollout.stage.stage import Changed, News, Stage

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
