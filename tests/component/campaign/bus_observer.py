"""What the campaign reads from the bus: facts for the audit, and why nodes wait."""

from demo.verdict import DriverlessNodes
from libs.contracts import subjects
from libs.contracts.events import Event, EventKind, WaitEvent
from libs.contracts.message import decode
from libs.contracts.reports import Report
from libs.testing.bus import TraceRecord


class BusObserver:
    def __init__(self, *, pool: str, max_unavailable: str) -> None:
        self.driverless = DriverlessNodes(pool=pool, max_unavailable=max_unavailable)
        self.waits: dict[str, Event] = {}
        """By node: the last wait event."""

    def observe(self, record: TraceRecord) -> None:
        subject = subjects.parse(record.subject) if record.what == "store" else None
        if isinstance(subject, subjects.State):
            self.driverless.observe(decode(Report, record.data), at=record.time)
        if isinstance(subject, subjects.Event) and subject.kind == EventKind.WAIT:
            event = decode(Event, record.data)
            before = self.waits.get(event.node)
            if before is None or before.at <= event.at:
                self.waits[event.node] = event

    def wait_of(self, node: str) -> WaitEvent | None:
        """Return the last reason why a node waits; None if it waits no more."""
        event = self.waits.get(node)
        body = event.open() if event is not None else None
        return body if isinstance(body, WaitEvent) and body.code is not None else None
