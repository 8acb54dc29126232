"""The buckets of the histograms in which the lengths of jobs are kept. Pure.

Bucket n begins at 2^(n/8) seconds: each is 9 % longer than the one before.
"""

import math
from typing import Final

_PER_DOUBLING: Final = 8

MOST_BUCKETS: Final = 184
"""Up to three months; the last one holds all that is longer."""


def bucket_of(seconds: float) -> int:
    """Return the bucket of a length; what is shorter than a second is in the first."""
    if seconds <= 1.0:
        return 0
    return min(MOST_BUCKETS - 1, int(_PER_DOUBLING * math.log2(seconds)))


def start_of(bucket: float) -> float:
    """Return the seconds at which a bucket starts; with a fraction, at that share within it."""
    return 2.0 ** (bucket / _PER_DOUBLING)


def position_of(seconds: float) -> float:
    """Return the bucket of a length, with the share of it that the length has passed."""
    return 0.0 if seconds <= 1.0 else _PER_DOUBLING * math.log2(seconds)
