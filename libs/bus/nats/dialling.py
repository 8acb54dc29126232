"""One try to connect a client of nats-py, with nobody left connecting after it.

nats-py waits in ways that lose a cancellation, and says by a callback, not by raising, why each
server did not want us. What a try means is not known here.
"""

import asyncio
from typing import Any

from nats.errors import NoServersError

from libs.bus.nats.client import MendedClient


async def dial(client: MendedClient, options: dict[str, Any], *, within: float) -> bool:
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
