"""By how much clocks were put back within a journal, as the order of its records shows.

Two times tell an order only where they differ by more than the clocks went back: a record from
before such a step may have the later time. What has an order of its own, such as revisions, tokens
and the entries of one agent, is judged by that.
"""

from collections.abc import Iterable
from typing import Final

from libs.contracts.journal import Entry, Revision

SKEW_SECONDS: Final = 2.0
"""The largest difference between the clocks of two machines."""

UNSEEN_SECONDS: Final = 60.0
"""A step is larger than two records around it show: so long there may have been none."""


class ClockSteps:
    """The steps back of the API server's clock, and of each machine's."""

    def __init__(self, revisions: Iterable[Revision], entries: Iterable[Entry]) -> None:
        self._server = 0.0
        self._machines: dict[str, float] = {}
        latest: dict[tuple[str, str], float] = {}
        for each in revisions:
            self._server += _step(latest, ("", ""), each.time)
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
