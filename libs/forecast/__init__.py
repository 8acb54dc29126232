"""Forecast a rollout: play the engine forward in a simulated world, several times.

Contains plays and what is concluded from them. Makes no decision about nodes of its own, and uses
no clock and no randomness except the world's.
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
