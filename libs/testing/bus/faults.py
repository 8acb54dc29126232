"""Random faults of the in-process bus. A fault with probability 0 draws nothing."""

import random as randomness

import msgspec

Seconds = tuple[float, float]
"""A range from which a duration is drawn."""


class BusFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities from 0 to 1, and durations."""

    lost: float = 0.0
    """That a core message does not reach a subscriber."""
    repeated: float = 0.0
    """That a core message reaches a subscriber twice."""
    reordered: float = 0.0
    """That a core message reaches a subscriber after later ones."""
    delayed: float = 0.0
    """That a message to or from the server is late, and all behind it too."""
    delay: Seconds = (0.01, 1.0)
    """Delay of a delayed or reordered message."""
    call_lost: float = 0.0
    """That a call to a stream does not reach the server; it raises `BusUnavailable`."""
    answer_lost: float = 0.0
    """That a call to a stream is executed, but raises `BusUnavailable`."""
    between_drops: Seconds | None = None
    """Time for which an identity's link stays up; None if it does not break."""
    dropped: Seconds = (1.0, 60.0)
    """Time for which a broken link stays down."""


class FaultSampler:
    def __init__(self, faults: BusFaults, random: randomness.Random) -> None:
        self.faults = faults
        self.random = random

    def occurs(self, probability: float) -> bool:
        return probability > 0.0 and self.random.random() < probability

    def draw_delay(self) -> float:
        return self.draw(self.faults.delay) if self.occurs(self.faults.delayed) else 0.0

    def draw(self, seconds: Seconds) -> float:
        return self.random.uniform(*seconds)
