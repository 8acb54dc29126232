"""What one connection hears: asked for with the server's word awaited, and drained when closed."""

import asyncio
import logging
from contextlib import suppress
from typing import Any, Protocol

from nats.errors import Error as NatsError

from libs.bus.nats.requests import Callback
from libs.bus.port import BusUnavailable, SubjectForbidden
from libs.contracts.identities import Identity
from libs.runtime.fatal import describe_error

log = logging.getLogger("sluice.bus")

ANSWER_SECONDS = 10
DRAIN_SECONDS = 5


class SubscriptionServer(Protocol):
    """What a subscription asks of its connection."""

    identity: Identity

    @property
    def is_responsive(self) -> bool:
        """Whether waiting for the server makes sense."""
        ...

    def mark_unresponsive(self) -> None:
        """It did not answer in time."""
        ...


class PendingSubscriptions:
    """Those being asked for; the server forbids one by an error that names only its subject."""

    def __init__(self, server: SubscriptionServer) -> None:
        self._server = server
        self._asked: set[str] = set()
        self._forbidden: set[str] = set()

    def forbid(self, subject: str) -> bool:
        """Whether one that is being asked for was meant: who asks is told."""
        # The client lower-cases what the server says, so subjects are compared that way.
        asked = subject.lower() in self._asked
        if asked:
            self._forbidden.add(subject.lower())
        return asked

    async def add(
        self, client: Any, subject: str, callback: Callback, *, group: str
    ) -> "NatsSubscription":
        """Hear a subject; `Forbidden` if the server says so."""
        subscription = None
        asked = subject.lower()
        self._asked.add(asked)
        try:
            subscription = await client.subscribe(subject, queue=group, cb=callback)
            # The server's word on it comes before the answer to this.
            await client.flush(ANSWER_SECONDS)
            if asked in self._forbidden:
                raise SubjectForbidden(f"{self._server.identity} may not subscribe to {subject}")
        except BaseException as error:
            if subscription is not None:
                await _drop(subscription)
            if isinstance(error, NatsError | OSError | TimeoutError):
                self._server.mark_unresponsive()
                raise BusUnavailable(
                    f"{subject}: not subscribed: {describe_error(error)}"
                ) from None
            raise
        finally:
            self._asked.discard(asked)
            self._forbidden.discard(asked)
        return NatsSubscription(self._server, subscription)


class NatsSubscription:
    """A subscription of nats-py that is drained when it is closed."""

    def __init__(self, server: SubscriptionServer, subscription: Any) -> None:
        self._server = server
        self._subscription = subscription

    async def close(self) -> None:
        """Stop hearing; what had arrived is still handled, if the server answers."""
        try:
            if self._server.is_responsive:
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self._subscription.drain()
        except (NatsError, OSError, TimeoutError) as error:
            self._server.mark_unresponsive()
            log.debug("subscription not drained: %s", error)
        finally:
            await _drop(self._subscription)


async def _drop(subscription: Any) -> None:
    """Hear it no more, whatever the server says."""
    with suppress(NatsError):
        await subscription.unsubscribe()
