"""The way between one connection and the in-process server: both directions, and who waits.

What goes wrong goes wrong here, by chance or by a cut. It does not know what a call means.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from libs.bus.port import Away, BusError, Link
from libs.contracts.identities import Identity
from libs.runtime.clock import Clock
from libs.testing.bus.faults import Chance
from libs.testing.bus.lane import Act, Lane
from libs.testing.bus.tap import Tap

T = TypeVar("T")

CALL_SECONDS = 5.0
"""For how long a stream's answer is waited for."""


class Line:
    """Carries acts there and back while the link is up."""

    def __init__(self, *, identity: Identity, clock: Clock, chance: Chance, tap: Tap) -> None:
        self.identity = identity
        self.link = Link(clock)
        self._chance = chance
        self._tap = tap
        self._there = Lane(chance)
        self._back = Lane(chance)
        self._awaited: dict[asyncio.Future[Any], str] = {}

    def must_be_up(self, subject: str) -> None:
        """Raise `Away` at once rather than keep something for later."""
        if not self.link.up:
            raise Away(f"{subject}: not sent: the bus is away from {self.identity}")

    def cut(self) -> None:
        """Lose what is under way, and let nobody wait for it."""
        self._there.cut()
        self._back.cut()
        for answer, subject in self._awaited.items():
            if not answer.done():
                answer.set_exception(Away(f"{subject}: the link broke before the answer"))

    def there(self, act: Act) -> None:
        """Do it at the server, after what was sent before."""
        self._there.put(act)

    def back(self, act: Act) -> None:
        """Do it here, after what the server sent before."""
        self._back.put(act)

    def back_after(self, seconds: float, act: Act) -> None:
        """Do it here in so many seconds, unless the link breaks."""
        self._back.put_aside(act, wait=seconds)

    def deliver(self, subject: str, data: bytes, act: Act) -> None:
        """Bring a core message, as far as chance lets it come."""
        faults = self._chance.faults
        if self._chance.hits(faults.lost):
            self._tap.tell("lost", self.identity, subject, data)
            return
        if self._chance.hits(faults.reordered):
            self._tap.tell("reordered", self.identity, subject, data)
            self.back_after(self._chance.drawn(faults.delay), act)
        else:
            self.back(act)
        if self._chance.hits(faults.repeated):
            self._tap.tell("repeated", self.identity, subject, data)
            self.back(act)

    async def call(self, subject: str, work: Callable[[], T]) -> T:
        """As `go`, but chance may lose the call or its answer."""
        self.must_be_up(subject)
        faults = self._chance.faults
        lost = self._chance.hits(faults.call_lost)
        answer_lost = not lost and self._chance.hits(faults.answer_lost)
        if lost or answer_lost:
            self._tap.tell("call lost" if lost else "answer lost", self.identity, subject)
        return await self.go(subject, work, lost=lost, answer_lost=answer_lost)

    async def go(
        self, subject: str, work: Callable[[], T], *, lost: bool = False, answer_lost: bool = False
    ) -> T:
        """Do `work` at the server, and return what it returns or raise what it raises."""
        self.must_be_up(subject)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def work_there() -> None:
            try:
                settled = partial(succeed, answer, work())
            except BusError as error:
                settled = partial(fail, answer, error)
            if not answer_lost:
                self.back(settled)

        if not lost:
            self.there(work_there)
        return await self.answer(answer, subject, timeout=CALL_SECONDS)

    async def answer(self, answer: asyncio.Future[T], subject: str, *, timeout: float | None) -> T:
        """Wait for it, as long as it can still come."""
        self._awaited[answer] = subject
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise Away(f"{subject}: no answer within {timeout:g} s") from None
        finally:
            del self._awaited[answer]
            if answer.done() and not answer.cancelled():
                answer.exception()  # whoever was cancelled while it came does not look at it

    async def settled(self) -> None:
        """Return when everything that the server sent until now has been handled."""
        if not self.link.up:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.back(partial(succeed, reached, None))
        with suppress(Away):
            await self.answer(reached, "what is under way", timeout=None)


def succeed(answer: asyncio.Future[T], result: T) -> None:
    """Give the answer, if somebody still waits for it."""
    if not answer.done():
        answer.set_result(result)


def fail(answer: asyncio.Future[Any], error: BusError) -> None:
    """Give the refusal, if somebody still waits for it."""
    if not answer.done():
        answer.set_exception(error)
