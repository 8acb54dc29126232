"""What can go wrong on the in-process bus, how likely, and the chance that decides it.

Every draw comes from the one random that was given; a fault that cannot happen draws nothing.
"""

import random as randomness

import msgspec

Seconds = tuple[float, float]
"""From, to."""


class BusFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities from 0 to 1, and ranges of seconds from which a length is drawn."""

    lost: float = 0.0
    """Of a core message to one listener: it never comes."""
    repeated: float = 0.0
    """Of a core message to one listener: it comes twice."""
    reordered: float = 0.0
    """Of a core message to one listener: what was sent after it may come first."""
    delayed: float = 0.0
    """Of anything on its way to or from the server: it is late, and all behind it too."""
    delay: Seconds = (0.01, 1.0)
    """How late, for what is delayed or reordered."""
    call_lost: float = 0.0
    """Of a call to a stream: it never reaches the server, and the caller sees `Away`."""
    answer_lost: float = 0.0
    """Of a call to a stream: it is done, and the caller sees `Away`."""
    between_drops: Seconds | None = None
    """How long an identity's link stays up, or None: it does not break by itself."""
    dropped: Seconds = (1.0, 60.0)
    """How long it is down then."""


class FaultSampler:
    """Draws what happens to one thing on its way."""

    def __init__(self, faults: BusFaults, random: randomness.Random) -> None:
        self.faults = faults
        self.random = random

    def occurs(self, probability: float) -> bool:
        """Whether something so probable happens now."""
        return probability > 0.0 and self.random.random() < probability

    def draw_delay(self) -> float:
        """How late the next thing on a lane is."""
        return self.draw(self.faults.delay) if self.occurs(self.faults.delayed) else 0.0

    def draw(self, seconds: Seconds) -> float:
        """A length out of this range."""
        return self.random.uniform(*seconds)
