"""Requests and subscriptions that wait for the server.

A request ends with its answer, or as soon as no answer can come. A subscription is confirmed by
the server when it is opened, and drained when it is closed.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import msgspec
from nats.errors import Error as NatsError

from libs.bus.port import BusError, BusUnavailable, SubjectForbidden
from libs.bus.rates import Admits
from libs.contracts.identities import Identity
from libs.runtime.fatal import describe_error

log = logging.getLogger("sluice.bus")

ANSWER_SECONDS = 10
DRAIN_SECONDS = 5


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
        self._gathered: dict[str, list[Msg]] = {}

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
            self._gathered.pop(request.token, None)

    def gather(self, request: PendingRequest) -> list[Msg]:
        """Return a list that receives all answers; the request itself then only fails."""
        return self._gathered.setdefault(request.token, [])

    def resolve(self, msg: Msg) -> None:
        """Resolve the request that this message answers; drop the message if there is none."""
        token = msg.subject.rpartition(".")[2]
        if token in self._gathered:
            self._gathered[token].append(msg)
            return
        request = self._waiting.get(token)
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


class PendingSubscriptions:
    """Subscriptions not confirmed yet; the server denies one with an error that names its subject.

    nats-py lower-cases that error, so subjects are compared in lower case.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._pending: set[str] = set()
        self._forbidden: set[str] = set()
        self.server_responds = True
        """False from a timeout until the next reconnect; meanwhile `close` does not drain."""

    def forbid(self, subject: str) -> bool:
        """Deny the pending subscription of this subject; return False if there is none."""
        is_pending = subject.lower() in self._pending
        if is_pending:
            self._forbidden.add(subject.lower())
        return is_pending

    async def add(
        self,
        client: Any,
        subject: str,
        callback: Callback,
        *,
        group: str,
        admits: Admits | None = None,
    ) -> "NatsSubscription":
        """Subscribe; raise `SubjectForbidden` if the server denies it."""
        subscription = None
        key = subject.lower()
        self._pending.add(key)
        try:
            subscription = await client.subscribe(subject, queue=group, cb=callback)
            if admits is not None:
                client.admit(subscription, admits)
            # The server sends a denial before it answers the flush.
            await client.flush(ANSWER_SECONDS)
            if key in self._forbidden:
                raise SubjectForbidden(f"{self._identity} may not subscribe to {subject}")
        except BaseException as error:
            if subscription is not None:
                await _unsubscribe(subscription)
            if isinstance(error, NatsError | OSError | TimeoutError):
                self.server_responds = False
                raise BusUnavailable(
                    f"{subject}: not subscribed: {describe_error(error)}"
                ) from None
            raise
        finally:
            self._pending.discard(key)
            self._forbidden.discard(key)
        return NatsSubscription(self, client, subscription)


class NatsSubscription:
    """A subscription of nats-py that is drained when it is closed."""

    def __init__(self, pending: PendingSubscriptions, client: Any, subscription: Any) -> None:
        self._pending = pending
        self._client = client
        self._subscription = subscription

    async def close(self) -> None:
        """Unsubscribe; messages that arrived are still handled, if the server responds."""
        try:
            if self._client.is_connected and self._pending.server_responds:
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self._subscription.drain()
        except (NatsError, OSError, TimeoutError) as error:
            self._pending.server_responds = False
            log.debug("subscription not drained: %s", error)
        finally:
            await _unsubscribe(self._subscription)


async def _unsubscribe(subscription: Any) -> None:
    with suppress(NatsError):
        await subscription.unsubscribe()
