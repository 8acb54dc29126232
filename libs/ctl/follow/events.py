"""Follow the stream of events on NATS, which may be away."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from libs.contracts.events import Event
from libs.ctl.cluster import TOKEN_SECONDS
from libs.ctl.failures import ExitCode, Failure, NoWayToNats, bus_failure
from libs.ctl.options import Access
from libs.ctl.text import printable
from libs.fleet.status import Source
from libs.runtime.env import Env

if TYPE_CHECKING:
    from libs.bus.events import RecordedEvent
    from libs.bus.nats.bus import NatsBus
    from libs.ctl.bus import Scheduler

RETRY_SECONDS: Final = 5.0
SESSION_SECONDS: Final = 0.8 * TOKEN_SECONDS
"""A connection is opened anew before its token ends."""
_INSTEAD_SECONDS: Final = 10.0
"""For so long something else is followed before NATS is tried again."""
_LASTING_SECONDS: Final = 300.0
"""The same where somebody has to install Sluice, or to grant a right, before NATS can be there."""
_AT_A_TIME: Final = 200
"""Stored events that are read before others have their turn."""


class EventTaker(Protocol):
    """What events are read for."""

    def event_received(self, event: Event) -> None: ...

    def events_begin(self) -> None:
        """Forget what there was: all is read, perhaps from another source."""
        ...


class EventSource:
    """Events over NATS, for as long as `run` runs; what they said is kept while NATS is away."""

    def __init__(
        self,
        access: Access,
        taker: EventTaker,
        *,
        env: Env,
        ask: Callable[["Scheduler"], Coroutine[Any, Any, None]] | None = None,
        instead: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """Read the last event of each kind of each node, by which one knows how the fleet stands.

        With `ask`, which runs beside each connection, all of the stream is read: what happened.
        `instead` runs while NATS has never been there.
        """
        self._access = access
        self._taker = taker
        self._clock = env.clock
        self._ask = ask
        self._instead = instead
        self._last: tuple[int, float] = (0, 0.0)
        """Sequence and time of the last event that was read."""
        self._problem = ""
        self._bus: NatsBus | None = None
        self._current_at: float | None = None
        self.scheduler: Scheduler | None = None
        """To ask while it is connected."""

    async def run(self) -> None:
        """Follow until cancelled."""
        from libs.bus.port import BusError

        while True:
            pause, instead = 0.0, _INSTEAD_SECONDS
            try:
                await self._session()
            except* (Failure, BusError) as failed:
                self._problem = printable("; ".join(map(_problem_of, failed.exceptions)))
                pause = RETRY_SECONDS
                if any(_lasts(each) for each in failed.exceptions):
                    instead = _LASTING_SECONDS
            except* TimeoutError:
                pass  # the token is renewed
            if pause and self._instead is not None and self._current_at is None:
                async with _beside(self._instead()):
                    await self._clock.sleep(instead)
            else:
                await self._clock.sleep(pause)

    @property
    def problem(self) -> str:
        """Why NATS cannot be read; empty if it can, or was not tried yet."""
        bus = self._bus
        return self._problem or (printable(bus.unready_reason() or "") if bus is not None else "")

    @property
    def age(self) -> float | None:
        """Seconds since it was last connected; None: never."""
        now = self._clock.monotonic()
        if self._bus is not None and not self.problem:
            self._current_at = now
        return None if self._current_at is None else now - self._current_at

    def source(self) -> Source:
        """Return how old events and waits are."""
        name, gives = "the scheduler's events", "waits"
        return Source(name=name, gives=gives, age=self.age, problem=self.problem)

    async def _session(self) -> None:
        """Read for as long as the connection and its token last.

        What was read from elsewhere is forgotten only once NATS is there for the first time: later
        that would lose what is not told again.
        """
        from libs.ctl.bus import Scheduler, open_bus

        async with asyncio.timeout(SESSION_SECONDS), open_bus(self._access) as bus:
            if self._current_at is None:
                self._taker.events_begin()
            self._problem, self._bus, self.scheduler = "", bus, Scheduler(bus)
            self._current_at = self._clock.monotonic()
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._follow(bus))
                    if self._ask is not None:
                        tasks.create_task(self._ask(self.scheduler))
            finally:
                self._bus = self.scheduler = None

    async def _follow(self, bus: "NatsBus") -> None:
        """Give each new event to the taker, in the order of the stream.

        Only events whose subject names their writer count: by that NATS shows that an agent did not
        speak for the scheduler.
        """
        from libs.bus.events import RecordedEvent, read_events
        from libs.bus.port import BusError, FromSequence, LastPerSubject

        count, start = 0, LastPerSubject() if self._ask is None else FromSequence()
        cluster = self._access.cluster
        try:
            async with read_events(bus=bus, cluster=cluster, follow=True, start=start) as events:
                async for stored in events:
                    count += 1
                    if count % _AT_A_TIME == 0:
                        await asyncio.sleep(0)
                    if isinstance(stored, RecordedEvent) and self._is_new(stored):
                        self._taker.event_received(stored.event)
        except BusError as error:
            raise bus_failure(error) from error

    def _is_new(self, stored: "RecordedEvent") -> bool:
        """Whether an event was not read in an earlier session; a new stream counts from 1."""
        sequence, time = self._last
        if stored.sequence <= sequence and stored.time <= time:
            return False
        self._last = (stored.sequence, stored.time)
        return True


def _problem_of(error: BaseException) -> str:
    """Return what is wrong in short: a view has one line for it, which has no room for remedies."""
    return error.problem if isinstance(error, NoWayToNats) else str(error)


def _lasts(error: BaseException) -> bool:
    missing = (ExitCode.NOT_FOUND, ExitCode.NOT_ALLOWED)
    return isinstance(error, Failure) and error.code in missing


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Run work beside the block, until its end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
