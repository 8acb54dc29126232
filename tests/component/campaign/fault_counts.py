"""How often each kind of trouble took effect: a fault that never hits proves nothing."""

from collections import Counter
from collections.abc import Iterator

from libs.testing.apiserver.faults import ActiveFault, Cut, Delay, Fault, Hang, RefuseRequest, Stale
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import TraceRecord
from tests.component.campaign.roles import ROLES, user_of
from tests.component.campaign.scenario import ApiFaultRates

_WRITES = ("create", "update", "patch", "apply", "delete", "evict")
_ON_BUS = ("lost", "repeated", "reordered", "call lost", "answer lost", "down")


class FaultCounter:
    """Of one run."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._active: dict[str, list[ActiveFault]] = {}

    def count_action(self, what: str) -> None:
        """An act had something to act on."""
        self._counts[what] += 1

    def count_bus_fault(self, it: TraceRecord) -> None:
        """Something happened on the bus."""
        if it.what in _ON_BUS:
            self._counts[f"bus: {it.what}"] += 1

    def inject(self, server: ApiServer, strikes: ApiFaultRates) -> None:
        """From now on some of our requests go wrong, until the server's faults are cleared."""
        for writer in ROLES:
            for name, fault in _faults(strikes, user_of(writer)):
                self._active.setdefault(f"api: {name}", []).append(server.faults.add(fault))

    def counts(self) -> dict[str, int]:
        """By kind, of those that took effect at all."""
        struck = {name: sum(one.hit_count for one in some) for name, some in self._active.items()}
        return dict(sorted((Counter(struck) + self._counts).items()))


def _faults(strikes: ApiFaultRates, user: str) -> Iterator[tuple[str, Fault]]:
    every: tuple[str, ...] = ()
    for name, does, verbs in (
        ("conflict", RefuseRequest(409), _WRITES),
        ("busy", RefuseRequest(429, retry_after=1), every),
        ("broken", RefuseRequest(500), every),
        ("hang", Hang(), (*_WRITES, "get", "list")),
        ("cut", Cut("after"), _WRITES),
        ("late", Delay(2.0), _WRITES),
        ("astray", Delay(9.0, "way"), _WRITES),
        ("stale", Stale(20), ("list",)),
    ):
        rate: float = getattr(strikes, name)
        if rate:
            yield name, Fault(effect=does, verbs=verbs, user=user, probability=rate)
