"""Renew a session: try the newer token on a second connection before the session is ended.

While the sign-in service is away, the session goes on with its old token.
"""

import logging
from typing import Any, Final

from nats.errors import Error as NatsError

from libs.bus.nats.client import dial
from libs.bus.nats.failures import ConnectFailures
from libs.bus.nats.sign_in import SignIn
from libs.contracts.identities import Identity
from libs.runtime.clock import Backoff
from libs.runtime.env import Env

MAX_PAUSE: Final = 300.0
"""Seconds between two tries at most; after an outage, a fleet is renewed within this time."""
_FIRST_PAUSE: Final = 10.0

_log = logging.getLogger("sluice.bus")


class Renewal:
    def __init__(self, *, url: str, identity: Identity, sign_in: SignIn, env: Env) -> None:
        self._url = url
        self._identity = identity
        self._sign_in = sign_in
        self._clock = env.clock
        self._backoff = Backoff(env.random, first=_FIRST_PAUSE, cap=MAX_PAUSE)
        self._failures = ConnectFailures(env.clock, waits="cannot renew its session at")
        self._next_try = 0.0
        self._why = ""

    async def is_ready(self, options: dict[str, Any], *, within: float) -> bool:
        """Return whether a newer token exists that the server accepted just now.

        `options` connect to the same servers as the session.
        """
        if self._clock.monotonic() < self._next_try or not await self._sign_in.is_renewal_due():
            return False
        if await self._is_accepted(options, within):
            self._failures.ended()
            self._backoff.reset()
            # Meanwhile the session may have been replaced by one with the newer token.
            return await self._sign_in.is_renewal_due()
        self._failures.failed(self._identity, self._url, self._why)
        self._next_try = self._clock.monotonic() + self._backoff.next()
        return False

    async def _is_accepted(self, options: dict[str, Any], within: float) -> bool:
        client = self._sign_in.trial_client()
        self._why = f"no answer within {within:g} s"
        try:
            return await dial(client, {**options, "error_cb": self._on_error}, within=within)
        except (NatsError, OSError, TimeoutError) as error:
            await self._on_error(error)
            return False
        finally:
            if client.was_started:
                await client.close()

    async def _on_error(self, error: Exception) -> None:
        self._why = self._sign_in.explain(str(error) or type(error).__name__)
