"""Run a program in virtual time: hours pass at once, and a seed gives the same run everywhere.

`run` gives the program a `Sim` and checks that it ends cleanly: a leaked task or an error that was
never retrieved fails the run. Tests and tools on a real loop take an `Env` from `make_env`.
"""

import asyncio
import random
import random as randomness
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from libs.runtime.clock import Clock, SystemClock
from libs.runtime.env import Env, Ids, RandomIds, SeededIds
from libs.runtime.metrics import Metrics
from libs.testing.errors import SimError, TaskLeaked
from libs.testing.task_tracking import describe_waiting
from libs.testing.virtual_loop import VirtualLoop


def make_env(
    *,
    clock: Clock | None = None,
    random: randomness.Random | None = None,
    ids: Ids | None = None,
    metrics: Metrics | None = None,
) -> Env:
    """Build an `Env` on the machine's clock, with the given parts in place of the defaults."""
    return Env(
        clock=clock or SystemClock(),
        random=random or randomness.Random(1),
        ids=ids or RandomIds(),
        metrics=metrics or Metrics(version="test"),
    )


if TYPE_CHECKING:
    from types import CoroutineType

T = TypeVar("T")

START_TIME = 1_800_000_000.0
"""Unix seconds at virtual zero: 2027-01-15 08:00 UTC."""

TIME_LIMIT = 30 * 86_400.0
"""Default limit of a run, in virtual seconds."""


class VirtualClock:
    def __init__(self, loop: VirtualLoop, *, start: float) -> None:
        self._loop = loop
        self._start = start

    def now(self) -> float:
        return self._start + self._loop.time()

    def monotonic(self) -> float:
        return self._loop.time()

    def sleep(self, seconds: float) -> "CoroutineType[Any, Any, None]":
        """Sleep without a frame of its own, so that a deadlock report names the caller."""
        return asyncio.sleep(seconds)


class SteppedClock:
    """The clock of one machine, which may be wrong and be set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead = 0.0

    def now(self) -> float:
        return self._clock.now() + self.ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> "CoroutineType[Any, Any, None]":
        return self._clock.sleep(seconds)


class Sim:
    """The clock, random sources and ids of a simulated program."""

    def __init__(self, *, loop: VirtualLoop, seed: int, start: float) -> None:
        self.seed = seed
        self.loop = loop
        self.clock = VirtualClock(loop, start=start)
        self.random = random.Random(seed)
        self.ids = SeededIds(self.random_for("ids"))

    def random_for(self, name: str) -> random.Random:
        """Return a random source for this name, independent of all others."""
        return random.Random(f"{self.seed}/{name}")

    def env(self, name: str = "", *, metrics: Metrics | None = None) -> Env:
        """Build an `Env`; without a name it has the run's own random source."""
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
    """Run `main`; return its result, or raise its error or a group of its leaks."""
    _check_no_running_loop()
    loop = VirtualLoop(limit=limit)
    try:
        try:
            sim = Sim(loop=loop, seed=seed, start=start)
            result = loop.run_until_complete(loop.create_task(main(sim), name="main"))
        except BaseException as error:
            for other in (*_stop_tasks(loop), *loop.unhandled_failures()):
                error.add_note(f"in addition: {other}")
            raise
        leftovers = [*_leaked_tasks(loop), *_stop_tasks(loop), *loop.unhandled_failures()]
        if leftovers:
            raise ExceptionGroup("the program ended, but not cleanly", leftovers)
        return result
    finally:
        loop.close()


def _check_no_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SimError(
        "a run in virtual time cannot start inside a running loop: call it from a plain function, "
        "in a test from one that is not async"
    )


def _leaked_tasks(loop: VirtualLoop) -> list[SimError]:
    loop.finish_instant()  # tasks cancelled just now may still end
    pending = loop.pending()
    if not pending:
        return []
    return [
        TaskLeaked(
            f"{len(pending)} tasks outlived the program; await or cancel them there:\n"
            f"{describe_waiting(pending)}"
        )
    ]


def _stop_tasks(loop: VirtualLoop) -> list[SimError]:
    """Cancel the remaining tasks and let them end; return the error of tasks that do not."""
    pending = loop.pending()
    for task in pending:
        task.cancel()
    try:
        loop.run_until_done(pending)
        loop.run_until_complete(loop.shutdown_asyncgens())
    except SimError as error:
        return [error]
    return []
