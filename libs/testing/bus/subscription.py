"""A subscription on the in-process bus."""

from collections.abc import Callable
from functools import partial

from libs.bus.port import Handler
from libs.testing.bus.line import Line
from libs.testing.bus.tap import Tap


class Subscription:
    """Hears while the server knows it, and handles what had arrived when it was closed."""

    def __init__(
        self,
        *,
        line: Line,
        tap: Tap,
        pattern: str,
        group: str,
        handler: Handler,
        done: Callable[["Subscription"], None],
    ) -> None:
        self.pattern = pattern
        self.group = group
        self._line = line
        self._tap = tap
        self._handler = handler
        self._done = done
        self._closed = False

    def deliver(self, subject: str, data: bytes, reply: str) -> None:
        """The server has something for it."""
        self._line.deliver(subject, data, partial(self._handle, subject, data, reply))

    def _handle(self, subject: str, data: bytes, reply: str) -> None:
        if not self._closed:
            self._tap.tell("heard", self._line.identity, subject, data)
            self._handler(subject, data, reply)

    async def close(self) -> None:
        """Hear no more; what had arrived is still handled."""
        self._done(self)
        await self._line.settled()
        self._closed = True
