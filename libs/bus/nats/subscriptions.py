"""Subscriptions that are confirmed by the server when opened, and drained when closed."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

from nats.errors import Error as NatsError

from libs.bus.nats.requests import Callback
from libs.bus.port import BusUnavailable, SubjectForbidden
from libs.contracts.identities import Identity
from libs.runtime.fatal import describe_error

log = logging.getLogger("sluice.bus")

ANSWER_SECONDS = 10
DRAIN_SECONDS = 5


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
        self, client: Any, subject: str, callback: Callback, *, group: str
    ) -> "NatsSubscription":
        """Subscribe; raise `SubjectForbidden` if the server denies it."""
        subscription = None
        key = subject.lower()
        self._pending.add(key)
        try:
            subscription = await client.subscribe(subject, queue=group, cb=callback)
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
