"""The transport of an in-process connection, its random faults, and the trace of the bus."""

import asyncio
import random as randomness
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from libs.bus.port import BusError, BusLink, BusUnavailable
from libs.contracts.identities import Identity
from libs.runtime.clock import Clock


class TraceRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    time: float
    action: str
    identity: str
    subject: str
    sequence: int = 0
    data: bytes = b""


class BusTrace:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watchers: list[Callable[[TraceRecord], None]] = []

    def watch(self, watcher: Callable[[TraceRecord], None]) -> None:
        self._watchers.append(watcher)

    def record(
        self, what: str, who: Identity, subject: str, data: bytes = b"", *, sequence: int = 0
    ) -> None:
        if self._watchers:
            record = TraceRecord(self._clock.now(), what, str(who), subject, sequence, data)
            for watcher in self._watchers:
                watcher(record)


Seconds = tuple[float, float]
"""A range from which a duration is drawn."""


class BusFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities from 0 to 1, and durations."""

    lost: float = 0.0
    """Probability that a core message does not reach a subscriber."""
    repeated: float = 0.0
    """Probability that a core message reaches a subscriber twice."""
    reordered: float = 0.0
    """Probability that a core message reaches a subscriber after later messages."""
    delayed: float = 0.0
    """Probability that a message to or from the server is delayed, with all behind it."""
    delay: Seconds = (0.01, 1.0)
    """Delay of a delayed or reordered message."""
    call_lost: float = 0.0
    """Probability that a call to a stream is lost; it raises `BusUnavailable`."""
    answer_lost: float = 0.0
    """Probability that a call to a stream is executed, but raises `BusUnavailable`."""
    between_drops: Seconds | None = None
    """Time for which an identity's link stays up; None if it does not break."""
    dropped: Seconds = (1.0, 60.0)
    """Time for which a broken link stays down."""


class FaultSampler:
    def __init__(self, faults: BusFaults, random: randomness.Random) -> None:
        self.faults = faults
        self.random = random

    def occurs(self, probability: float) -> bool:
        return probability > 0.0 and self.random.random() < probability

    def draw_delay(self) -> float:
        return self.draw(self.faults.delay) if self.occurs(self.faults.delayed) else 0.0

    def draw(self, seconds: Seconds) -> float:
        return self.random.uniform(*seconds)


ChannelAction = Callable[[], object]


class Channel:
    """One direction of a connection: runs actions in order, later on the event loop."""

    def __init__(self, sampler: FaultSampler) -> None:
        self._sampler = sampler
        self._queue: deque[tuple[float, ChannelAction]] = deque()
        self._delayed: dict[int, asyncio.TimerHandle] = {}
        self._delayed_count = 0
        self._next: asyncio.Handle | None = None

    def put(self, action: ChannelAction) -> None:
        """Run an action after all that were put before."""
        loop = asyncio.get_running_loop()
        self._queue.append((loop.time() + self._sampler.draw_delay(), action))
        if self._next is None:
            self._schedule_first(loop)

    def put_delayed(self, action: ChannelAction, *, wait: float) -> None:
        """Run an action in `wait` seconds, regardless of the order."""
        self._delayed_count += 1
        self._delayed[self._delayed_count] = asyncio.get_running_loop().call_later(
            wait, self._run_delayed, self._delayed_count, action
        )

    def cut(self) -> None:
        """Discard all pending actions."""
        self._queue.clear()
        for handle in self._delayed.values():
            handle.cancel()
        self._delayed.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _schedule_first(self, loop: asyncio.AbstractEventLoop) -> None:
        due, _ = self._queue[0]
        self._next = (
            loop.call_soon(self._run_first)
            if due <= loop.time()
            else loop.call_at(due, self._run_first)
        )

    def _run_first(self) -> None:
        _, action = self._queue.popleft()
        self._next = None
        if self._queue:
            self._schedule_first(asyncio.get_running_loop())
        action()

    def _run_delayed(self, number: int, action: ChannelAction) -> None:
        del self._delayed[number]
        action()


T = TypeVar("T")

CALL_SECONDS = 5.0
"""Timeout of a call to a stream."""


class BusTransport:
    """Runs actions at the server and at the client while the link is up."""

    def __init__(
        self, *, identity: Identity, clock: Clock, sampler: FaultSampler, trace: BusTrace
    ) -> None:
        self.identity = identity
        self.link = BusLink(clock)
        self._sampler = sampler
        self._trace = trace
        self._there = Channel(sampler)
        self._back = Channel(sampler)
        self._awaited: dict[asyncio.Future[Any], str] = {}

    def require_up(self, subject: str) -> None:
        """Raise `BusUnavailable` while the link is down."""
        if not self.link.is_up:
            raise BusUnavailable(f"{subject}: not sent: the bus is unreachable for {self.identity}")

    def cut(self) -> None:
        """Discard all pending actions and fail the pending calls."""
        self._there.cut()
        self._back.cut()
        for answer, subject in self._awaited.items():
            if not answer.done():
                answer.set_exception(BusUnavailable(f"{subject}: the link broke before the answer"))

    def to_server(self, action: ChannelAction) -> None:
        self._there.put(action)

    def to_client(self, action: ChannelAction) -> None:
        self._back.put(action)

    def to_client_after(self, seconds: float, action: ChannelAction) -> None:
        self._back.put_delayed(action, wait=seconds)

    def deliver(self, subject: str, data: bytes, action: ChannelAction) -> None:
        """Deliver a core message to the client, subject to faults."""
        faults = self._sampler.faults
        if self._sampler.occurs(faults.lost):
            self._trace.record("lost", self.identity, subject, data)
            return
        if self._sampler.occurs(faults.reordered):
            self._trace.record("reordered", self.identity, subject, data)
            self.to_client_after(self._sampler.draw(faults.delay), action)
        else:
            self.to_client(action)
        if self._sampler.occurs(faults.repeated):
            self._trace.record("repeated", self.identity, subject, data)
            self.to_client(action)

    async def call(self, subject: str, function: Callable[[], T]) -> T:
        """Like `call_with`, but a fault may lose the call or its answer."""
        self.require_up(subject)
        faults = self._sampler.faults
        lost = self._sampler.occurs(faults.call_lost)
        answer_lost = not lost and self._sampler.occurs(faults.answer_lost)
        if lost or answer_lost:
            self._trace.record("call lost" if lost else "answer lost", self.identity, subject)
        return await self.call_with(subject, function, lost=lost, answer_lost=answer_lost)

    async def call_with(
        self,
        subject: str,
        function: Callable[[], T],
        *,
        lost: bool = False,
        answer_lost: bool = False,
    ) -> T:
        """Run `function` at the server; return its result or raise its error."""
        self.require_up(subject)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def run_at_server() -> None:
            try:
                settled = partial(succeed, answer, function())
            except BusError as error:
                settled = partial(fail, answer, error)
            if not answer_lost:
                self.to_client(settled)

        if not lost:
            self.to_server(run_at_server)
        return await self.await_answer(answer, subject, timeout=CALL_SECONDS)

    async def await_answer(
        self, answer: asyncio.Future[T], subject: str, *, timeout: float | None
    ) -> T:
        """Wait for an answer until the timeout, or until the link breaks."""
        self._awaited[answer] = subject
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise BusUnavailable(f"{subject}: no answer within {timeout:g} s") from None
        finally:
            del self._awaited[answer]
            if answer.done() and not answer.cancelled():
                answer.exception()  # mark it as retrieved: the caller may be cancelled

    async def flush(self) -> None:
        """Return when everything that the server has sent until now was handled."""
        if not self.link.is_up:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.to_client(partial(succeed, reached, None))
        with suppress(BusUnavailable):
            await self.await_answer(reached, "what is under way", timeout=None)


def succeed(answer: asyncio.Future[T], result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def fail(answer: asyncio.Future[Any], error: BusError) -> None:
    if not answer.done():
        answer.set_exception(error)
