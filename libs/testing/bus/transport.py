"""One direction of one connection of the in-process bus: first in, first out, until it is cut.

It carries acts, not messages, and does not know what they do.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from libs.bus.port import BusError, BusLink, BusUnavailable
from libs.contracts.identities import Identity
from libs.runtime.clock import Clock
from libs.testing.bus.faults import FaultSampler
from libs.testing.bus.trace import BusTrace

ChannelAction = Callable[[], object]


class Channel:
    """What is put in is done later, on the loop, in order; a cut forgets all that is under way."""

    def __init__(self, chance: FaultSampler) -> None:
        self._chance = chance
        self._under_way: deque[tuple[float, ChannelAction]] = deque()
        self._aside: dict[int, asyncio.TimerHandle] = {}
        self._put_aside = 0
        self._next: asyncio.Handle | None = None

    def put(self, act: ChannelAction) -> None:
        """Do this after everything that was put in before."""
        loop = asyncio.get_running_loop()
        self._under_way.append((loop.time() + self._chance.draw_delay(), act))
        if self._next is None:
            self._await_first(loop)

    def put_delayed(self, act: ChannelAction, *, wait: float) -> None:
        """Do this in `wait` seconds, whatever else is under way."""
        self._put_aside += 1
        self._aside[self._put_aside] = asyncio.get_running_loop().call_later(
            wait, self._do_aside, self._put_aside, act
        )

    def cut(self) -> None:
        """Forget what is under way."""
        self._under_way.clear()
        for handle in self._aside.values():
            handle.cancel()
        self._aside.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _await_first(self, loop: asyncio.AbstractEventLoop) -> None:
        due, _ = self._under_way[0]
        self._next = (
            loop.call_soon(self._do_first)
            if due <= loop.time()
            else loop.call_at(due, self._do_first)
        )

    def _do_first(self) -> None:
        _, act = self._under_way.popleft()
        self._next = None
        if self._under_way:
            self._await_first(asyncio.get_running_loop())
        act()

    def _do_aside(self, number: int, act: ChannelAction) -> None:
        del self._aside[number]
        act()


T = TypeVar("T")

CALL_SECONDS = 5.0
"""For how long a stream's answer is waited for."""


class BusTransport:
    """Carries acts there and back while the link is up."""

    def __init__(
        self, *, identity: Identity, clock: Clock, chance: FaultSampler, tap: BusTrace
    ) -> None:
        self.identity = identity
        self.link = BusLink(clock)
        self._chance = chance
        self._tap = tap
        self._there = Channel(chance)
        self._back = Channel(chance)
        self._awaited: dict[asyncio.Future[Any], str] = {}

    def require_up(self, subject: str) -> None:
        """Raise `Away` at once rather than keep something for later."""
        if not self.link.is_up:
            raise BusUnavailable(f"{subject}: not sent: the bus is away from {self.identity}")

    def cut(self) -> None:
        """Lose what is under way, and let nobody wait for it."""
        self._there.cut()
        self._back.cut()
        for answer, subject in self._awaited.items():
            if not answer.done():
                answer.set_exception(BusUnavailable(f"{subject}: the link broke before the answer"))

    def to_server(self, act: ChannelAction) -> None:
        """Do it at the server, after what was sent before."""
        self._there.put(act)

    def to_client(self, act: ChannelAction) -> None:
        """Do it here, after what the server sent before."""
        self._back.put(act)

    def to_client_after(self, seconds: float, act: ChannelAction) -> None:
        """Do it here in so many seconds, unless the link breaks."""
        self._back.put_delayed(act, wait=seconds)

    def deliver(self, subject: str, data: bytes, act: ChannelAction) -> None:
        """Bring a core message, as far as chance lets it come."""
        faults = self._chance.faults
        if self._chance.occurs(faults.lost):
            self._tap.record("lost", self.identity, subject, data)
            return
        if self._chance.occurs(faults.reordered):
            self._tap.record("reordered", self.identity, subject, data)
            self.to_client_after(self._chance.draw(faults.delay), act)
        else:
            self.to_client(act)
        if self._chance.occurs(faults.repeated):
            self._tap.record("repeated", self.identity, subject, data)
            self.to_client(act)

    async def call(self, subject: str, work: Callable[[], T]) -> T:
        """As `go`, but chance may lose the call or its answer."""
        self.require_up(subject)
        faults = self._chance.faults
        lost = self._chance.occurs(faults.call_lost)
        answer_lost = not lost and self._chance.occurs(faults.answer_lost)
        if lost or answer_lost:
            self._tap.record("call lost" if lost else "answer lost", self.identity, subject)
        return await self.call_with(subject, work, lost=lost, answer_lost=answer_lost)

    async def call_with(
        self, subject: str, work: Callable[[], T], *, lost: bool = False, answer_lost: bool = False
    ) -> T:
        """Do `work` at the server, and return what it returns or raise what it raises."""
        self.require_up(subject)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def work_there() -> None:
            try:
                settled = partial(succeed, answer, work())
            except BusError as error:
                settled = partial(fail, answer, error)
            if not answer_lost:
                self.to_client(settled)

        if not lost:
            self.to_server(work_there)
        return await self.await_answer(answer, subject, timeout=CALL_SECONDS)

    async def await_answer(
        self, answer: asyncio.Future[T], subject: str, *, timeout: float | None
    ) -> T:
        """Wait for it, as long as it can still come."""
        self._awaited[answer] = subject
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise BusUnavailable(f"{subject}: no answer within {timeout:g} s") from None
        finally:
            del self._awaited[answer]
            if answer.done() and not answer.cancelled():
                answer.exception()  # whoever was cancelled while it came does not look at it

    async def flush(self) -> None:
        """Return when everything that the server sent until now has been handled."""
        if not self.link.is_up:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.to_client(partial(succeed, reached, None))
        with suppress(BusUnavailable):
            await self.await_answer(reached, "what is under way", timeout=None)


def succeed(answer: asyncio.Future[T], result: T) -> None:
    """Give the answer, if somebody still waits for it."""
    if not answer.done():
        answer.set_result(result)


def fail(answer: asyncio.Future[Any], error: BusError) -> None:
    """Give the refusal, if somebody still waits for it."""
    if not answer.done():
        answer.set_exception(error)
