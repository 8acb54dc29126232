"""A world like a fleet, in which every answer is derived from the seed and the question alone.

Durations are quantiles of the profile's distributions and failures follow its rates; both are drawn
from the hash of seed and question, so neither the order of questions nor other questions change an
answer. Answers are whole milliseconds, so that a seed gives the same results on every machine.
"""

import hashlib
import math
import struct
from collections.abc import Callable
from statistics import NormalDist

import msgspec

from libs.forecast.world import (
    NEVER,
    RUNS_FOREVER,
    VALIDATION_STEPS,
    ProcessEnd,
    TimeSpan,
    ValidationEnd,
)

MINUTE = 60.0
HOUR = 3600.0

_STANDARD = NormalDist()
_P95 = _STANDARD.inv_cdf(0.95)
_STEPS = 1 << 52
_unpack = struct.Struct("<QQ").unpack


def draw(question: str) -> tuple[float, float]:
    """Return two independent numbers strictly between 0 and 1."""
    first, second = _unpack(hashlib.blake2b(question.encode(), digest_size=16).digest())
    return ((first >> 12) + 0.5) / _STEPS, ((second >> 12) + 0.5) / _STEPS


class Lognormal(msgspec.Struct, frozen=True):
    """A lognormal distribution of durations: never negative, with a long tail."""

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
        """Return the seconds within which this share of all cases ends."""
        return self.median * (self.p95 / self.median) ** (_STANDARD.inv_cdf(share) / _P95)

    def milliseconds(self, share: float) -> float:
        """Return the quantile rounded to milliseconds, in seconds."""
        return _to_milliseconds(self.quantile(share))

    def share_below(self, seconds: float) -> float:
        """Return the share of all cases that ends within this time."""
        if seconds <= 0:
            return 0.0
        deviation = math.log(seconds / self.median) / math.log(self.p95 / self.median)
        return _STANDARD.cdf(deviation * _P95)


def job_left(distribution: Lognormal, age: float, share: float) -> float:
    """Return the seconds within which this share of all jobs of this age ends; infinite: none."""
    below = distribution.share_below(age)
    share = below + (1.0 - below) * share
    return math.inf if share >= 1.0 else max(0.0, distribution.quantile(share) - age)


class FleetProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Durations and failure rates of a fleet; failures are independent for each attempt.

    The defaults are typical figures. Loads follow the few published figures for containers that
    compile nothing on the node: about four minutes for an upgrade, three of them for the driver.
    There are no published failure rates; the defaults are high enough that every path occurs in a
    fleet of a thousand nodes. Rates marked as permanent hit the same node, driver or pod at every
    attempt.
    """

    # Durations of operations that succeed.

    pull: Lognormal = Lognormal(20.0, 2 * MINUTE)
    ready: Lognormal = Lognormal(2.0, 15.0)
    job: Lognormal = Lognormal(2 * HOUR, 24 * HOUR)
    """From a job's start to its end."""
    stop: Lognormal = Lognormal(2.0, 20.0)
    unload: Lognormal = Lognormal(4.0, 20.0)
    load: Lognormal = Lognormal(2 * MINUTE, 4 * MINUTE)
    validation: Lognormal = Lognormal(45.0, 2 * MINUTE)
    refusal: Lognormal = Lognormal(3 * MINUTE, 20 * MINUTE)
    """How long a disruption budget refuses, if not forever."""

    # Durations of operations that fail.

    failing: Lognormal = Lognormal(20.0, 2 * MINUTE)
    """A load, unload or validation that fails."""
    crash: Lognormal = Lognormal(2 * HOUR, 48 * HOUR)
    """Until a long-running container crashes."""

    # Kubelets.

    crashes: float = 0.002
    """Starts of long-running containers that crash."""
    job_endless: float = 0.02
    """Jobs that do not end. Permanent, per pod."""
    ignores_stop: float = 0.03
    """Containers and pods that end only with their grace period. Permanent."""
    eviction_stuck: float = 0.0005
    """Evicted pods that never leave the API. Permanent."""

    # Drivers.

    unload_busy: float = 0.005
    unload_hangs: float = 0.0005
    never_loads: float = 0.002
    """Per node and driver: the driver never loads. Permanent."""
    load_fails: float = 0.01
    load_hangs: float = 0.001
    never_validates: float = 0.001
    """Per node and driver: it loads, but no validation passes. Permanent."""
    validation_fails: float = 0.005
    validation_hangs: float = 0.001

    # Disruption budgets.

    eviction_refused: float = 0.05
    """Pods with an eviction that is refused at first. Permanent."""
    eviction_refused_forever: float = 0.05
    """The part of those that is refused forever. Permanent."""


class SeededWorld:
    """The fleet of one seed."""

    def __init__(self, seed: int, *, profile: FleetProfile = FleetProfile()) -> None:  # noqa: B008
        self._seed = seed
        self._profile = profile

    # Questions of kubelets.

    def pull(self, node: str, workload: str, container: str) -> TimeSpan:
        _, quantile = self._draw(f"pull\n{node}\n{workload}\n{container}")
        return TimeSpan(self._profile.pull.milliseconds(quantile))

    def ready(self, node: str, workload: str, container: str, attempt: int) -> TimeSpan:
        _, quantile = self._draw(f"ready\n{node}\n{workload}\n{container}\n{attempt}")
        return TimeSpan(self._profile.ready.milliseconds(quantile))

    def run(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        chance, quantile = self._draw(f"run\n{node}\n{workload}\n{container}\n{attempt}")
        if chance >= self._profile.crashes:
            return RUNS_FOREVER
        return ProcessEnd(self._profile.crash.milliseconds(quantile), 1)

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:
        chance, quantile = self._draw(f"stop\n{node}\n{workload}\n{container}")
        if chance < self._profile.ignores_stop:
            return NEVER
        return TimeSpan(self._profile.stop.milliseconds(quantile))

    # Further questions of upgrades.

    def unload(self, node: str, attempt: int) -> ProcessEnd:
        chance, quantile = self._draw(f"unload\n{node}\n{attempt}")
        profile = self._profile
        if chance < profile.unload_hangs:
            return RUNS_FOREVER
        if chance < profile.unload_hangs + profile.unload_busy:
            return self._failure(quantile)
        return ProcessEnd(profile.unload.milliseconds(quantile))

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        chance, quantile = self._draw(f"load\n{node}\n{driver}\n{attempt}")
        profile = self._profile
        if self._is_permanent(profile.never_loads, f"unfit\n{node}\n{driver}"):
            return self._failure(quantile)
        if chance < profile.load_hangs:
            return RUNS_FOREVER
        if chance < profile.load_hangs + profile.load_fails:
            return self._failure(quantile)
        return ProcessEnd(profile.load.milliseconds(quantile))

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        chance, quantile = self._draw(f"validation\n{node}\n{driver}\n{attempt}")
        profile = self._profile
        if self._is_permanent(profile.never_validates, f"unsound\n{node}\n{driver}"):
            return ValidationEnd(profile.failing.milliseconds(quantile), "cuda")
        if chance < profile.validation_hangs:
            return ValidationEnd(None)
        chance -= profile.validation_hangs
        if chance < profile.validation_fails:
            step = VALIDATION_STEPS[int(chance / profile.validation_fails * len(VALIDATION_STEPS))]
            return ValidationEnd(profile.failing.milliseconds(quantile), step)
        return ValidationEnd(profile.validation.milliseconds(quantile))

    def refusal(self, pod: str) -> TimeSpan:
        chance, quantile = self._draw(f"refusal\n{pod}")
        profile = self._profile
        if chance >= profile.eviction_refused:
            return TimeSpan(0.0)
        if chance < profile.eviction_refused * profile.eviction_refused_forever:
            return NEVER
        return TimeSpan(profile.refusal.milliseconds(quantile))

    def eviction(self, pod: str, grace: float) -> TimeSpan:
        chance, quantile = self._draw(f"eviction\n{pod}")
        profile = self._profile
        if chance < profile.eviction_stuck:
            return NEVER
        if chance < profile.eviction_stuck + profile.ignores_stop:
            return TimeSpan(grace)
        return TimeSpan(min(grace, profile.stop.milliseconds(quantile)))

    def remainder(self, pod: str, age: float, kind: str = "") -> TimeSpan:  # noqa: ARG002
        """Return the rest of a duration that is known to be longer than `age`."""
        return self._job_span(pod, lambda share: job_left(self._profile.job, age, share))

    def _job_span(self, pod: str, left: Callable[[float], float]) -> TimeSpan:
        """Return the rest of a job; `left` returns that of this share of such jobs."""
        chance, quantile = self._draw(f"remainder\n{pod}")
        if chance < self._profile.job_endless or (seconds := left(quantile)) == math.inf:
            return NEVER
        return TimeSpan(_to_milliseconds(seconds))

    def _failure(self, quantile: float) -> ProcessEnd:
        return ProcessEnd(self._profile.failing.milliseconds(quantile), 1)

    def _draw(self, question: str) -> tuple[float, float]:
        return draw(f"{self._seed}\n{question}")

    def _is_permanent(self, rate: float, question: str) -> bool:
        return self._draw(question)[0] < rate


def _to_milliseconds(seconds: float) -> float:
    return int(seconds * 1000.0 + 0.5) / 1000.0
