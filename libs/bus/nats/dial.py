"""Connect a client of nats-py, and retry until a deadline.

nats-py can lose a cancellation while it connects, and reports by a callback instead of an
exception why each server failed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from nats.errors import NoServersError

from libs.bus.nats.client import PatchedClient
from libs.bus.port import BusUnavailable
from libs.contracts.identities import Identity
from libs.runtime.backoff import Backoff
from libs.runtime.clock import Clock


async def dial(client: PatchedClient, options: dict[str, Any], *, within: float) -> bool:
    """Try each server once and return whether the client is connected."""
    connecting = asyncio.create_task(client.connect(**options), name="nats connect")
    try:
        await asyncio.wait({connecting}, timeout=within)
        if connecting.done():
            connecting.result()
    except NoServersError:
        return False  # the client's `error_cb` got each reason
    else:
        return client.is_connected
    finally:
        while not connecting.done():  # again and again, because a cancellation may get lost
            connecting.cancel()
            await asyncio.wait({connecting}, timeout=1.0)
        if not connecting.cancelled():
            connecting.exception()


log = logging.getLogger("sluice.bus")


async def retry_connect(
    attempt: Callable[[float], Awaitable[str]],
    *,
    url: str,
    identity: Identity,
    clock: Clock,
    random: Random,
    spread: float,
    wait: float,
) -> None:
    """Call `attempt` with the seconds left until it returns "" instead of why it failed."""
    deadline = clock.monotonic() + wait
    backoff = Backoff(random, first=max(1.0, spread), cap=max(10.0, spread))
    pause = random.uniform(0.0, spread)
    logged = ""
    while True:
        await clock.sleep(min(pause, max(0.0, deadline - clock.monotonic())))
        why = await attempt(deadline - clock.monotonic())
        if not why:
            return
        if clock.monotonic() >= deadline:
            raise BusUnavailable(
                f"no connection to NATS at {url} as {identity} within {wait:g} s:"
                f" {why}; check the address, and that the server runs"
            )
        if why != logged:
            log.warning("%s is waiting for NATS at %s: %s", identity, url, why)
            logged = why
        pause = backoff.next()
