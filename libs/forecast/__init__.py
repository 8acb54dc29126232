"""The forecast: what a rollout would do to a pool, before anything starts.

`plan` plays the engine in a world, several times, from the fleet as it is. Here may live: plays,
and what is read from them. Here must not live: a decision of its own about any node, a clock, or
chance that does not come from a world.
"""

from libs.forecast.answering import answer
from libs.forecast.assumptions import Assumptions, Usual
from libs.forecast.foreseen import Needed, NodeForecast, Plan, ProofForecast
from libs.forecast.likely import Likely
from libs.forecast.plan import plan
from libs.forecast.story import Held, Loss
from libs.forecast.wish import Wish

__all__ = [
    "Assumptions",
    "Held",
    "Likely",
    "Loss",
    "Needed",
    "NodeForecast",
    "Plan",
    "ProofForecast",
    "Usual",
    "Wish",
    "answer",
    "plan",
]
