"""One connection to NATS, with the traps of nats-py closed.

What this module holds to: a connection that is not there says so at once and buffers nothing; it
reconnects for ever, with jitter; when the client gives up for good, `guard` ends the process; what
the server forbids is an error here and not silence; an answer that cannot come any more is not
waited for. It knows nothing of streams or planes.
"""

import asyncio
import logging
import re
import secrets
from functools import partial
from typing import Any, NoReturn

from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError

from libs.bus.credentials import Credentials
from libs.bus.nats.client import PatchedClient
from libs.bus.nats.dial import ConnectRetry, dial
from libs.bus.nats.requests import Callback, Msg, PendingRequests
from libs.bus.nats.subscriptions import NatsSubscription, PendingSubscriptions
from libs.bus.port import BusLink, BusMisconfigured, BusUnavailable, NoResponders, SubjectForbidden
from libs.contracts import subjects
from libs.contracts.identities import Identity
from libs.runtime.backoff import Backoff
from libs.runtime.env import Env
from libs.runtime.fatal import describe_error

log = logging.getLogger("sluice.bus")

PING_SECONDS = 20
"""A connection whose peer is silently gone is found out after three of these."""

CONNECT_SECONDS = 10
WATCH_SECONDS = 5.0
DRAIN_SECONDS = 5
SEND_BUFFER = 512 * 1024
"""Bytes on their way to the socket, above which a sender waits for the server."""


_VIOLATION = re.compile(
    r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE
)


class Connection:
    """One nats-py client and what it must not do."""

    def __init__(
        self,
        *,
        url: str,
        identity: Identity,
        env: Env,
        credentials: Credentials,
        spread: float,
    ) -> None:
        self.url = url
        self.identity = identity
        self.link = BusLink(env.clock)
        self.dropped = 0
        """Messages that nats-py threw away because a subscriber was too slow."""
        self._client: Any = PatchedClient()
        self.clock = env.clock
        self._random = env.random
        self._credentials = credentials
        self._spread = spread
        self._backoff = Backoff(env.random, first=1.0, cap=30.0)
        self._inbox = f"{subjects.inbox(identity)}.{secrets.token_hex(11)}"
        self._questions = PendingRequests()
        self._subscriptions = PendingSubscriptions(self)
        self._opening = ConnectRetry(url=url, identity=identity, env=env, spread=spread)
        self._last_error = ""
        self._refused = False
        self._opened = False
        self._deaf = False
        self._closing = False
        self._closed = asyncio.Event()
        self._failure: BaseException | None = None

    # Coming and going.

    async def open(self, *, wait: float) -> None:
        """Connect within `wait` seconds, or say why not. Credentials are refused once."""
        options = await asyncio.to_thread(self._credentials.options)
        await self._opening.run(partial(self._try, options), wait=wait)
        self._opened = True
        self.link.set(True)

    async def _try(self, options: dict[str, Any], within: float) -> str:
        """One try of each server, on a client of its own; why it failed, or nothing."""
        self._client = PatchedClient()
        patience = min(within, 2.0 * CONNECT_SECONDS)
        try:
            if await dial(self._client, self._told(options), within=patience):
                self._client.options["max_reconnect_attempts"] = -1
                await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)
                await self._client.flush(CONNECT_SECONDS)
        except (NatsError, OSError, TimeoutError) as error:
            self._last_error = str(error) or type(error).__name__
        except Exception as error:  # noqa: BLE001  (for a wrong seed or address it raises anything)
            raise BusMisconfigured(
                f"cannot connect to NATS at {self.url} as {self.identity} with"
                f" {self._credentials}: {describe_error(error)}; check the address and"
                f" the credentials"
            ) from None
        else:
            if self._client.is_connected:
                return ""
        finally:
            if not self._client.is_connected and self._client.was_started:
                await self._client.close()
        why = self._last_error or "no answer"
        if self._refused:
            raise SubjectForbidden(
                f"NATS at {self.url} refused {self.identity} with {self._credentials}: {why};"
                f" add this identity's key to the server's configuration, or give the right one"
            )
        return why

    def _told(self, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "servers": self.url.split(","),
            "name": str(self.identity),
            "inbox_prefix": self._inbox,
            "error_cb": self._on_error,
            "disconnected_cb": self._on_disconnected,
            "reconnected_cb": self._on_reconnected,
            "closed_cb": self._on_closed,
            "reconnect_to_server_handler": self._next_server,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "connect_timeout": CONNECT_SECONDS,
            "ping_interval": PING_SECONDS,
            "max_outstanding_pings": 2,
            "drain_timeout": DRAIN_SECONDS,
            "pending_size": 0,
            **options,
        }

    async def close(self) -> None:
        """Answer what was heard, send what was said, and go; at once if the server is away."""
        self._closing = True
        try:
            if self.is_responsive:
                async with asyncio.timeout(DRAIN_SECONDS + 1):
                    await self._client.drain()
        except (NatsError, OSError, TimeoutError) as error:
            log.warning("the connection to NATS was not drained: %s", describe_error(error))
        finally:
            await self._client.close()
            self.link.set(False)
            self._questions.fail_all("the connection was closed")

    @property
    def is_responsive(self) -> bool:
        """Whether the server is there, and answered when it was last waited for."""
        return self._client.is_connected and not self._deaf

    def mark_unresponsive(self) -> None:
        """The server did not answer in time: until a reconnect nothing waits for it in a drain."""
        self._deaf = True

    def fail(self, error: BaseException) -> None:
        """Something cannot go on: `guard` says so."""
        self._failure = self._failure or error
        self._closed.set()

    async def guard(self) -> NoReturn:
        """Run beside everything else: it ends, by raising, when nothing is right any more."""
        while not self._closed.is_set():
            try:
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._closed.wait()
            except TimeoutError:
                if not self._client.is_connected and not self._client.has_reconnect_task:
                    break
                if self._client.is_connected and not self._client.is_reading:
                    log.warning("nothing reads from NATS at %s any more: reconnecting", self.url)
                    await self._client.force_reconnect()
        if self._failure is not None:
            raise self._failure
        raise BusUnavailable(
            f"the connection to NATS at {self.url} as {self.identity} is closed for good:"
            f" {self._last_error or 'no reason given'}"
        )

    # What nats-py calls.

    async def _on_error(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        self._last_error = text
        violation = _VIOLATION.search(text)
        if isinstance(error, SlowConsumerError):
            self.dropped += 1
            log.warning("a subscriber is too slow, a message was dropped: %s", text)
        elif violation:
            self._on_violation(violation.group(1).lower(), violation.group(2))
            log.warning("NATS forbids %s: %s", self.identity, text)
        else:
            if "authorization violation" in text.lower():
                self._refused = True
            log.debug("NATS at %s: %s", self.url, text)

    def _on_violation(self, what: str, subject: str) -> None:
        if what != "subscription":
            self._questions.forbid(subject, str(self.identity))
        elif not self._subscriptions.forbid(subject):
            self.fail(
                SubjectForbidden(
                    f"{self.identity} may not hear {subject} any more; mend its rights"
                )
            )

    async def _on_disconnected(self) -> None:
        self._client.discard_unsent()
        if self._opened and not self._closing:
            log.warning("NATS at %s is away: %s", self.url, self._last_error or "connection broken")
        self.link.set(False)
        self._questions.fail_all("the connection broke before the answer")

    async def _on_reconnected(self) -> None:
        self._backoff.reset()
        self._deaf = False
        log.info("NATS at %s is back", self.url)
        self.link.set(True)

    async def _on_closed(self) -> None:
        self._last_error = str(self._client.last_error or self._last_error)
        self.link.set(False)
        if self._opened and not self._closing:
            self._closed.set()

    def _next_server(self, servers: list[Any], _info: dict[str, Any]) -> tuple[Any, float]:
        first = self._random.uniform(0.0, self._spread)
        return self._random.choice(servers), max(first, self._backoff.next())

    # Sending and hearing.

    async def publish(self, subject: str, data: bytes) -> None:
        """Send now, or raise `Away`."""
        self._must_be_up(subject)
        try:
            await self._client.publish(subject, data)
            if self._client.pending_data_size > SEND_BUFFER:
                await self._client.flush(CONNECT_SECONDS)
        except (NatsError, OSError, TimeoutError) as error:
            raise BusUnavailable(f"{subject}: not sent: {error or type(error).__name__}") from None

    def _must_be_up(self, subject: str) -> None:
        if not self._client.is_connected:
            raise BusUnavailable(f"{subject}: not sent: NATS at {self.url} is away")

    async def request(
        self, subject: str, data: bytes, *, timeout: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """Ask, and return the first answer; `NobodyThere` when the server says so."""
        self._must_be_up(subject)
        with self._questions.open(subject, timeout=timeout) as question:
            try:
                reply = f"{self._inbox}.{question.token}"
                await self._client.publish(subject, data, reply=reply, headers=headers)
            except (NatsError, OSError) as error:
                raise BusUnavailable(
                    f"{subject}: not sent: {error or type(error).__name__}"
                ) from None
            answer = await question.answer
        if answer.headers and not answer.data and answer.headers.get("Status") == "503":
            raise NoResponders(f"{subject}: nobody answers there now")
        return answer

    async def _answered(self, msg: Any) -> None:
        self._questions.resolve(msg)

    async def subscribe(
        self, subject: str, callback: Callback, *, group: str = ""
    ) -> NatsSubscription:
        """Hear a subject; `Forbidden` if the server says so."""
        self._must_be_up(subject)

        async def guarded(msg: Any) -> None:
            try:
                await callback(msg)
            except Exception as error:  # noqa: BLE001  (nats-py would only log it)
                self.fail(error)

        return await self._subscriptions.add(self._client, subject, guarded, group=group)

    def inbox(self) -> str:
        """A new subject that only this identity may hear."""
        return f"{self._inbox}.{secrets.token_hex(8)}.x"
