"""Wait for a condition in real time."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable


async def eventually(
    check: Callable[[], bool | Awaitable[bool]], *, within: float = 20.0, every: float = 0.005
) -> None:
    """Wait until `check` holds, or fail."""
    async with asyncio.timeout(within):
        while True:
            holds = check()
            if inspect.isawaitable(holds):
                holds = await holds
            if holds:
                return
            await asyncio.sleep(every)
