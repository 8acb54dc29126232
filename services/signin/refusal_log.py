"""One log line for a refused client, and not one for each of its tries."""

from typing import Final

import msgspec

from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.signin.claims import Cause, Refused

PERIOD: Final = 60.0
"""Seconds in which refusals of one host for one cause are one line."""
HOSTS: Final = 4096
"""Hosts and causes that are distinguished."""
LINES: Final = 100
"""Lines in a period."""

_log = logger()


class _Seen(msgspec.Struct):
    at: float
    repeated: int = 0


class RefusalLog:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, Cause], _Seen] = {}
        self._lines = 0
        self._period_began = clock.monotonic()
        self._left_out = 0

    def refused(self, refused: Refused, *, host: str, claimed: str) -> None:
        """Log a refusal; `claimed` is the subject that the token claims, unverified."""
        now = self._clock.monotonic()
        self._begin_period(now)
        key = host, refused.cause
        seen = self._seen.get(key)
        if seen is not None and now < seen.at + PERIOD:
            seen.repeated += 1
            return
        if self._lines >= LINES or (seen is None and len(self._seen) >= HOSTS):
            self._left_out += 1
            return
        self._lines += 1
        self._seen[key] = _Seen(now)
        _log.warning(
            "sign-in refused",
            why=refused.reason,
            cause=refused.cause,
            host=host,
            claimed=claimed,
            repeated=seen.repeated if seen is not None else 0,
        )

    def _begin_period(self, now: float) -> None:
        if now < self._period_began + PERIOD:
            return
        if self._left_out:
            _log.warning("sign-ins refused without a line each", refused=self._left_out)
        self._period_began, self._lines, self._left_out = now, 0, 0
        self._seen = {key: seen for key, seen in self._seen.items() if now < seen.at + 2 * PERIOD}
