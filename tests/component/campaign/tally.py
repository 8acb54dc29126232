"""How often each kind of trouble took effect: a fault that never hits proves nothing."""

from collections import Counter
from collections.abc import Iterator

from libs.testing.apiserver.faults import Active, Cut, Delay, Fault, Hang, Refuse, Stale
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import Happened
from tests.component.campaign.roles import ROLES, user_of
from tests.component.campaign.scenario import Strikes

_WRITES = ("create", "update", "patch", "apply", "delete", "evict")
_ON_BUS = ("lost", "repeated", "reordered", "call lost", "answer lost", "down")


class Tally:
    """Of one run."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._active: dict[str, list[Active]] = {}

    def acted(self, what: str) -> None:
        """An act had something to act on."""
        self._counts[what] += 1

    def hear(self, it: Happened) -> None:
        """Something happened on the bus."""
        if it.what in _ON_BUS:
            self._counts[f"bus: {it.what}"] += 1

    def strike(self, server: ApiServer, strikes: Strikes) -> None:
        """From now on some of our requests go wrong, until the server's faults are cleared."""
        for writer in ROLES:
            for name, fault in _faults(strikes, user_of(writer)):
                self._active.setdefault(f"api: {name}", []).append(server.faults.add(fault))

    def counts(self) -> dict[str, int]:
        """By kind, of those that took effect at all."""
        struck = {name: sum(one.struck for one in some) for name, some in self._active.items()}
        return dict(sorted((Counter(struck) + self._counts).items()))


def _faults(strikes: Strikes, user: str) -> Iterator[tuple[str, Fault]]:
    every: tuple[str, ...] = ()
    for name, does, verbs in (
        ("conflict", Refuse(409), _WRITES),
        ("busy", Refuse(429, retry_after=1), every),
        ("broken", Refuse(500), every),
        ("hang", Hang(), (*_WRITES, "get", "list")),
        ("cut", Cut("after"), _WRITES),
        ("late", Delay(2.0), _WRITES),
        ("astray", Delay(9.0, "way"), _WRITES),
        ("stale", Stale(20), ("list",)),
    ):
        rate: float = getattr(strikes, name)
        if rate:
            yield name, Fault(does=does, verbs=verbs, user=user, probability=rate)
