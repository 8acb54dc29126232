"""One try to connect a client of nats-py, with nobody left connecting after it.

nats-py waits in ways that lose a cancellation, and says by a callback, not by raising, why each
server did not want us. What a try means is not known here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from nats.errors import NoServersError

from libs.bus.nats.client import PatchedClient
from libs.bus.port import BusUnavailable
from libs.contracts.identities import Identity
from libs.runtime.backoff import Backoff
from libs.runtime.env import Env


async def dial(client: PatchedClient, options: dict[str, Any], *, within: float) -> bool:
    """Whether the client is connected after one try of each server; raises what it raises."""
    connecting = asyncio.create_task(client.connect(**options), name="nats connect")
    try:
        await asyncio.wait({connecting}, timeout=within)
        if connecting.done():
            connecting.result()
    except NoServersError:
        return False  # each has said why, one by one
    else:
        return client.is_connected
    finally:
        await _end(connecting)


async def _end(task: asyncio.Task[object]) -> None:
    """Cancel until it is done."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=1.0)
    if not task.cancelled():
        task.exception()


log = logging.getLogger("sluice.bus")


class ConnectRetry:
    """Tries until one is good, or the time is over."""

    def __init__(
        self,
        *,
        url: str,
        identity: Identity,
        env: Env,
        spread: float,
    ) -> None:
        self._url = url
        self._identity = identity
        self._clock = env.clock
        self._random = env.random
        self._spread = spread

    async def run(self, attempt: Callable[[float], Awaitable[str]], *, wait: float) -> None:
        """Return when a try was good (it says nothing); it is given the seconds that are left."""
        deadline = self._clock.monotonic() + wait
        backoff = Backoff(self._random, first=max(1.0, self._spread), cap=max(10.0, self._spread))
        pause = self._random.uniform(0.0, self._spread)
        said = ""
        while True:
            await self._clock.sleep(min(pause, max(0.0, deadline - self._clock.monotonic())))
            why = await attempt(deadline - self._clock.monotonic())
            if not why:
                return
            if self._clock.monotonic() >= deadline:
                raise BusUnavailable(
                    f"no connection to NATS at {self._url} as {self._identity} within {wait:g} s:"
                    f" {why}; check the address, and that the server runs"
                )
            if why != said:
                log.warning("%s waits for NATS at %s: %s", self._identity, self._url, why)
                said = why
            pause = backoff.next()
