"""Which writer sends which kinds of report and event. Pure.

The permissions list these kinds, so the subjects of a component are finite, and with them what it
can store; readers keep no others.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from libs.contracts.events import EventKind
from libs.contracts.identities import CHECK_SENDERS, COMPONENTS, Writer
from libs.contracts.reports import StateKind
from libs.contracts.subjects import Event, State

REPORT_WRITERS: Final[Mapping[StateKind, tuple[Writer, ...]]] = {
    StateKind.FACTS: (Writer.DISCOVERY, Writer.DRIVER),
    StateKind.PROGRESS: COMPONENTS,
    StateKind.RESULT: COMPONENTS,
    StateKind.REFUSAL: COMPONENTS,
    StateKind.EVIDENCE: (Writer.VALIDATOR,),
    StateKind.USAGE: (Writer.DRIVER,),
    StateKind.HEALTH: (Writer.TELEMETRY,),
}
"""The components that send a report of their own accord, or about a command."""

ANSWER_WRITERS: Final[Mapping[StateKind, tuple[Writer, ...]]] = {
    StateKind.REFUSAL: COMPONENTS,
    StateKind.HOLDERS: (Writer.DRIVER,),
    StateKind.PREFLIGHT: (Writer.DRIVER,),
}
"""The components that answer a check with a report of this kind."""

EVENT_WRITERS: Final[Mapping[EventKind, tuple[Writer, ...]]] = {
    EventKind.STEP: (Writer.SCHEDULER,),
    EventKind.WAIT: (Writer.SCHEDULER,),
    EventKind.GRANT: (Writer.SCHEDULER,),
    EventKind.ROLLOUT: (Writer.SCHEDULER,),
    EventKind.EVICTION: (Writer.SCHEDULER,),
    EventKind.EDIT: (Writer.SCHEDULER,),
    EventKind.LEADER: (Writer.SCHEDULER,),
    EventKind.PLAN: (Writer.SCHEDULER,),
    EventKind.COMMAND: COMPONENTS,
    EventKind.FACTS: (Writer.DISCOVERY,),
    EventKind.HEALTH: (Writer.TELEMETRY_CLUSTER,),
    EventKind.OPERAND: (Writer.DRIVER_CLUSTER,),
    EventKind.EVIDENCE: (Writer.VALIDATOR,),
}


def report_subjects(component: Writer, *, cluster: str, node: str) -> Iterator[State]:
    """Return every subject on which a component of a node reports."""
    scope = {"cluster": cluster, "node": node, "component": component.value}
    for kind, senders in REPORT_WRITERS.items():
        if component in senders:
            yield State(**scope, kind=kind)
    for kind, senders in ANSWER_WRITERS.items():
        if component in senders:
            yield from (State(**scope, kind=kind, asker=asker) for asker in CHECK_SENDERS)


def event_subjects(writer: Writer, *, cluster: str, node: str) -> Iterator[Event]:
    """Return every subject on which a writer publishes events about a node."""
    for kind, senders in EVENT_WRITERS.items():
        if writer in senders:
            yield Event(cluster=cluster, node=node, writer=writer, kind=kind)
