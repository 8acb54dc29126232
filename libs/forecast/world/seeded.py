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

    __slots__ = ("_bad", "_habits", "_seed", "_spreads", "_unsound")

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
        self._habits = profile or FleetProfile()
        self._spreads = Distributions.of(self._habits, history or DurationHistory())
        self._bad = bad_drivers
        self._unsound = unsound_drivers

    # What a kubelet asks.

    def pull(self, node: str, workload: str, container: str) -> TimeSpan:
        _, long = self._drawn(f"pull\n{node}\n{workload}\n{container}")
        return TimeSpan(_seconds(self._spreads.pull, long))

    def init(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        fate, long = self._drawn(f"init\n{node}\n{workload}\n{container}\n{attempt}")
        return ProcessEnd(_seconds(self._spreads.init, long), int(fate < self._habits.init_fails))

    def ready(self, node: str, workload: str, container: str, attempt: int) -> TimeSpan:
        _, long = self._drawn(f"ready\n{node}\n{workload}\n{container}\n{attempt}")
        return TimeSpan(_seconds(self._spreads.ready, long))

    def run(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        fate, long = self._drawn(f"run\n{node}\n{workload}\n{container}\n{attempt}")
        if fate >= self._habits.crashes:
            return RUNS_FOREVER
        return ProcessEnd(_seconds(self._habits.crash, long), 1)

    def job(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        fate, long = self._drawn(f"job\n{node}\n{workload}\n{container}\n{attempt}")
        habits = self._habits
        if fate < habits.job_endless:
            return RUNS_FOREVER
        failed = fate < habits.job_endless + habits.job_fails
        return ProcessEnd(_seconds(self._spreads.job, long), int(failed))

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:
        fate, long = self._drawn(f"stop\n{node}\n{workload}\n{container}")
        return (
            NEVER
            if fate < self._habits.ignores_stop
            else TimeSpan(_seconds(self._spreads.stop, long))
        )

    def boot(self, node: str, attempt: int) -> TimeSpan:
        fate, long = self._drawn(f"boot\n{node}\n{attempt}")
        return (
            NEVER
            if fate < self._habits.never_boots
            else TimeSpan(_seconds(self._spreads.boot, long))
        )

    # What an upgrade asks besides.

    def unload(self, node: str, attempt: int) -> ProcessEnd:
        fate, long = self._drawn(f"unload\n{node}\n{attempt}")
        habits = self._habits
        if fate < habits.unload_hangs:
            return RUNS_FOREVER
        if fate < habits.unload_hangs + habits.unload_busy:
            return ProcessEnd(_seconds(habits.failing, long), 1)
        return ProcessEnd(_seconds(self._spreads.unload, long))

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        fate, long = self._drawn(f"load\n{node}\n{driver}\n{attempt}")
        habits = self._habits
        if driver in self._bad or self._stays(habits.never_loads, f"unfit\n{node}\n{driver}"):
            return ProcessEnd(_seconds(habits.failing, long), 1)
        if fate < habits.load_hangs:
            return RUNS_FOREVER
        if fate < habits.load_hangs + habits.load_fails:
            return ProcessEnd(_seconds(habits.failing, long), 1)
        return ProcessEnd(_seconds(self._spreads.load, long))

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        fate, long = self._drawn(f"validation\n{node}\n{driver}\n{attempt}")
        habits = self._habits
        if driver in self._unsound or self._stays(
            habits.never_validates, f"unsound\n{node}\n{driver}"
        ):
            return ValidationEnd(_seconds(habits.failing, long), "cuda")
        if fate < habits.validation_hangs:
            return _HANGS
        fate -= habits.validation_hangs
        if fate < habits.validation_fails:
            step = VALIDATION_STEPS[int(fate / habits.validation_fails * len(VALIDATION_STEPS))]
            return ValidationEnd(_seconds(habits.failing, long), step)
        return ValidationEnd(_seconds(self._spreads.validation, long))

    def refusal(self, pod: str) -> TimeSpan:
        fate, long = self._drawn(f"refusal\n{pod}")
        habits = self._habits
        if fate >= habits.eviction_refused:
            return _ALLOWED
        if fate < habits.eviction_refused * habits.eviction_refused_forever:
            return NEVER
        return TimeSpan(_seconds(self._spreads.refusal, long))

    def eviction(self, pod: str, grace: float) -> TimeSpan:
        fate, long = self._drawn(f"eviction\n{pod}")
        habits = self._habits
        if fate < habits.eviction_stuck:
            return NEVER
        if fate < habits.eviction_stuck + habits.ignores_stop:
            return TimeSpan(grace)
        return TimeSpan(min(grace, _seconds(self._spreads.stop, long)))

    def remainder(self, pod: str, age: float) -> TimeSpan:
        """Return the rest of a duration that is known to be longer than `age`.

        NEVER for an endless job, and for one that is older than any that was seen to end.
        """
        fate, long = self._drawn(f"remainder\n{pod}")
        spread = self._spreads.job
        gone = spread.share_below(age)
        share = gone + (1.0 - gone) * long
        if fate < self._habits.job_endless or share >= 1.0:
            return NEVER
        return TimeSpan(max(0.0, _whole(spread.quantile(share) - age)))

    # How an answer is drawn.

    def _drawn(self, question: str) -> tuple[float, float]:
        return draw(f"{self._seed}\n{question}")

    def _stays(self, rate: float, question: str) -> bool:
        return draw(f"{self._seed}\n{question}")[0] < rate


def _seconds(spread: Distribution, share: float) -> float:
    return _whole(spread.quantile(share))


def _whole(seconds: float) -> float:
    return int(seconds * 1000.0 + 0.5) / 1000.0
