"""Questions under way: each waits for its answer, and for every reason why none can come.

An answer that cannot come any more is not waited for: the link broke, the server forbade the
question, or its time is up.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Protocol

import msgspec

from libs.bus.port import BusError, BusUnavailable, SubjectForbidden


class Msg(Protocol):
    """What we use of a message of nats-py."""

    subject: str
    reply: str
    data: bytes
    headers: dict[str, str] | None


Callback = Callable[[Msg], Awaitable[None]]


class PendingRequest(msgspec.Struct, frozen=True, gc=False):
    """One that was put; the token is the end of its reply subject."""

    subject: str
    token: str
    answer: asyncio.Future[Msg]

    def fail(self, error: BusError) -> None:
        """There will be no answer."""
        if not self.answer.done():
            self.answer.set_exception(error)


class PendingRequests:
    """All that wait on one connection."""

    def __init__(self) -> None:
        self._waiting: dict[str, PendingRequest] = {}

    @contextmanager
    def open(self, subject: str, *, timeout: float) -> Generator[PendingRequest]:
        """A question that may be answered while the block lasts, and for `timeout` seconds."""
        loop = asyncio.get_running_loop()
        # Drawn, not counted: who answered one question cannot answer the next one of somebody else.
        question = PendingRequest(subject, secrets.token_hex(8), loop.create_future())
        self._waiting[question.token] = question
        late = BusUnavailable(f"{subject}: no answer within {timeout:g} s")
        timer = loop.call_later(timeout, question.fail, late)
        try:
            yield question
        finally:
            timer.cancel()
            if not question.answer.cancel() and not question.answer.cancelled():
                question.answer.exception()  # nobody else looks when the question was not sent
            del self._waiting[question.token]

    def resolve(self, msg: Msg) -> None:
        """A message came into the inbox; one that nobody waits for is dropped."""
        question = self._waiting.get(msg.subject.rpartition(".")[2])
        if question is not None and not question.answer.done():
            question.answer.set_result(msg)

    def forbid(self, subject: str, who: str) -> None:
        """The server forbids this subject, which it may have spelt in lower case."""
        for question in tuple(self._waiting.values()):
            if question.subject.lower() == subject.lower():
                question.fail(SubjectForbidden(f"{who} may not publish to {question.subject}"))

    def fail_all(self, why: str) -> None:
        """No answer will come on this connection."""
        for question in tuple(self._waiting.values()):
            question.fail(BusUnavailable(f"{question.subject}: {why}"))
