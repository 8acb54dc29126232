"""The forecast: what a rollout would do to a pool, before anything starts.

`plan` plays the engine in a world, several times, from the fleet as it is. Here may live: plays,
and what is read from them. Here must not live: a decision of its own about any node, a clock, or
chance that does not come from a world.
"""

from libs.forecast.assumptions import Assumptions, DefaultAssumptions
from libs.forecast.options import PlanOptions
from libs.forecast.percentiles import Percentiles
from libs.forecast.plan import plan
from libs.forecast.play_result import CapacityLoss, ProofDelay
from libs.forecast.response import plan_response
from libs.forecast.rollout_plan import NodeForecast, ProofForecast, RequiredLimits, RolloutPlan

__all__ = [
    "Assumptions",
    "CapacityLoss",
    "DefaultAssumptions",
    "NodeForecast",
    "Percentiles",
    "PlanOptions",
    "ProofDelay",
    "ProofForecast",
    "RequiredLimits",
    "RolloutPlan",
    "plan",
    "plan_response",
]
