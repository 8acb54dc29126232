"""What every service and library of a process shares: time, chance, ids and metrics."""

import random as randomness

import msgspec

from libs.runtime.clock import Clock
from libs.runtime.ids import Ids
from libs.runtime.metrics import Metrics


class Env(msgspec.Struct, frozen=True, kw_only=True):
    """The sources that code is given instead of asking the machine; simulations seed them."""

    clock: Clock
    random: randomness.Random
    ids: Ids
    metrics: Metrics
