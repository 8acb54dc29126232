"""How long things take in a fleet, and how they end: the one place that says so.

Whoever simulates a machine asks a `Model` instead of rolling dice himself, and whoever foresees a
rollout asks the same. The same question always has the same answer. Here may live: the questions,
the worlds that answer them (`Steady`, where everything works but what a test makes odd; `Seeded`,
which is like a fleet), and the distributions behind them. Here must not live: who asks, what the
time is, or what an answer sets in motion.
"""

from libs.forecast.world.chances import Lognormal, Observed
from libs.forecast.world.habits import Habits, History
from libs.forecast.world.questions import (
    NEVER,
    RUNS_ON,
    STEPS,
    Ending,
    Model,
    Span,
    Verdict,
)
from libs.forecast.world.seeded import Seeded
from libs.forecast.world.steady import Oddity, Steady

__all__ = [
    "NEVER",
    "RUNS_ON",
    "STEPS",
    "Ending",
    "Habits",
    "History",
    "Lognormal",
    "Model",
    "Observed",
    "Oddity",
    "Seeded",
    "Span",
    "Steady",
    "Verdict",
]
