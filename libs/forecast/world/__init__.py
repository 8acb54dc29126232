"""Models of how long operations on machines take and how they end.

The simulated machines and the forecast ask a `WorldModel` instead of drawing numbers themselves.
The same question always has the same answer. In a `SteadyWorld` everything works except what a test
overrides; a `SeededWorld` is like a fleet.
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
