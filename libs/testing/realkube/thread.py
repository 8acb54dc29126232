"""An event loop in a thread of its own, so that what lives on it outlives the loop of one test."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class OwnLoop:
    """Begins to run when it is made, and runs until `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A process that ends without `close` must not wait for it.
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result, on whatever loop the caller is; a caller that is cancelled cancels it."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        return await asyncio.wrap_future(running)

    async def close(self) -> None:
        """Nothing may run there any more."""
        await self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()
