"""Failed writes: how they are logged, and when they are tried again."""

from random import Random
from typing import Final

from libs.bus.port import BusError
from libs.kube.errors import Conflict, KubeError
from libs.runtime.clock import Backoff
from libs.runtime.fatal import describe_error
from libs.runtime.logs import logger

RETRY_FIRST: Final = 0.5
RETRY_MAX: Final = 15.0
"""Seconds of the pause after a failed write, at first and at most."""
CONFLICTS_IN_A_ROW: Final = 3
"""Consecutive conflicts that are retried at once, on what the server has now."""

_log = logger()


class SlotConflict(Exception):
    """Another command outranks the one that was to be written."""


class Retries:
    """The attempts at one write since it last succeeded."""

    def __init__(self, random: Random) -> None:
        self._backoff = Backoff(random, first=RETRY_FIRST, cap=RETRY_MAX)
        self._conflicts = 0

    def may_retry_at_once(self, error: Exception) -> bool:
        """Return whether another writer was faster, and that is not the rule."""
        if not isinstance(error, Conflict):
            return False
        self._conflicts += 1
        return self._conflicts <= CONFLICTS_IN_A_ROW

    def next_pause(self) -> float:
        """Return the seconds until the next attempt."""
        return RETRY_FIRST / 10 + self._backoff.next()


def log_failure(error: Exception, *, effect: str, **about: str) -> str:
    """Log why an effect failed and return it in one line; a defect is logged with its place."""
    if isinstance(error, KubeError | BusError | SlotConflict):
        _log.warning(f"{effect} failed", why=str(error), **about)
        return str(error)
    _log.error(f"unexpected error: {effect} failed", exc_info=error, **about)
    return describe_error(error)
