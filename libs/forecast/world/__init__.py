"""How long things take in a fleet, and how they end: the one place that says so.

Whoever simulates a machine asks a `Model` instead of rolling dice himself, and whoever foresees a
rollout asks the same. The same question always has the same answer. Here may live: the questions,
the worlds that answer them (`Steady`, where everything works but what a test makes odd; `Seeded`,
which is like a fleet), and the distributions behind them. Here must not live: who asks, what the
time is, or what an answer sets in motion.
"""

from libs.forecast.world.distributions import EmpiricalDistribution, Lognormal
from libs.forecast.world.model import (
    NEVER,
    RUNS_FOREVER,
    VALIDATION_STEPS,
    ProcessEnd,
    TimeSpan,
    ValidationEnd,
    WorldModel,
)
from libs.forecast.world.profile import DurationHistory, FleetProfile
from libs.forecast.world.seeded import SeededWorld
from libs.forecast.world.steady import SteadyWorld, WorldOverride

__all__ = [
    "NEVER",
    "RUNS_FOREVER",
    "VALIDATION_STEPS",
    "DurationHistory",
    "EmpiricalDistribution",
    "FleetProfile",
    "Lognormal",
    "ProcessEnd",
    "SeededWorld",
    "SteadyWorld",
    "TimeSpan",
    "ValidationEnd",
    "WorldModel",
    "WorldOverride",
]
