"""What all services and libraries of a process share."""

import random as randomness

import msgspec

from libs.runtime.clock import Clock
from libs.runtime.ids import Ids
from libs.runtime.metrics import Metrics


class Env(msgspec.Struct, frozen=True, kw_only=True):
    """Sources that code is given instead of using the machine's; simulations seed them."""

    clock: Clock
    random: randomness.Random
    ids: Ids
    metrics: Metrics
