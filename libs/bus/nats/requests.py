"""Pending requests: each ends with its answer, or as soon as no answer can come."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Protocol

import msgspec

from libs.bus.port import BusError, BusUnavailable, SubjectForbidden


class Msg(Protocol):
    """The used part of nats-py's message class."""

    subject: str
    reply: str
    data: bytes
    headers: dict[str, str] | None


Callback = Callable[[Msg], Awaitable[None]]


class PendingRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that was sent; `token` is the last token of its reply subject."""

    subject: str
    token: str
    answer: asyncio.Future[Msg]

    def fail(self, error: BusError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class PendingRequests:
    """The pending requests of one connection."""

    def __init__(self) -> None:
        self._waiting: dict[str, PendingRequest] = {}

    @contextmanager
    def open(self, subject: str, *, timeout: float) -> Generator[PendingRequest]:
        """Register a request until the end of the block; fail it after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        # A random token, so that a responder cannot guess the reply subject of another request.
        request = PendingRequest(subject, secrets.token_hex(8), loop.create_future())
        self._waiting[request.token] = request
        late = BusUnavailable(f"{subject}: no answer within {timeout:g} s")
        timer = loop.call_later(timeout, request.fail, late)
        try:
            yield request
        finally:
            timer.cancel()
            if not request.answer.cancel() and not request.answer.cancelled():
                request.answer.exception()  # mark it as retrieved: the request may not be sent
            del self._waiting[request.token]

    def resolve(self, msg: Msg) -> None:
        """Resolve the request that this message answers; drop the message if there is none."""
        request = self._waiting.get(msg.subject.rpartition(".")[2])
        if request is not None and not request.answer.done():
            request.answer.set_result(msg)

    def forbid(self, subject: str, identity: str) -> None:
        """Fail the requests on this subject, which nats-py may have lower-cased."""
        for request in tuple(self._waiting.values()):
            if request.subject.lower() == subject.lower():
                request.fail(SubjectForbidden(f"{identity} may not publish to {request.subject}"))

    def fail_all(self, why: str) -> None:
        for request in tuple(self._waiting.values()):
            request.fail(BusUnavailable(f"{request.subject}: {why}"))
