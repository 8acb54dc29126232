"""A Node as the audit sees it at one moment, and its life from moment to moment.

Pure reading of labels, annotations and status. A lease or a record of another node uid is void, as
the engine has it: it counts as none.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import (
    DRIVER_LABEL,
    INITIALLY_CORDONED_ANNOTATION,
    KEEP_CORDONED_LABEL,
    LEASE_ANNOTATION,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    STATE_LABEL,
    LeaseOwner,
    NodeLease,
    NodeRecord,
    Operation,
    UpgradeState,
)
from libs.contracts.paths import annotation_path, label_path

UNSCHEDULABLE: Final = "spec.unschedulable"
READY: Final = "status.conditions[type=Ready].status"
BOOT: Final = "status.nodeInfo.bootID"
STATE: Final = label_path(STATE_LABEL)
DRIVER: Final = label_path(DRIVER_LABEL)
LEASE: Final = annotation_path(LEASE_ANNOTATION)
RECORD: Final = annotation_path(RECORD_ANNOTATION)
REQUEST: Final = annotation_path(REQUEST_ANNOTATION)
INITIALLY_CORDONED: Final = annotation_path(INITIALLY_CORDONED_ANNOTATION)
KEEP_CORDONED: Final = label_path(KEEP_CORDONED_LABEL)

FREE: Final = frozenset({Operation.BRING_UP, Operation.VALIDATE})
"""Operations whose lease takes nothing away: there was no driver before, or it goes on running."""


class ReplayedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A Node at one moment; the second half follows from the first, and is asked for often."""

    exists: bool = True
    cordoned: bool = False
    ready: bool = True
    """Also where nothing is said of it."""
    boot_id: str = ""
    state: str = ""
    driver: str = ""
    lease: NodeLease | None = None
    obscure: bool = False
    """There is a lease that nobody can read."""
    record: NodeRecord | None = None
    request: str = ""
    keeps_cordon: bool = False
    initially_cordoned: bool = False

    upgrade: NodeLease | None = None
    """The lease, if it is an upgrade's."""
    operation: Operation | None = None
    """What is done to it under that lease."""
    leased_away: bool = False
    """Whether a lease makes it unavailable; one that nobody can read does."""
    failed: bool = False
    """By the record where that says a state: a person may write the label."""
    unavailable: bool = False
    """As docs/states.md has it, but for gates, which no revision shows."""

    @property
    def pool(self) -> str:
        """Whose node it is, by its record."""
        return self.record.pool if self.record else ""


ABSENT: Final = ReplayedNode(exists=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_PLAIN: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    UNSCHEDULABLE: ("cordoned", bool),
    READY: ("ready", lambda value: value is None or value == "True"),
    BOOT: ("boot_id", _text),
    STATE: ("state", _text),
    DRIVER: ("driver", _text),
    REQUEST: ("request", _text),
    KEEP_CORDONED: ("keeps_cordon", lambda value: value == "true"),
    INITIALLY_CORDONED: ("initially_cordoned", lambda value: value == "true"),
}
TRACKED_PATHS: Final = frozenset({*_PLAIN, LEASE, RECORD})
"""Paths that make a Node another one for the audit."""


def state_after(before: ReplayedNode, uid: str, changed: dict[str, Any]) -> ReplayedNode:
    """What a Node is once these paths have these values; only paths of `TOLD` count."""
    news: dict[str, Any] = {}
    for path, value in changed.items():
        if path in _PLAIN:
            name, read = _PLAIN[path]
            news[name] = read(value)
        elif path == LEASE:
            lease = _read(NodeLease, value)
            news["lease"] = lease if lease and lease.node_uid == uid else None
            news["obscure"] = bool(value) and lease is None
        elif path == RECORD:
            record = _read(NodeRecord, value)
            news["record"] = record if record and record.node_uid == uid else None
    if all(getattr(before, name) == value for name, value in news.items()):
        return before
    return _complete(msgspec.structs.replace(before, **news))


def _complete(facts: ReplayedNode) -> ReplayedNode:
    lease, record = facts.lease, facts.record
    upgrade = lease if lease and lease.owner == LeaseOwner.UPGRADE else None
    operation = record.operation if upgrade and record else None
    state = record.state if record and record.state else facts.state
    away = facts.obscure or (lease is not None and operation not in FREE)
    failed = UpgradeState.UPGRADE_FAILED
    return msgspec.structs.replace(
        facts,
        upgrade=upgrade,
        operation=operation,
        leased_away=away,
        failed=state == failed,
        unavailable=facts.cordoned or not facts.ready or away or failed in (state, facts.state),
    )


def _read(kind: type[NodeLease] | type[NodeRecord], value: Any) -> Any:
    try:
        return decode(kind, _text(value).encode()) if value else None
    except MalformedMessage:
        return None


class NodeHistory:
    """One Node object from its creation to its end."""

    def __init__(self, uid: str, name: str, *, whole: bool) -> None:
        self.uid = uid
        self.name = name
        self.is_complete = whole
        """Whether all of it is known: it was created in this journal, or is in its start."""
        self.labels: dict[str, str] = {}
        """At the start of the journal; later ones are in its changes."""
        self.writers: dict[str, str] = {}
        """By path: the manager who changed it last."""
        self.cordoned_by_others: bool | None = None
        """At the start of the journal; None: it was not there, or nobody knows."""
        self.was_ours = False
        """Whether the scheduler owned a field of it at the start."""
        self._places: list[int] = []
        self._facts: list[ReplayedNode] = []

    @property
    def latest(self) -> ReplayedNode:
        """What it is at the end of what was read."""
        return self._facts[-1] if self._facts else ABSENT

    def append(self, place: int, facts: ReplayedNode) -> None:
        """From this place in the journal on."""
        self._places.append(place)
        self._facts.append(facts)

    def at(self, place: int) -> ReplayedNode:
        """After the revision at this place."""
        found = bisect_right(self._places, place)
        return self._facts[found - 1] if found else ABSENT

    def states(self) -> Iterator[tuple[int, ReplayedNode]]:
        """What it became, and at which place."""
        return zip(self._places, self._facts, strict=True)
