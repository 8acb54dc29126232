"""How an identity comes to its first connection: tries with pauses between, and the last words.

It knows no client: `attempt` is one try, which says why it failed, or raises what no further try
would mend.
"""

import logging
import random as randomness
from collections.abc import Awaitable, Callable

from libs.bus.port import Away
from libs.contracts.identities import Identity
from libs.runtime.backoff import Backoff
from libs.runtime.clock import Clock

log = logging.getLogger("sluice.bus")


class Opening:
    """Tries until one is good, or the time is over."""

    def __init__(
        self,
        *,
        url: str,
        identity: Identity,
        clock: Clock,
        random: randomness.Random,
        spread: float,
    ) -> None:
        self._url = url
        self._identity = identity
        self._clock = clock
        self._random = random
        self._spread = spread

    async def through(self, attempt: Callable[[float], Awaitable[str]], *, wait: float) -> None:
        """Return when a try was good (it says nothing); it is given the seconds that are left."""
        deadline = self._clock.monotonic() + wait
        backoff = Backoff(self._random, first=max(1.0, self._spread), cap=max(10.0, self._spread))
        pause = self._random.uniform(0.0, self._spread)
        said = ""
        while True:
            await self._clock.sleep(min(pause, max(0.0, deadline - self._clock.monotonic())))
            why = await attempt(deadline - self._clock.monotonic())
            if not why:
                return
            if self._clock.monotonic() >= deadline:
                raise Away(
                    f"no connection to NATS at {self._url} as {self._identity} within {wait:g} s:"
                    f" {why}; check the address, and that the server runs"
                )
            if why != said:
                log.warning("%s waits for NATS at %s: %s", self._identity, self._url, why)
                said = why
            pause = backoff.next()
