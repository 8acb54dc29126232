"""An `Env` for tests and tools; simulated programs use `Sim.env` instead."""

import random as randomness

from libs.runtime.clock import Clock, SystemClock
from libs.runtime.env import Env, Ids, RandomIds
from libs.runtime.metrics import Metrics


def make_env(
    *,
    clock: Clock | None = None,
    random: randomness.Random | None = None,
    ids: Ids | None = None,
    metrics: Metrics | None = None,
) -> Env:
    """Build an `Env` on the machine's clock, with the given parts in place of the defaults."""
    return Env(
        clock=clock or SystemClock(),
        random=random or randomness.Random(1),
        ids=ids or RandomIds(),
        metrics=metrics or Metrics(version="test"),
    )
