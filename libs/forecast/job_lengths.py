"""How much longer jobs run, as ended jobs of their kind did; assumed until enough have ended. Pure.

A job that has run for a while is one of those that run longer: what is left follows from the part
of the lengths that is above its age.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import Final

from libs.contracts.lengths import JobLengths, KindLengths
from libs.forecast.seeded_world import FleetProfile, job_left
from libs.rollout.length_buckets import MOST_BUCKETS, position_of, start_of

_LEAST_JOBS: Final = 10
"""Jobs of which a distribution can be known."""
_LEAST_ABOVE: Final = 1.0
"""Jobs that must have run longer than one for which they stand."""


class LearnedJobs:
    """The lengths of a pool's jobs: of each kind of which enough have ended, and of all."""

    def __init__(self, lengths: JobLengths | None) -> None:
        kinds = () if lengths is None else lengths.kinds
        self._all = _Histogram(kinds)
        self._kinds = {
            f"{each.namespace}/{each.owner}": histogram
            for each in kinds
            if (histogram := _Histogram((each,))).jobs >= _LEAST_JOBS
        }

    @property
    def jobs(self) -> int:
        """How many jobs were learned from; 0: too few, so that lengths are assumed."""
        return self._all.jobs if self._all.jobs >= _LEAST_JOBS else 0

    def left(self, kind: str, age: float, share: float) -> float:
        """Return the seconds within which this share of all jobs of this age ends; infinite: none.

        What has run longer than all that ended goes on as is assumed of any job.
        """
        found = self._kinds.get(kind, self._all)
        left = found.left(age, share) if self.jobs else None
        return job_left(FleetProfile().job, age, share) if left is None else left


class _Histogram:
    def __init__(self, kinds: Sequence[KindLengths]) -> None:
        counts = [0.0] * MOST_BUCKETS
        for each in kinds:
            for bucket, count in enumerate(each.counts, each.first):
                counts[min(bucket, MOST_BUCKETS - 1)] += count
        self._counts = counts
        self.jobs = int(sum(counts))

    def left(self, age: float, share: float) -> float | None:
        """Return the seconds within which this share ends; None: too few have run as long."""
        position = min(position_of(age), float(MOST_BUCKETS))
        bucket = int(position)
        above = [0.0] * bucket + self._counts[bucket:]
        if bucket < MOST_BUCKETS:
            above[bucket] *= 1.0 - (position - bucket)
        total = sum(above)
        if total < _LEAST_ABOVE:
            return None
        sought = share * total
        for number, until in enumerate(accumulate(above)):
            if until >= sought and above[number]:
                begin = max(position, float(number))
                within = 1.0 - (until - sought) / above[number]
                return max(0.0, start_of(begin + within * (number + 1 - begin)) - age)
        return inf


NO_JOBS: Final = LearnedJobs(None)
