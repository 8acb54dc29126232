"""A world like a fleet, in which every answer is derived from the seed and the question alone.

Durations are quantiles of the profile's distributions and failures follow its rates; both are drawn
from the hash of seed and question. Answers are whole milliseconds, so that a seed gives the same
results on every machine.
"""

import msgspec

from libs.forecast.world.distributions import Distribution, draw
from libs.forecast.world.model import (
    NEVER,
    RUNS_FOREVER,
    VALIDATION_STEPS,
    ProcessEnd,
    TimeSpan,
    ValidationEnd,
)
from libs.forecast.world.profile import DurationHistory, FleetProfile

_HANGS = ValidationEnd(None)
_ALLOWED = TimeSpan(0.0)


class Distributions(msgspec.Struct, frozen=True, kw_only=True):
    """The distribution of each duration: observed, or the profile's."""

    pull: Distribution
    init: Distribution
    ready: Distribution
    job: Distribution
    stop: Distribution
    boot: Distribution
    unload: Distribution
    load: Distribution
    validation: Distribution
    refusal: Distribution

    @classmethod
    def of(cls, profile: FleetProfile, history: DurationHistory) -> "Distributions":
        names = cls.__struct_fields__
        return cls(**{name: history.distribution(name, getattr(profile, name)) for name in names})


class SeededWorld:
    """The fleet of one seed.

    A driver in `bad_drivers` never loads on any node; one in `unsound_drivers` loads but never
    passes a validation. Name drivers as in the questions: by label or by target.
    """

    __slots__ = ("_bad_drivers", "_distributions", "_profile", "_seed", "_unsound_drivers")

    def __init__(
        self,
        seed: int,
        *,
        profile: FleetProfile | None = None,
        history: DurationHistory | None = None,
        bad_drivers: frozenset[str] = frozenset(),
        unsound_drivers: frozenset[str] = frozenset(),
    ) -> None:
        self._seed = seed
        self._profile = profile or FleetProfile()
        self._distributions = Distributions.of(self._profile, history or DurationHistory())
        self._bad_drivers = bad_drivers
        self._unsound_drivers = unsound_drivers

    # What a kubelet asks.

    def pull(self, node: str, workload: str, container: str) -> TimeSpan:
        _, quantile = self._draw(f"pull\n{node}\n{workload}\n{container}")
        return TimeSpan(_seconds(self._distributions.pull, quantile))

    def init(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        chance, quantile = self._draw(f"init\n{node}\n{workload}\n{container}\n{attempt}")
        return ProcessEnd(
            _seconds(self._distributions.init, quantile), int(chance < self._profile.init_fails)
        )

    def ready(self, node: str, workload: str, container: str, attempt: int) -> TimeSpan:
        _, quantile = self._draw(f"ready\n{node}\n{workload}\n{container}\n{attempt}")
        return TimeSpan(_seconds(self._distributions.ready, quantile))

    def run(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        chance, quantile = self._draw(f"run\n{node}\n{workload}\n{container}\n{attempt}")
        if chance >= self._profile.crashes:
            return RUNS_FOREVER
        return ProcessEnd(_seconds(self._profile.crash, quantile), 1)

    def job(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        chance, quantile = self._draw(f"job\n{node}\n{workload}\n{container}\n{attempt}")
        profile = self._profile
        if chance < profile.job_endless:
            return RUNS_FOREVER
        failed = chance < profile.job_endless + profile.job_fails
        return ProcessEnd(_seconds(self._distributions.job, quantile), int(failed))

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:
        chance, quantile = self._draw(f"stop\n{node}\n{workload}\n{container}")
        return (
            NEVER
            if chance < self._profile.ignores_stop
            else TimeSpan(_seconds(self._distributions.stop, quantile))
        )

    def boot(self, node: str, attempt: int) -> TimeSpan:
        chance, quantile = self._draw(f"boot\n{node}\n{attempt}")
        return (
            NEVER
            if chance < self._profile.never_boots
            else TimeSpan(_seconds(self._distributions.boot, quantile))
        )

    # What an upgrade asks besides.

    def unload(self, node: str, attempt: int) -> ProcessEnd:
        chance, quantile = self._draw(f"unload\n{node}\n{attempt}")
        profile = self._profile
        if chance < profile.unload_hangs:
            return RUNS_FOREVER
        if chance < profile.unload_hangs + profile.unload_busy:
            return ProcessEnd(_seconds(profile.failing, quantile), 1)
        return ProcessEnd(_seconds(self._distributions.unload, quantile))

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        chance, quantile = self._draw(f"load\n{node}\n{driver}\n{attempt}")
        profile = self._profile
        if driver in self._bad_drivers or self._is_permanent(
            profile.never_loads, f"unfit\n{node}\n{driver}"
        ):
            return ProcessEnd(_seconds(profile.failing, quantile), 1)
        if chance < profile.load_hangs:
            return RUNS_FOREVER
        if chance < profile.load_hangs + profile.load_fails:
            return ProcessEnd(_seconds(profile.failing, quantile), 1)
        return ProcessEnd(_seconds(self._distributions.load, quantile))

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        chance, quantile = self._draw(f"validation\n{node}\n{driver}\n{attempt}")
        profile = self._profile
        if driver in self._unsound_drivers or self._is_permanent(
            profile.never_validates, f"unsound\n{node}\n{driver}"
        ):
            return ValidationEnd(_seconds(profile.failing, quantile), "cuda")
        if chance < profile.validation_hangs:
            return _HANGS
        chance -= profile.validation_hangs
        if chance < profile.validation_fails:
            step = VALIDATION_STEPS[int(chance / profile.validation_fails * len(VALIDATION_STEPS))]
            return ValidationEnd(_seconds(profile.failing, quantile), step)
        return ValidationEnd(_seconds(self._distributions.validation, quantile))

    def refusal(self, pod: str) -> TimeSpan:
        chance, quantile = self._draw(f"refusal\n{pod}")
        profile = self._profile
        if chance >= profile.eviction_refused:
            return _ALLOWED
        if chance < profile.eviction_refused * profile.eviction_refused_forever:
            return NEVER
        return TimeSpan(_seconds(self._distributions.refusal, quantile))

    def eviction(self, pod: str, grace: float) -> TimeSpan:
        chance, quantile = self._draw(f"eviction\n{pod}")
        profile = self._profile
        if chance < profile.eviction_stuck:
            return NEVER
        if chance < profile.eviction_stuck + profile.ignores_stop:
            return TimeSpan(grace)
        return TimeSpan(min(grace, _seconds(self._distributions.stop, quantile)))

    def remainder(self, pod: str, age: float) -> TimeSpan:
        """Return the rest of a duration that is known to be longer than `age`.

        NEVER for an endless job, and for one that is older than any that was seen to end.
        """
        chance, quantile = self._draw(f"remainder\n{pod}")
        distribution = self._distributions.job
        below = distribution.share_below(age)
        share = below + (1.0 - below) * quantile
        if chance < self._profile.job_endless or share >= 1.0:
            return NEVER
        return TimeSpan(max(0.0, _to_milliseconds(distribution.quantile(share) - age)))

    # How an answer is drawn.

    def _draw(self, question: str) -> tuple[float, float]:
        return draw(f"{self._seed}\n{question}")

    def _is_permanent(self, rate: float, question: str) -> bool:
        return draw(f"{self._seed}\n{question}")[0] < rate


def _seconds(distribution: Distribution, share: float) -> float:
    return _to_milliseconds(distribution.quantile(share))


def _to_milliseconds(seconds: float) -> float:
    return int(seconds * 1000.0 + 0.5) / 1000.0
