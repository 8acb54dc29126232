"""By how much clocks are wrong, or were put back as the order of the records of a journal shows.

Two times tell an order only where they differ by more than the clocks went back, or differ: a
record from before such a step may have the later time. What has an order of its own, such as
revisions, tokens and the entries of one agent, is judged by that.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from libs.contracts.events import Event
from libs.contracts.identities import COMPONENTS, Writer
from libs.contracts.journal import Entry, Revision

SKEW_SECONDS: Final = 2.0
"""The largest difference between the clocks of two machines."""

UNSEEN_SECONDS: Final = 60.0
"""The longest time without a record, or until an event is stored, that is expected. A step back is
larger than it looks by the time since the record before it."""
_SERVER: Final = ""
"""The key of the API server's clock, beside those of nodes."""


def clocks_ahead(stored: Iterable[tuple[float, Event]]) -> dict[str, float]:
    """Return the clocks that are wrong, by node uid: seconds by which they are ahead.

    Each event comes with the time at which NATS stored it, which may be late but is never early:
    so the event with the latest time of its own tells most. The scheduler goes by the time of the
    API server, which writes are compared by; what its events differ from NATS is NATS' own error.
    """
    ahead: dict[str, float] = {}
    for at, event in stored:
        source = _SERVER if event.writer == Writer.SCHEDULER else event.node_uid
        if source == _SERVER or (source and event.writer in COMPONENTS):
            ahead[source] = max(event.at - at, ahead.get(source, event.at - at))
    server = ahead.pop(_SERVER, 0.0)
    differences = {uid: seconds - server for uid, seconds in ahead.items()}
    # A clock that seems to be behind may be right, and all of its events late.
    return {
        uid: each
        for uid, each in differences.items()
        if each > SKEW_SECONDS or each < -UNSEEN_SECONDS
    }


class ClockSteps:
    """The steps back of the API server's clock, and of each machine's, and what is wrong anyway."""

    def __init__(
        self,
        revisions: Iterable[Revision],
        entries: Iterable[Entry],
        ahead: Mapping[str, float] | None = None,
    ) -> None:
        self._server = 0.0
        self._machines = {uid: abs(seconds) for uid, seconds in (ahead or {}).items()}
        latest: dict[tuple[str, str], float] = {}
        newest = 0
        for each in revisions:
            # A write that changes nothing has the revision of an earlier one, and its own time.
            if each.changed or not 0 < each.revision <= newest:
                self._server += _step(latest, ("", ""), each.time)
            newest = max(newest, each.revision)
        for each in entries:
            if step := _step(latest, (each.node_uid, each.component), each.time):
                self._machines[each.node_uid] = self._machines.get(each.node_uid, 0.0) + step

    def put_back(self, uid: str = "") -> float:
        """Return by how much the times of a node and of the server may hide an order."""
        return self._server + self._machines.get(uid, 0.0)

    @property
    def largest(self) -> float:
        """By how much the clock went back that hides the most."""
        return max(map(self.put_back, self._machines), default=self._server)

    def skew(self, uid: str = "") -> float:
        """Return by how much the times of two machines may differ."""
        return SKEW_SECONDS + self.put_back(uid)


def _step(latest: dict[tuple[str, str], float], source: tuple[str, str], time: float) -> float:
    """Return how far back a source went with this time; the answers of a server cross a little."""
    back, latest[source] = latest.get(source, time) - time, time
    return back + UNSEEN_SECONDS if back > SKEW_SECONDS else 0.0
