"""What the campaign overhears on the bus: what an audit has to be told, and what nodes wait for."""

from demo.driverless import DriverlessNodes
from libs.contracts import subjects
from libs.contracts.events import Event, EventKind, WaitEvent
from libs.contracts.message import decode
from libs.contracts.reports import Report
from libs.testing.bus import TraceRecord


class BusObserver:
    """Everything that was stored since it listens, as far as it matters here."""

    def __init__(self, *, pool: str, max_unavailable: str) -> None:
        self.driverless = DriverlessNodes(pool=pool, max_unavailable=max_unavailable)
        self.waits: dict[str, Event] = {}
        """By node: the last that was said of why it is not where it should be."""

    def observe(self, it: TraceRecord) -> None:
        """Something happened on the bus."""
        of = subjects.parse(it.subject) if it.what == "store" else None
        if isinstance(of, subjects.State):
            self.driverless.observe(decode(Report, it.data), at=it.time)
        if isinstance(of, subjects.Event) and of.kind == EventKind.WAIT:
            event = decode(Event, it.data)
            known = self.waits.get(event.node)
            if known is None or known.at <= event.at:
                self.waits[event.node] = event

    def wait_of(self, node: str) -> WaitEvent | None:
        """Why that node is not in place, as the scheduler said last; None: it waits no more."""
        event = self.waits.get(node)
        body = event.open() if event is not None else None
        return body if isinstance(body, WaitEvent) and body.code is not None else None
