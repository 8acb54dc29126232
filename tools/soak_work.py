"""The work of a soak: results as they come, progress, and a tally that outlives a stop.

A soak takes hours. Ctrl-C or SIGTERM ends the work and not the soak, which still says what was
judged so far.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Final, NamedTuple, TypeVar

STOPPED: Final = 130
"""The exit status of a soak that was stopped and found nothing wrong until then."""

_MOST_LINES: Final = 100
"""At most so many lines tell the progress."""

Task = TypeVar("Task")
Result = TypeVar("Result")


class SeedResult(NamedTuple):
    seed: int
    failure: str
    """Empty if there was none; it begins with its kind and a colon."""
    nodes_in_place: int


def stop_on_sigterm() -> None:
    """Let SIGTERM stop the work as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def results(
    play: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    chunksize: int = 1,
    each_alone: bool = False,
) -> Iterator[Result]:
    """Play the tasks on all processors; with `each_alone`, each in a process of its own."""
    with multiprocessing.Pool(
        initializer=_leave_stops_to_the_soak, maxtasksperchild=1 if each_alone else None
    ) as pool:
        yield from pool.imap_unordered(play, tasks, chunksize=chunksize)


def _leave_stops_to_the_soak() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all processes
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class SeedTally:
    """What the seeds showed so far."""

    def __init__(self, seeds: int) -> None:
        self.stopped = False
        self._first: dict[str, int] = {}
        """By kind of failure the lowest seed."""
        self._seeds = seeds
        self._judged = self._nodes = 0
        self._kinds: Counter[str] = Counter()

    def observe_all(self, found: Iterator[SeedResult], tell: Callable[[str], None]) -> None:
        """Count results until they end or somebody stops them; tell failures and progress."""
        every = max(1, self._seeds // _MOST_LINES)
        try:
            for each in found:
                if kind := self._observe(each):
                    tell(f"seed {each.seed} failed ({kind})")
                if self._judged % every == 0:
                    tell(self.summary)
        except KeyboardInterrupt:
            self.stopped = True

    def _observe(self, result: SeedResult) -> str:
        """Count one result; return the kind of its failure, where it is the first of it."""
        self._judged += 1
        self._nodes += result.nodes_in_place
        if not result.failure:
            return ""
        kind = result.failure.partition(":")[0]
        self._kinds[kind] += 1
        self._first[kind] = min(result.seed, self._first.get(kind, result.seed))
        return kind if self._kinds[kind] == 1 else ""

    @property
    def failures(self) -> list[str]:
        """Of each kind, the most frequent first: how often, and the first seed."""
        return [
            f"{number} of {self._judged} seeds failed ({kind}); the first is {self._first[kind]}"
            for kind, number in self._kinds.most_common()
        ]

    @property
    def first_seeds(self) -> list[int]:
        """The lowest seed of each kind, in the same order."""
        return [self._first[kind] for kind, _ in self._kinds.most_common()]

    @property
    def summary(self) -> str:
        return (
            f"{self._judged} of {self._seeds} seeds, {self._nodes} nodes ended in place,"
            f" {self._kinds.total()} failed"
        )

    @property
    def status(self) -> int:
        return exit_status(wrong=bool(self._kinds), stopped=self.stopped)


def exit_status(*, wrong: bool, stopped: bool) -> int:
    return 1 if wrong else STOPPED if stopped else 0


def run_pytest(arguments: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """Run tests; return the exit status. If they are stopped, pytest still sums up."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        env={**os.environ, **(environ or {})},
        start_new_session=True,  # Ctrl-C reaches it once, from here
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        return process.wait()
