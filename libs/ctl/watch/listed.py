"""The events that the live view lists, from NATS or, while that is away, from Kubernetes."""

from collections import deque
from typing import Final

from libs.contracts.events import NO_CHANGE, Event, EventKind, WaitEvent
from libs.contracts.message import MalformedMessage
from libs.contracts.waits import WAITS_OF_POOLS
from libs.ctl.cluster import NODE_EVENTS, Cluster, NodeEvent
from libs.ctl.text import parse_time
from libs.fleet.state import FleetState
from libs.fleet.status import EventLine
from libs.runtime.env import Env

KEPT_EVENTS: Final = 64


class ListedEvents:
    """The last events, the oldest first; what they say of nodes goes to the state of the fleet."""

    def __init__(self, state: FleetState) -> None:
        self._state = state
        self.lines: deque[EventLine] = deque(maxlen=KEPT_EVENTS)

    def event_received(self, event: Event) -> None:
        """Take over an event, and list it if it tells of a change."""
        self._state.event_received(event)
        try:
            body = event.open() if event.kind is EventKind.WAIT else None
        except MalformedMessage:
            return
        # The end of a wait is seen by what follows it; that of a pool is shown with it.
        is_shown_elsewhere = isinstance(body, WaitEvent) and (
            body.code is None or body.code in WAITS_OF_POOLS
        )
        if event.kind not in NO_CHANGE and not is_shown_elsewhere:
            self.add(EventLine.of(event, self._state.versions))

    def add(self, line: EventLine) -> None:
        """List an event; those of before are listed in the order of their times."""
        self._state.is_changed = True
        if self.lines and self.lines[-1].at > line.at:
            ordered = sorted((*self.lines, line), key=lambda each: each.at)
            self.lines = deque(ordered, maxlen=KEPT_EVENTS)
        else:
            self.lines.append(line)

    def events_begin(self) -> None:
        """Forget all: the events are read again, perhaps from another source."""
        self.lines.clear()
        self._state.events_begin()

    async def follow_kubernetes(self, cluster: Cluster, *, env: Env) -> None:
        """List the Events about nodes until cancelled."""
        cache = cluster.cache(NODE_EVENTS, env=env, fields="involvedObject.kind=Node")
        self.events_begin()
        cache.on_change(self._event_changed)
        await cache.run()

    def _event_changed(self, _old: NodeEvent | None, new: NodeEvent | None) -> None:
        """List an Event of Kubernetes when it comes; a deleted one has happened all the same."""
        if new is None:
            return
        self.add(
            EventLine(
                at=parse_time(new.at) or 0.0,
                writer="kubernetes",
                node=new.involved_object.name,
                kind=new.reason,
                message=f"{new.reason}: {new.message}",
            )
        )
