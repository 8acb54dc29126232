"""Names for new things, as they are given to everything: a simulation's are drawn from its seed."""

import random
import secrets
from typing import Protocol


class Ids(Protocol):
    """A source of names that nobody else has."""

    def new(self) -> str:
        """32 hexadecimal digits."""
        ...


class RandomIds:
    """From the operating system."""

    def new(self) -> str:
        """32 hexadecimal digits."""
        return secrets.token_hex(16)


class SeededIds:
    """From a seeded random: the same run gives the same names."""

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def new(self) -> str:
        """32 hexadecimal digits."""
        return f"{self._random.getrandbits(128):032x}"
