"""Why there is no connection: logged once for each cause, and again while it lasts."""

import logging

from libs.contracts.identities import Identity
from libs.runtime.clock import Clock

log = logging.getLogger("sluice.bus")

REPEAT_SECONDS = 600.0
"""A cause is logged again after this time."""

_MAX_CAUSES = 20


class ConnectFailures:
    """The failed tries to connect since the last that succeeded."""

    def __init__(self, clock: Clock, *, waits: str = "is waiting for NATS at") -> None:
        self._clock = clock
        self._waits = waits
        self._began = 0.0
        self._logged: dict[str, float] = {}
        self.reason = ""
        """Why the last try failed; empty while there is a connection."""

    def failed(self, identity: Identity, url: str, why: str) -> None:
        """Record a failed try."""
        now = self._clock.monotonic()
        if not self.reason:
            self._began = now
        self.reason = why
        logged = self._logged.get(why)
        if logged is not None and now - logged < REPEAT_SECONDS:
            return
        if logged is None and len(self._logged) == _MAX_CAUSES:
            return  # texts that differ at each try must not fill the log
        self._logged[why] = now
        since = f" for {now - self._began:.0f} s" if logged is not None else ""
        log.warning("%s %s %s%s: %s; trying again", identity, self._waits, url, since, why)

    def ended(self) -> None:
        """Forget the failures: the connection is up."""
        self._logged.clear()
        self.reason = ""
