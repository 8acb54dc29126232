"""Distributions of durations, and numbers drawn from a question.

A number is the hash of the question, so neither the order of questions nor other questions change
an answer.
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
_STEPS = 1 << 52
_unpack = struct.Struct("<QQ").unpack


def draw(question: str) -> tuple[float, float]:
    """Return two independent numbers strictly between 0 and 1."""
    one, two = _unpack(hashlib.blake2b(question.encode(), digest_size=16).digest())
    return ((one >> 12) + 0.5) / _STEPS, ((two >> 12) + 0.5) / _STEPS


class Distribution(Protocol):
    def quantile(self, share: float) -> float:
        """Return the seconds within which this share of all cases ends."""
        ...

    def share_below(self, seconds: float) -> float:
        """Return the share of all cases that ends within this time."""
        ...


class Lognormal(msgspec.Struct, frozen=True):
    """Durations whose logarithm is normal: never negative, with a long tail."""

    median: float
    p95: float
    """Greater than the median."""

    def __post_init__(self) -> None:
        if not 0 < self.median < self.p95:
            raise ValueError(
                f"a median of {self.median} s and a p95 of {self.p95} s are no distribution: "
                "the median has to be above 0, and below the p95"
            )

    def quantile(self, share: float) -> float:
        return self.median * (self.p95 / self.median) ** (_STANDARD.inv_cdf(share) / _P95)

    def share_below(self, seconds: float) -> float:
        if seconds <= 0:
            return 0.0
        deviation = math.log(seconds / self.median) / math.log(self.p95 / self.median)
        return _STANDARD.cdf(deviation * _P95)


class EmpiricalDistribution:
    """Observed durations, interpolated linearly between neighbouring samples."""

    __slots__ = ("_samples",)

    def __init__(self, samples: Iterable[float]) -> None:
        self._samples = sorted(samples)
        if len(self._samples) < 2 or self._samples[0] < 0:
            raise ValueError(
                f"{len(self._samples)} samples, the least of {min(self._samples, default=0)} s, "
                "are no distribution: it takes two or more, none below 0"
            )

    def quantile(self, share: float) -> float:
        position = share * (len(self._samples) - 1)
        low = int(position)
        if low + 1 == len(self._samples):
            return self._samples[low]
        below, above = self._samples[low], self._samples[low + 1]
        return below + (position - low) * (above - below)

    def share_below(self, seconds: float) -> float:
        index = bisect_right(self._samples, seconds)
        if index == 0:
            return 0.0
        if index == len(self._samples):
            return 1.0
        below, above = self._samples[index - 1], self._samples[index]
        return (index - 1 + (seconds - below) / (above - below)) / (len(self._samples) - 1)
