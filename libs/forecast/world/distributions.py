"""How chance is spread: distributions, by their quantiles, and numbers drawn from a question.

There is no generator that moves on: a number is the hash of what was asked, so that neither the
order of questions nor other questions change an answer. Must not know what is asked.
"""

import hashlib
import math
import struct
from bisect import bisect_right
from collections.abc import Iterable
from statistics import NormalDist
from typing import Protocol

import msgspec

_STANDARD = NormalDist()
_P95 = _STANDARD.inv_cdf(0.95)
_PARTS = 1 << 52
_TWO = struct.Struct("<QQ").unpack


def draw(question: str) -> tuple[float, float]:
    """Two numbers between 0 and 1, never one of the two, that know nothing of each other."""
    one, two = _TWO(hashlib.blake2b(question.encode(), digest_size=16).digest())
    return ((one >> 12) + 0.5) / _PARTS, ((two >> 12) + 0.5) / _PARTS


class Distribution(Protocol):
    """How long something takes, over all cases."""

    def quantile(self, share: float) -> float:
        """The seconds within which this share of the cases is over."""
        ...

    def share_below(self, seconds: float) -> float:
        """The share of the cases that is over within so long."""
        ...


class Lognormal(msgspec.Struct, frozen=True):
    """Seconds whose logarithm is normal: never negative, and with a long tail."""

    median: float
    p95: float
    """Within which 19 of 20 are over; greater than the median."""

    def __post_init__(self) -> None:
        if not 0 < self.median < self.p95:
            raise ValueError(
                f"a median of {self.median} s and a p95 of {self.p95} s are no distribution: "
                "the median has to be above 0, and below the p95"
            )

    def quantile(self, share: float) -> float:
        """By way of the normal quantile."""
        return self.median * (self.p95 / self.median) ** (_STANDARD.inv_cdf(share) / _P95)

    def share_below(self, seconds: float) -> float:
        """The normal distribution of the logarithm."""
        if seconds <= 0:
            return 0.0
        away = math.log(seconds / self.median) / math.log(self.p95 / self.median)
        return _STANDARD.cdf(away * _P95)


class EmpiricalDistribution:
    """What was seen: between two neighbours of the samples every duration is as likely."""

    __slots__ = ("_samples",)

    def __init__(self, samples: Iterable[float]) -> None:
        self._samples = sorted(samples)
        if len(self._samples) < 2 or self._samples[0] < 0:
            raise ValueError(
                f"{len(self._samples)} samples, the least of {min(self._samples, default=0)} s, "
                "are no distribution: it takes two or more, none below 0"
            )

    def quantile(self, share: float) -> float:
        """Never outside what was seen."""
        place = share * (len(self._samples) - 1)
        low = int(place)
        if low + 1 == len(self._samples):
            return self._samples[low]
        below, above = self._samples[low], self._samples[low + 1]
        return below + (place - low) * (above - below)

    def share_below(self, seconds: float) -> float:
        """1 from the longest on: nothing is known of what takes longer."""
        index = bisect_right(self._samples, seconds)
        if index == 0:
            return 0.0
        if index == len(self._samples):
            return 1.0
        below, above = self._samples[index - 1], self._samples[index]
        return (index - 1 + (seconds - below) / (above - below)) / (len(self._samples) - 1)
