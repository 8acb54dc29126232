"""What happened on the in-process bus, in order: so that two runs can be compared byte for byte."""

from collections.abc import Callable

import msgspec

from libs.contracts.identities import Identity
from libs.runtime.clock import Clock


class Happened(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing that somebody did or that befell him."""

    time: float
    what: str
    who: str
    subject: str
    sequence: int = 0
    data: bytes = b""


class Tap:
    """Tells those who watch what happened."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watchers: list[Callable[[Happened], None]] = []

    def watch(self, watcher: Callable[[Happened], None]) -> None:
        """Call `watcher` for everything from now on."""
        self._watchers.append(watcher)

    def tell(
        self, what: str, who: Identity, subject: str, data: bytes = b"", *, sequence: int = 0
    ) -> None:
        """It happened now."""
        if self._watchers:
            happened = Happened(self._clock.now(), what, str(who), subject, sequence, data)
            for watcher in self._watchers:
                watcher(happened)
