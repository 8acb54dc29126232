"""The issuer's public keys, kept current.

The last known keys stay while none can be read. A token with an unknown key makes them be read
again, at most once a minute however many such tokens arrive.
"""

import asyncio
import math
from typing import Final

from libs.runtime.clock import Backoff, jittered
from libs.runtime.env import Env
from libs.runtime.logs import logger
from services.signin.key_sources import Issuer, KeySource, KeysUnavailable

PERIOD: Final = 300.0
"""Seconds between readings."""
RETRY: Final = 30.0
"""The most seconds between readings while they fail."""
UNKNOWN_PERIOD: Final = 60.0
"""Seconds between readings because of tokens with unknown keys."""

_log = logger()


class TrustedKeys:
    """The keys of the last successful reading."""

    def __init__(self, source: KeySource, *, env: Env) -> None:
        self._source = source
        self._clock = env.clock
        self._random = env.random
        self._lock = asyncio.Lock()
        self._unknown_at = -math.inf
        self._reading: asyncio.Task[bool] | None = None
        self.issuer: Issuer | None = None
        """None before the first successful reading."""
        self.problem = "the keys of tokens are not read yet"
        """Why the last reading failed; empty if it did not."""

    async def run(self) -> None:
        """Read the keys until cancelled."""
        backoff = Backoff(self._random, cap=RETRY)
        try:
            while True:
                if await self._read():
                    backoff.reset()
                    await self._clock.sleep(jittered(PERIOD, self._random))
                else:
                    await self._clock.sleep(1.0 + backoff.next())
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.wait({self._reading})

    def unready_reason(self) -> str | None:
        return None if self.issuer is not None else self.problem

    async def read_for_unknown(self) -> bool:
        """Read the keys because a token has an unknown one; return whether they were read.

        All who ask during a reading share it. Within a minute after its start there is no other.
        """
        if self._reading is None or self._reading.done():
            now = self._clock.monotonic()
            if now < self._unknown_at + UNKNOWN_PERIOD:
                return False
            self._unknown_at = now
            self._reading = asyncio.create_task(self._read(), name="keys of an unknown token")
        reading = self._reading
        await asyncio.wait({reading})
        return not reading.cancelled() and reading.result()

    async def _read(self) -> bool:
        async with self._lock:
            try:
                issuer = await self._source.read()
            except KeysUnavailable as error:
                problem = f"the keys of tokens cannot be read: {error}"
                if problem != self.problem:
                    _log.warning(
                        "the keys of tokens cannot be read; those known stay", why=str(error)
                    )
                self.problem = problem
                return False
            self.problem = ""
            if self.issuer is None or set(issuer.keys) != set(self.issuer.keys):
                _log.info("keys of tokens read", issuer=issuer.name, keys=sorted(issuer.keys))
            self.issuer = issuer
            return True
