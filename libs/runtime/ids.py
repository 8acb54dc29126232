"""Sources of unique ids; simulations draw them from their seed."""

import random
import secrets
from typing import Protocol


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
