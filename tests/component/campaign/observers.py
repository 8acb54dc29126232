"""What the campaign reads from the bus: facts for the audit, and why nodes wait."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from demo.verdict import DriverlessNodes
from libs.contracts import subjects
from libs.contracts.commands import Command
from libs.contracts.events import Event, EventKind, WaitEvent
from libs.contracts.identities import Writer
from libs.contracts.message import decode
from libs.contracts.reports import Report
from libs.testing.apiserver.faults import ActiveFault, Cut, Delay, Fault, Hang, RefuseRequest, Stale
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import TraceRecord
from tests.component.campaign.gate_answers import StoredCommand
from tests.component.campaign.roles import ROLES, user_of
from tests.component.campaign.scenario import ApiFaultRates


class BusObserver:
    def __init__(self, *, pool: str, max_unavailable: str) -> None:
        self.driverless = DriverlessNodes(pool=pool, max_unavailable=max_unavailable)
        self.waits: dict[str, tuple[float, Event]] = {}
        """The last wait event of each node, and when the bus stored it: senders' clocks differ."""
        self.driver_commands = defaultdict[str, list[StoredCommand]](list)
        """The commands to each node's driver agent."""

    def observe(self, record: TraceRecord) -> None:
        subject = subjects.parse(record.subject) if record.action == "store" else None
        if isinstance(subject, subjects.State):
            self.driverless.observe(decode(Report, record.data), at=record.time)
        if isinstance(subject, subjects.Command) and subject.component == Writer.DRIVER:
            command = StoredCommand(record.time, decode(Command, record.data))
            self.driver_commands[subject.node].append(command)
        if isinstance(subject, subjects.Event) and subject.kind == EventKind.WAIT:
            event = decode(Event, record.data)
            self.waits[event.node] = record.time, event

    def wait_of(self, node: str) -> WaitEvent | None:
        """Return why a node waits; None if it does not wait."""
        known = self.waits.get(node)
        body = known[1].open() if known is not None else None
        return body if isinstance(body, WaitEvent) and body.code is not None else None


_WRITES = ("create", "update", "patch", "apply", "delete", "evict")
_ON_BUS = ("lost", "repeated", "reordered", "call lost", "answer lost", "down")


class FaultCounter:
    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._active: dict[str, list[ActiveFault]] = {}

    def count_action(self, what: str) -> None:
        self._counts[what] += 1

    def count_bus_fault(self, record: TraceRecord) -> None:
        if record.action in _ON_BUS:
            self._counts[f"bus: {record.action}"] += 1

    def inject(self, server: ApiServer, rates: ApiFaultRates) -> None:
        """Make some of our requests fail from now on, until the server's faults are cleared."""
        for writer in ROLES:
            for name, fault in _faults(rates, user_of(writer)):
                self._active.setdefault(f"api: {name}", []).append(server.faults.add(fault))

    def counts(self) -> dict[str, int]:
        """Return the counts by kind, of faults that took effect at all."""
        hits = {
            name: sum(fault.hit_count for fault in faults) for name, faults in self._active.items()
        }
        return dict(sorted((Counter(hits) + self._counts).items()))


def _faults(rates: ApiFaultRates, user: str) -> Iterator[tuple[str, Fault]]:
    all_verbs: tuple[str, ...] = ()
    for name, effect, verbs in (
        ("conflict", RefuseRequest(409), _WRITES),
        ("busy", RefuseRequest(429, retry_after=1), all_verbs),
        ("broken", RefuseRequest(500), all_verbs),
        ("hang", Hang(), (*_WRITES, "get", "list")),
        ("cut", Cut("after"), _WRITES),
        ("late", Delay(2.0), _WRITES),
        ("astray", Delay(9.0, "way"), _WRITES),
        ("stale", Stale(20), ("list",)),
    ):
        rate: float = getattr(rates, name)
        if rate:
            yield name, Fault(effect=effect, verbs=verbs, user=user, probability=rate)
