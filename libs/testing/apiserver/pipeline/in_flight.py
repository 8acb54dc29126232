"""Requests that are being carried out: a server that stops ends them all.

A write goes on when whoever asked for it has given up; a read does not.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from libs.testing.apiserver.requests.replies import Reply
from libs.testing.apiserver.storage.watches import ConnectionCut


class InFlightRequests:
    """All of them."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Reply], None] = {}

    async def run(self, work: Coroutine[Any, Any, Reply], *, outlives: bool) -> Reply:
        """What comes of it; `Severed` where it is ended from here."""
        task = asyncio.create_task(work, name="request")
        self._tasks[task] = None
        task.add_done_callback(self._over)
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
        """End all but the one that asks for it."""
        others = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)

    def _over(self, task: asyncio.Task[Reply]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # perhaps nobody else looks


async def _drop(task: asyncio.Task[Reply]) -> None:
    """Nobody takes its reply, which may be there already."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is None:
        await task.result().close()
