"""Credentials that are read again periodically and when the server refuses them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from libs.kube.errors import Misconfigured
from libs.kube.http import RequestAuth
from libs.runtime.clock import Clock

log = logging.getLogger("sluice.kube")

REFRESH_PERIOD = 60.0
"""Seconds between readings: projected tokens are renewed in place."""

MIN_REFRESH_INTERVAL = 10.0
"""Seconds after a reading in which a refusal does not cause another."""

Reader = Callable[[bool], Awaitable[RequestAuth]]
"""Reads the credentials; with True, also the configuration they come from. Raises `Misconfigured`,
within a bounded time.
"""


class RefreshedCredentials:
    """Credentials of a reader. A reading runs beside the requests, which use the old ones
    meanwhile.
    """

    def __init__(self, first: RequestAuth, reader: Reader, *, clock: Clock) -> None:
        self._auth = first
        self._reader = reader
        self._clock = clock
        self._read_at = clock.monotonic()
        self._reading: asyncio.Task[None] | None = None
        self._rejected: RequestAuth | None = None
        self._logged_problem = ""

    async def current(self) -> RequestAuth:
        if self._clock.monotonic() - self._read_at >= REFRESH_PERIOD:
            self._start_reading(anew=False)
        return self._auth

    async def refresh(self, rejected: RequestAuth) -> RequestAuth | None:
        await self._reading_done()
        if rejected is self._auth and self._should_read_again(rejected):
            self._start_reading(anew=True)
            await self._reading_done()
        return None if self._auth is rejected else self._auth

    def _should_read_again(self, rejected: RequestAuth) -> bool:
        if self._rejected is not rejected:
            self._rejected = rejected
            log.warning("the API server refused our credentials; reading them again")
            return True
        return self._clock.monotonic() - self._read_at >= MIN_REFRESH_INTERVAL

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await self._reading_done()

    def _start_reading(self, *, anew: bool) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_again(anew), name="reading credentials")

    async def _reading_done(self) -> None:
        # Cancelling a waiter must not cancel the shared reading.
        if self._reading is not None:
            await asyncio.wait({self._reading})

    async def _read_again(self, anew: bool) -> None:
        try:
            read = await self._reader(anew)
        except Misconfigured as error:
            self._log_problem(f"cannot read our credentials again, the old ones stay: {error}")
        else:
            self._log_problem("")
            if read != self._auth:
                self._auth = read
        finally:
            self._read_at = self._clock.monotonic()

    def _log_problem(self, problem: str) -> None:
        if problem and problem != self._logged_problem:
            log.warning(problem)
        self._logged_problem = problem
