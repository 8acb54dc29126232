"""Requests in flight, which all end when the server stops."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from libs.testing.apiserver.requests.replies import Reply
from libs.testing.apiserver.storage.watches import ConnectionCut


class InFlightRequests:
    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Reply], None] = {}

    async def run(self, work: Coroutine[Any, Any, Reply], *, outlives: bool) -> Reply:
        """Run a request; raise `ConnectionCut` where the server stops.

        A write outlives the disconnect of its client, a read does not.
        """
        task = asyncio.create_task(work, name="request")
        self._tasks[task] = None
        task.add_done_callback(self._finish)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if not outlives:
                await _drop(task)
            raise
        if task.cancelled():
            raise ConnectionCut
        return task.result()

    async def cancel_all(self) -> None:
        """Cancel all requests but the current one."""
        others = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)

    def _finish(self, task: asyncio.Task[Reply]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # mark it retrieved


async def _drop(task: asyncio.Task[Reply]) -> None:
    """Cancel a request, or close its unused reply."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is None:
        await task.result().close()
