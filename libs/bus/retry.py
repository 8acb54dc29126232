"""Starting on a bus that is away, or does not answer: what a service needs of it is waited for.

Only `Away` is waited for; what a person has to mend ends the start. What is called may have been
done although no answer came, so it must be something that may be done twice.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from libs.bus.port import BusUnavailable
from libs.runtime.backoff import Backoff
from libs.runtime.env import Env

T = TypeVar("T")

log = logging.getLogger("sluice.bus")


class BusRetry:
    """Of one service; `why` is what it waits for now, in words, and empty when it does not."""

    def __init__(self, *, env: Env) -> None:
        self._clock = env.clock
        self._random = env.random
        self.reason = ""

    async def until_success(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the call gives, once it does; the first reason to wait is said in the log."""
        backoff = Backoff(self._random, cap=10.0)
        while True:
            try:
                done = await call()
            except BusUnavailable as error:
                if not self.reason:
                    log.warning("the start waits for the bus: %s", error)
                self.reason = str(error)
            else:
                self.reason = ""
                return done
            await self._clock.sleep(backoff.next())
