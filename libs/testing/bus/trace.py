"""A trace of the in-process bus, by which two runs can be compared byte for byte."""

from collections.abc import Callable

import msgspec

from libs.contracts.identities import Identity
from libs.runtime.clock import Clock


class TraceRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    time: float
    what: str
    who: str
    subject: str
    sequence: int = 0
    data: bytes = b""


class BusTrace:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watchers: list[Callable[[TraceRecord], None]] = []

    def watch(self, watcher: Callable[[TraceRecord], None]) -> None:
        self._watchers.append(watcher)

    def record(
        self, what: str, who: Identity, subject: str, data: bytes = b"", *, sequence: int = 0
    ) -> None:
        if self._watchers:
            record = TraceRecord(self._clock.now(), what, str(who), subject, sequence, data)
            for watcher in self._watchers:
                watcher(record)
