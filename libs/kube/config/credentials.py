"""Credentials that change while in use: read again in time, and when the server refuses them.

How they are read is given; where from is `libs.kube.config`'s business.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from libs.kube.errors import Misconfigured
from libs.kube.http import RequestAuth
from libs.runtime.clock import Clock

log = logging.getLogger("sluice.kube")

REFRESH_PERIOD = 60.0
"""Seconds after which they are read again: projected tokens are renewed in place."""

MIN_REFRESH_INTERVAL = 10.0
"""Seconds after a reading in which a refusal does not cause another."""

Reader = Callable[[bool], Awaitable[RequestAuth]]
"""Reads them, and all that they come from anew if it is told so; else `Misconfigured`, in time."""


class RefreshedCredentials:
    """A reading that is due goes on beside the requests, with the old ones until it has ended."""

    def __init__(self, first: RequestAuth, reader: Reader, *, clock: Clock) -> None:
        self._pass = first
        self._reader = reader
        self._clock = clock
        self._read = clock.monotonic()
        self._reading: asyncio.Task[None] | None = None
        self._refused: RequestAuth | None = None
        self._complaint = ""

    async def current(self) -> RequestAuth:
        """What was read last."""
        if self._clock.monotonic() - self._read >= REFRESH_PERIOD:
            self._begin(anew=False)
        return self._pass

    async def refresh(self, rejected: RequestAuth) -> RequestAuth | None:
        """What a new reading gives, if that is something else."""
        await self._over()
        if rejected is self._pass and self._worth_it(rejected):
            self._begin(anew=True)
            await self._over()
        return None if self._pass is rejected else self._pass

    def _worth_it(self, shown: RequestAuth) -> bool:
        if self._refused is not shown:
            self._refused = shown
            log.warning("the API server refused our credentials; reading them again")
            return True
        return self._clock.monotonic() - self._read >= MIN_REFRESH_INTERVAL

    async def close(self) -> None:
        """Give up a reading that goes on."""
        if self._reading is not None:
            self._reading.cancel()
            await self._over()

    def _begin(self, *, anew: bool) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._again(anew), name="reading credentials")

    async def _over(self) -> None:
        # Whoever waits may be cancelled; the reading goes on, for others.
        if self._reading is not None:
            await asyncio.wait({self._reading})

    async def _again(self, anew: bool) -> None:
        try:
            read = await self._reader(anew)
        except Misconfigured as error:
            self._complain(f"cannot read our credentials again, the old ones stay: {error}")
        else:
            self._complain("")
            if read != self._pass:
                self._pass = read
        finally:
            self._read = self._clock.monotonic()

    def _complain(self, words: str) -> None:
        if words and words != self._complaint:
            log.warning(words)
        self._complaint = words
