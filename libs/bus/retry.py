"""Retry a call until the bus is available."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from libs.bus.port import BusUnavailable
from libs.runtime.backoff import Backoff
from libs.runtime.env import Env

T = TypeVar("T")

log = logging.getLogger("sluice.bus")


class BusRetry:
    """Retries the calls of one service's start."""

    def __init__(self, *, env: Env) -> None:
        self._clock = env.clock
        self._random = env.random
        self.reason = ""
        """Why the service still waits; empty when it does not."""

    async def until_success(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat an idempotent call while it raises `BusUnavailable`, and return its result."""
        backoff = Backoff(self._random, cap=10.0)
        while True:
            try:
                result = await call()
            except BusUnavailable as error:
                if not self.reason:
                    log.warning("waiting for the bus before starting: %s", error)
                self.reason = str(error)
            else:
                self.reason = ""
                return result
            await self._clock.sleep(backoff.next())
