"""The life of one connection to NATS: sign-in, reconnects, renewal and end.

It reconnects forever, with jitter; when nats-py gives up for good, `guard` raises. A refused key is
final at the start, a refused token never.
"""

import asyncio
import logging
import re
import secrets
from contextlib import suppress
from typing import Any, NoReturn

from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError

from libs.bus.credentials import Credentials
from libs.bus.nats.client import PatchedClient, ServerError, dial
from libs.bus.nats.failures import ConnectFailures
from libs.bus.nats.pauses import Pauses
from libs.bus.nats.pending import (
    PendingRequests,
    PendingSubscriptions,
)
from libs.bus.nats.renewal import Renewal
from libs.bus.nats.sign_in import SignIn, is_refusal
from libs.bus.nats.transport import Dial
from libs.bus.port import BusLink, BusMisconfigured, BusUnavailable, SubjectForbidden
from libs.contracts import subjects
from libs.contracts.identities import Identity
from libs.runtime.env import Env
from libs.runtime.fatal import describe_error

log = logging.getLogger("sluice.bus")

PING_SECONDS = 20
"""Ping interval; a dead peer is detected after three intervals."""

CONNECT_SECONDS = 15
"""Longer than the server's timeout of 10 s for the sign-in, so that its verdict is read."""

FLUSH_SECONDS = 10
WATCH_SECONDS = 5.0
LASTING_SECONDS = 60.0
"""A session that a server ends with an error after less time does not reset the backoff."""

DRAIN_SECONDS = 5

_VIOLATION = re.compile(
    r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE
)


class BaseConnection:
    def __init__(
        self,
        *,
        url: str,
        identity: Identity,
        env: Env,
        credentials: Credentials,
        spread: float,
        failures: ConnectFailures,
        dial: Dial | None = None,
    ) -> None:
        self.url = url
        self.identity = identity
        self.link = BusLink(env.clock)
        self._client: Any = PatchedClient()
        self.clock = env.clock
        self._random = env.random
        self._credentials = credentials
        self._sign_in = SignIn(url=url, credentials=credentials, env=env, dial=dial)
        self._renewal = Renewal(url=url, identity=identity, sign_in=self._sign_in, env=env)
        self._options: dict[str, Any] = {}
        self._failures = failures
        self._pauses = Pauses(
            env.random, identity=identity, has_token=credentials.signs_in, spread=spread
        )
        self._inbox = f"{subjects.inbox(identity)}.{secrets.token_hex(11)}"
        self._requests = PendingRequests()
        self._subscriptions = PendingSubscriptions(identity)
        self._last_error = ""
        self._unauthorized = False
        self._ended_by_server = False
        self._renewing = False
        self._connected_at = 0.0
        self._opened = False
        self._closing = False
        self._closed = asyncio.Event()
        self._failure: BaseException | None = None

    async def open(self, *, wait: float) -> None:
        """Connect within `wait` seconds, or raise. Do not retry a refused key."""
        self._options = await asyncio.to_thread(self._sign_in.options)
        deadline = self.clock.monotonic() + wait
        while True:
            why = await self._connect_once(deadline - self.clock.monotonic())
            if not why:
                break
            if self.clock.monotonic() >= deadline:
                raise BusUnavailable(
                    f"no connection to NATS at {self.url} as {self.identity} within {wait:g} s:"
                    f" {why}; check the address, and that the server runs"
                )
            self._failures.failed(self.identity, self.url, why)
            pause = self._pauses.before_opening()
            await self.clock.sleep(min(pause, max(0.0, deadline - self.clock.monotonic())))
        self._opened = True
        self._set_up()

    async def _connect_once(self, within: float) -> str:
        """Try the servers once with a new client; return why that failed, or ""."""
        self._client = self._sign_in.new_client()
        self._last_error = ""
        timeout = min(within, 2.0 * CONNECT_SECONDS)
        try:
            if await dial(self._client, self._connect_options(), within=timeout):
                self._client.options["max_reconnect_attempts"] = -1
                self._client.options["allow_reconnect"] = True
                await self._client.subscribe(f"{self._inbox}.*", cb=self._on_answer)
                await self._client.flush(FLUSH_SECONDS)
        except (NatsError, OSError, TimeoutError) as error:
            self._last_error = self._last_error or str(error) or type(error).__name__
        except Exception as error:  # noqa: BLE001  (a bad seed or address raises many types)
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
        why = self._last_error or self._failures.reason or "no answer"
        if self._unauthorized and self._sign_in.is_refusal_final:
            raise SubjectForbidden(
                f"NATS at {self.url} refused {self.identity} with {self._credentials}: {why};"
                f" give a token, or to sign-in itself a seed whose key is in the server's"
                f" configuration"
            )
        return why

    def _connect_options(self) -> dict[str, Any]:
        return {
            **self._trial_options(),
            "inbox_prefix": self._inbox,
            "error_cb": self._on_error,
            "disconnected_cb": self._on_disconnected,
            "reconnected_cb": self._on_reconnected,
            "closed_cb": self._on_closed,
            "reconnect_to_server_handler": self._next_server,
            "ping_interval": PING_SECONDS,
            "max_outstanding_pings": 2,
            "drain_timeout": DRAIN_SECONDS,
            "pending_size": 0,
        }

    def _trial_options(self) -> dict[str, Any]:
        return {
            "name": str(self.identity),
            "max_reconnect_attempts": 1,
            "allow_reconnect": False,  # a server that refuses is not asked twice in a row
            "reconnect_time_wait": 0,
            "connect_timeout": CONNECT_SECONDS,
            **self._options,
        }

    async def close(self) -> None:
        """Drain and close the connection; close at once if the server is unreachable."""
        self._closing = True
        try:
            if self._client.is_connected and self._subscriptions.server_responds:
                async with asyncio.timeout(DRAIN_SECONDS + 1):
                    await self._client.drain()
        except (NatsError, OSError, TimeoutError) as error:
            log.warning("the connection to NATS was not drained: %s", describe_error(error))
        finally:
            if self._client.was_started:
                await self._client.close()
            self.link.set(False)
            self._requests.fail_all("the connection was closed")

    def unready_reason(self) -> str | None:
        """Return why nothing is sent or received, or None."""
        if not self.link.is_up:
            why = self._failures.reason
            return f"NATS at {self.url} is unreachable" + (f": {why}" if why else "")
        if not self._client.is_reading:
            return f"nothing is read from NATS at {self.url}"
        return None

    def fail(self, error: BaseException) -> None:
        """Make `guard` raise this error."""
        self._failure = self._failure or error
        self._closed.set()

    async def guard(self) -> NoReturn:
        """Run until the connection fails for good, then raise; reconnect if reading stopped."""
        while not self._closed.is_set():
            try:
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._closed.wait()
            except TimeoutError:
                if not self._client.is_connected and not self._client.has_reconnect_task:
                    break
                if self._client.is_connected and not self._client.is_reading:
                    log.warning("stopped reading from NATS at %s: reconnecting", self.url)
                    await self._client.force_reconnect()
                elif self._client.is_connected and await self._is_renewal_ready():
                    await self._renew()
        if self._failure is not None:
            raise self._failure
        error = self._client.reconnect_error
        why = describe_error(error) if error else self._last_error or "no reason given"
        raise BusUnavailable(
            f"the connection to NATS at {self.url} as {self.identity} was closed permanently: {why}"
        )

    async def _is_renewal_ready(self) -> bool:
        return await self._renewal.is_ready(self._trial_options(), within=2.0 * CONNECT_SECONDS)

    async def _renew(self) -> None:
        """Sign in again; what was sent before is processed first, unless that takes too long."""
        log.info("signing in to NATS at %s again, because the token was renewed", self.url)
        with suppress(NatsError, OSError, TimeoutError):
            await self._client.flush(FLUSH_SECONDS)
        if self._client.is_connected:
            self._renewing = True
            await self._client.force_reconnect()

    def _set_up(self) -> None:
        self._failures.ended()
        self._connected_at = self.clock.monotonic()
        self.link.set(True)

    # Called by nats-py.

    async def _on_error(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        violation = _VIOLATION.search(text)
        if isinstance(error, SlowConsumerError):
            log.warning("a subscriber is too slow, a message was dropped: %s", text)
        elif violation:
            self._on_violation(violation.group(1).lower(), violation.group(2))
            log.warning("NATS forbids %s: %s", self.identity, text)
        else:
            self._on_broken(error, text)

    def _on_broken(self, error: Exception, text: str) -> None:
        """Keep why the session ended, or why a try to connect failed."""
        self._ended_by_server |= isinstance(error, ServerError)
        self._unauthorized |= is_refusal(text)
        self._last_error = text = self._sign_in.explain(text)
        if not self.link.is_up:
            self._failures.failed(self.identity, self.url, text)

    def _on_violation(self, operation: str, subject: str) -> None:
        if operation != "subscription":
            self._requests.forbid(subject, str(self.identity))
        elif not self._subscriptions.forbid(subject):
            self.fail(
                SubjectForbidden(
                    f"{self.identity} may no longer subscribe to {subject}; fix its permissions"
                )
            )

    async def _on_disconnected(self) -> None:
        self._client.discard_unsent()
        if self._opened and not self._closing and not self._renewing:
            what = "ended the session" if self._ended_by_server else "is unreachable"
            why = self._last_error or "connection broken"
            log.warning("NATS at %s %s: %s", self.url, what, why)
        lasted = self.clock.monotonic() - self._connected_at
        self._pauses.lost(lasted=not self._ended_by_server or lasted >= LASTING_SECONDS)
        self.link.set(False)
        self._requests.fail_all("the connection broke before the answer")

    async def _on_reconnected(self) -> None:
        self._subscriptions.server_responds = True
        self._ended_by_server = False
        self._last_error = ""
        log.info("reconnected to NATS at %s", self.url)
        self._set_up()

    async def _on_closed(self) -> None:
        self._last_error = self._last_error or str(self._client.last_error or "")
        self.link.set(False)
        if self._opened and not self._closing:
            self._closed.set()

    def _next_server(self, servers: list[Any], _info: dict[str, Any]) -> tuple[Any, float]:
        if self._renewing:  # the sessions of a fleet are renewed at random times
            self._renewing = False
            return self._random.choice(servers), 0.0
        return self._random.choice(servers), self._pauses.before_reconnect()

    async def _on_answer(self, msg: Any) -> None:
        self._requests.resolve(msg)
