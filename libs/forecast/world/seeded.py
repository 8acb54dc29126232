"""A world like a fleet: every answer drawn from the seed and the question, and from nothing else.

For the forecast, for simulations and for benches. What the answers follow is said in `habits`: how
long something takes is a quantile of the distribution of its name, at a share that is the hash of
seed and question; whether it goes wrong is drawn by the rate of its name, from the same hash. An
answer is in whole milliseconds, so that a seed tells the same story on every machine.
"""

import msgspec

from libs.forecast.world.chances import Spread, drawn
from libs.forecast.world.habits import Habits, History
from libs.forecast.world.questions import NEVER, RUNS_ON, STEPS, Ending, Span, Verdict

_HANGS = Verdict(None)
_ALLOWED = Span(0.0)


class Spreads(msgspec.Struct, frozen=True, kw_only=True):
    """Where a duration of each kind comes from: what was seen of it, or the habits."""

    pull: Spread
    init: Spread
    ready: Spread
    job: Spread
    stop: Spread
    boot: Spread
    unload: Spread
    load: Spread
    validation: Spread
    refusal: Spread

    @classmethod
    def of(cls, habits: Habits, history: History) -> "Spreads":
        """One of each kind."""
        names = cls.__struct_fields__
        return cls(**{name: history.rather(name, getattr(habits, name)) for name in names})


class Seeded:
    """The fleet that this seed names.

    A driver in `bad_drivers` never loads, on no node; one in `unsound_drivers` loads, and never
    passes a validation. They are named as whoever asks names drivers: by label, or by target.
    """

    __slots__ = ("_bad", "_habits", "_seed", "_spreads", "_unsound")

    def __init__(
        self,
        seed: int,
        *,
        habits: Habits | None = None,
        history: History | None = None,
        bad_drivers: frozenset[str] = frozenset(),
        unsound_drivers: frozenset[str] = frozenset(),
    ) -> None:
        self._seed = seed
        self._habits = habits or Habits()
        self._spreads = Spreads.of(self._habits, history or History())
        self._bad = bad_drivers
        self._unsound = unsound_drivers

    # What a kubelet asks.

    def pull(self, node: str, workload: str, container: str) -> Span:
        """It always comes to an end."""
        _, long = self._drawn(f"pull\n{node}\n{workload}\n{container}")
        return Span(_seconds(self._spreads.pull, long))

    def init(self, node: str, workload: str, container: str, attempt: int) -> Ending:
        """It succeeds, or fails after as long."""
        fate, long = self._drawn(f"init\n{node}\n{workload}\n{container}\n{attempt}")
        return Ending(_seconds(self._spreads.init, long), int(fate < self._habits.init_fails))

    def ready(self, node: str, workload: str, container: str, attempt: int) -> Span:
        """It always gets ready."""
        _, long = self._drawn(f"ready\n{node}\n{workload}\n{container}\n{attempt}")
        return Span(_seconds(self._spreads.ready, long))

    def run(self, node: str, workload: str, container: str, attempt: int) -> Ending:
        """It runs on, or crashes some time."""
        fate, long = self._drawn(f"run\n{node}\n{workload}\n{container}\n{attempt}")
        if fate >= self._habits.crashes:
            return RUNS_ON
        return Ending(_seconds(self._habits.crash, long), 1)

    def job(self, node: str, workload: str, container: str, attempt: int) -> Ending:
        """It ends, well or not, or never does."""
        fate, long = self._drawn(f"job\n{node}\n{workload}\n{container}\n{attempt}")
        habits = self._habits
        if fate < habits.job_endless:
            return RUNS_ON
        failed = fate < habits.job_endless + habits.job_fails
        return Ending(_seconds(self._spreads.job, long), int(failed))

    def stop(self, node: str, workload: str, container: str) -> Span:
        """It ends, or does not listen."""
        fate, long = self._drawn(f"stop\n{node}\n{workload}\n{container}")
        return NEVER if fate < self._habits.deaf else Span(_seconds(self._spreads.stop, long))

    def boot(self, node: str, attempt: int) -> Span:
        """It comes back, or is lost."""
        fate, long = self._drawn(f"boot\n{node}\n{attempt}")
        return NEVER if fate < self._habits.boot_lost else Span(_seconds(self._spreads.boot, long))

    # What an upgrade asks besides.

    def unload(self, node: str, attempt: int) -> Ending:
        """The modules are out, or held by somebody, or it hangs."""
        fate, long = self._drawn(f"unload\n{node}\n{attempt}")
        habits = self._habits
        if fate < habits.unload_hangs:
            return RUNS_ON
        if fate < habits.unload_hangs + habits.unload_busy:
            return Ending(_seconds(habits.failing, long), 1)
        return Ending(_seconds(self._spreads.unload, long))

    def load(self, node: str, driver: str, attempt: int) -> Ending:
        """It works, fails, or hangs; a bad driver always fails."""
        fate, long = self._drawn(f"load\n{node}\n{driver}\n{attempt}")
        habits = self._habits
        if driver in self._bad or self._stays(habits.unfit, f"unfit\n{node}\n{driver}"):
            return Ending(_seconds(habits.failing, long), 1)
        if fate < habits.load_hangs:
            return RUNS_ON
        if fate < habits.load_hangs + habits.load_fails:
            return Ending(_seconds(habits.failing, long), 1)
        return Ending(_seconds(self._spreads.load, long))

    def validation(self, node: str, driver: str, attempt: int) -> Verdict:
        """It passes, fails at any step, or hangs; an unsound driver fails where CUDA is tried."""
        fate, long = self._drawn(f"validation\n{node}\n{driver}\n{attempt}")
        habits = self._habits
        if driver in self._unsound or self._stays(habits.unsound, f"unsound\n{node}\n{driver}"):
            return Verdict(_seconds(habits.failing, long), "cuda")
        if fate < habits.validation_hangs:
            return _HANGS
        fate -= habits.validation_hangs
        if fate < habits.validation_fails:
            step = STEPS[int(fate / habits.validation_fails * len(STEPS))]
            return Verdict(_seconds(habits.failing, long), step)
        return Verdict(_seconds(self._spreads.validation, long))

    def refusal(self, pod: str) -> Span:
        """Not at all, for a time, or for ever."""
        fate, long = self._drawn(f"refusal\n{pod}")
        habits = self._habits
        if fate >= habits.guarded:
            return _ALLOWED
        if fate < habits.guarded * habits.unyielding:
            return NEVER
        return Span(_seconds(self._spreads.refusal, long))

    def eviction(self, pod: str, grace: float) -> Span:
        """It stops as containers do, when its grace is over at the latest; or it is stuck."""
        fate, long = self._drawn(f"eviction\n{pod}")
        habits = self._habits
        if fate < habits.stuck:
            return NEVER
        if fate < habits.stuck + habits.deaf:
            return Span(grace)
        return Span(min(grace, _seconds(self._spreads.stop, long)))

    def remainder(self, pod: str, age: float) -> Span:
        """The rest of a duration of which it is known that it is longer than that age.

        NEVER for an endless one, and for one that is older than any that was seen to end.
        """
        fate, long = self._drawn(f"remainder\n{pod}")
        spread = self._spreads.job
        gone = spread.below(age)
        share = gone + (1.0 - gone) * long
        if fate < self._habits.job_endless or share >= 1.0:
            return NEVER
        return Span(max(0.0, _whole(spread.at(share) - age)))

    # How an answer is drawn.

    def _drawn(self, question: str) -> tuple[float, float]:
        return drawn(f"{self._seed}\n{question}")

    def _stays(self, rate: float, question: str) -> bool:
        return drawn(f"{self._seed}\n{question}")[0] < rate


def _seconds(spread: Spread, share: float) -> float:
    return _whole(spread.at(share))


def _whole(seconds: float) -> float:
    return int(seconds * 1000.0 + 0.5) / 1000.0
