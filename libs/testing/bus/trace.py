"""What happened on the in-process bus, in order: so that two runs can be compared byte for byte."""

from collections.abc import Callable

import msgspec

from libs.contracts.identities import Identity
from libs.runtime.clock import Clock


class TraceRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing that somebody did or that befell him."""

    time: float
    what: str
    who: str
    subject: str
    sequence: int = 0
    data: bytes = b""


class BusTrace:
    """Tells those who watch what happened."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watchers: list[Callable[[TraceRecord], None]] = []

    def watch(self, watcher: Callable[[TraceRecord], None]) -> None:
        """Call `watcher` for everything from now on."""
        self._watchers.append(watcher)

    def record(
        self, what: str, who: Identity, subject: str, data: bytes = b"", *, sequence: int = 0
    ) -> None:
        """It happened now."""
        if self._watchers:
            happened = TraceRecord(self._clock.now(), what, str(who), subject, sequence, data)
            for watcher in self._watchers:
                watcher(happened)
