"""nats-py's client, with the defects mended that leave a connection, or who waits on one, hanging.

Each was met with nats-py 2.16.0; when a later one has it right, its method here goes.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import asyncio
from collections.abc import Iterator
from typing import Any

from nats.aio.client import Client
from nats.errors import ConnectionClosedError, FlushTimeoutError


class PatchedClient(Client):
    """A client whose reading goes on, and whose waiting ends, whatever is cancelled when."""

    async def flush(self, timeout: int = 10) -> None:
        """Return when the server has read, and answered, everything that was sent before."""
        # The original sends its PING before what is still pending; and it waits by `wait_for`,
        # which in Python 3.11 swallows a cancellation that comes together with the answer.
        if self.is_closed or self._transport is None:
            raise ConnectionClosedError
        if not self.is_reading:
            await self._flush_pending()
            return
        self._transport.writelines(self._pending)
        self.discard_unsent()
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await self._send_ping(answer)
                await answer
        except TimeoutError:
            raise FlushTimeoutError from None

    async def _process_pong(self) -> None:
        # The original sets the result of a flush that was cancelled or timed out, and the error
        # ends the task that reads: still connected, hearing nothing.
        if self._pongs:
            waiting: Any = self._pongs.pop(0)
            if not waiting.done():
                waiting.set_result(True)
            self._pongs_received += 1
            self._pings_outstanding = 0

    async def _connect_to_server(self, s: Any) -> None:
        # The original drops the socket of a try that failed in the handshake without closing it.
        if self._transport is not None:
            self._transport.close()
        await super()._connect_to_server(s)

    async def close(self) -> None:
        """Go, and leave nothing at work."""
        # A reconnect of the original that is cancelled just as the server answers loses that, and
        # goes on: connected, or trying for ever, on behalf of a client that is closed.
        await super().close()
        while working := {task for task in self._tasks() if not task.done()}:
            for task in working:
                task.cancel()
            await asyncio.wait(working, timeout=1.0)
            self._status = Client.CLOSED
        if self._transport is not None:
            self._transport.close()

    def _tasks(self) -> Iterator["asyncio.Task[Any]"]:
        known: Any = (
            self._reconnection_task,
            self._reading_task,
            self._ping_interval_task,
            self._flusher_task,
        )
        return (task for task in known if task not in (None, asyncio.current_task()))

    @property
    def was_started(self) -> bool:
        """Whether there is anything to close; the original's `close` cannot bear it otherwise."""
        return self._flush_queue is not None

    @property
    def is_reading(self) -> bool:
        """Whether the task that reads is there; it ends silently on what it did not foresee."""
        task: Any = self._reading_task
        return task is not None and not task.done()

    @property
    def has_reconnect_task(self) -> bool:
        """Whether the task that reconnects is there; likewise."""
        task: Any = self._reconnection_task
        return task is not None and not task.done()

    def discard_unsent(self) -> None:
        """What has not reached the socket is not sent any more."""
        self._pending = []
        self._pending_data_size = 0
