"""What all services and libraries of a process share: clock, random, ids and metrics."""

import random
import random as randomness
import secrets
from typing import Protocol

import msgspec

from libs.runtime.clock import Clock
from libs.runtime.metrics import Metrics


class Ids(Protocol):
    """A source of unique ids."""

    def new(self) -> str:
        """Return 32 hexadecimal digits."""
        ...


class RandomIds:
    """Ids from the operating system's random source."""

    def new(self) -> str:
        return secrets.token_hex(16)


class SeededIds:
    """Ids from a seeded random: the same seed gives the same ids."""

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def new(self) -> str:
        return f"{self._random.getrandbits(128):032x}"


class Env(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of time, chance and ids, which simulations replace and seed."""

    clock: Clock
    random: randomness.Random
    ids: Ids
    metrics: Metrics
