"""Run a program in virtual time: hours pass at once, and a seed gives the same run everywhere.

`run` gives the program a `Sim` (clock, random, ids and the loop) and sees that it ends cleanly: a
task that it left behind, or a failure that nobody looked at, fails the run. Must know nothing of
what is simulated.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from libs.runtime.env import Env
from libs.runtime.ids import SeededIds
from libs.runtime.metrics import Metrics
from libs.testing.errors import SimError, TaskLeaked
from libs.testing.task_tracking import describe_waiting
from libs.testing.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from types import CoroutineType

T = TypeVar("T")

START_TIME = 1_800_000_000.0
"""Unix seconds at virtual zero: 2027-01-15 08:00 UTC."""

TIME_LIMIT = 30 * 86_400.0
"""Virtual seconds that a run may take where it names no limit."""


class VirtualClock:
    """The `Clock` of a simulation."""

    def __init__(self, loop: VirtualLoop, *, start: float) -> None:
        self._loop = loop
        self._start = start

    def now(self) -> float:
        """Unix seconds, from the run's start on."""
        return self._start + self._loop.time()

    def monotonic(self) -> float:
        """Virtual seconds, from 0 on."""
        return self._loop.time()

    def sleep(self, seconds: float) -> "CoroutineType[Any, Any, None]":
        """Costs no real time; and no frame, so that a deadlock shows who called it."""
        return asyncio.sleep(seconds)


class Sim:
    """What a simulated program is given, so that it asks nothing of the machine."""

    def __init__(self, *, loop: VirtualLoop, seed: int, start: float) -> None:
        self.seed = seed
        self.loop = loop
        self.clock = VirtualClock(loop, start=start)
        self.random = random.Random(seed)
        self.ids = SeededIds(self.random_for("ids"))

    def random_for(self, name: str) -> random.Random:
        """A source of its own for each name: one who draws more moves nobody else's numbers."""
        return random.Random(f"{self.seed}/{name}")

    def env(self, name: str = "", *, metrics: Metrics | None = None) -> Env:
        """Build an `Env` of this run, whose random is that of `name`, or else the run's own."""
        return Env(
            clock=self.clock,
            random=self.random_for(name) if name else self.random,
            ids=self.ids,
            metrics=metrics or Metrics(version="test"),
        )


def run(
    main: Callable[[Sim], Coroutine[Any, Any, T]],
    *,
    seed: int,
    start: float = START_TIME,
    limit: float = TIME_LIMIT,
) -> T:
    """What `main` returns; its own error, or else what it left behind, as a group."""
    _check_alone()
    loop = VirtualLoop(limit=limit)
    try:
        try:
            sim = Sim(loop=loop, seed=seed, start=start)
            result = loop.run_until_complete(loop.create_task(main(sim), name="main"))
        except BaseException as error:
            for other in (*_stopped(loop), *loop.unhandled_failures()):
                error.add_note(f"besides: {other}")
            raise
        left = [*_leaked(loop), *_stopped(loop), *loop.unhandled_failures()]
        if left:
            raise ExceptionGroup("the program ended, but not cleanly", left)
        return result
    finally:
        loop.close()


def _check_alone() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SimError(
        "a run in virtual time was begun inside a running loop: call it from a plain function, "
        "in a test from one that is not async"
    )


def _leaked(loop: VirtualLoop) -> list[SimError]:
    loop.finish_instant()  # what was cancelled just now may still end
    pending = loop.pending()
    if not pending:
        return []
    return [
        TaskLeaked(
            f"{len(pending)} tasks outlived the program; await or cancel them there:\n"
            f"{describe_waiting(pending)}"
        )
    ]


def _stopped(loop: VirtualLoop) -> list[SimError]:
    """Cancel what is left and let it end; the errors are of tasks that would not."""
    pending = loop.pending()
    for task in pending:
        task.cancel()
    try:
        loop.run_until_done(pending)
        loop.run_until_complete(loop.shutdown_asyncgens())
    except SimError as error:
        return [error]
    return []
