"""The state of a Node at one moment, and its history.

States are decoded from labels, annotations and status. As in the engine, a lease or a record of
another node uid counts as none.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import (
    MANAGER,
    LeaseOwner,
    NodeLease,
    NodeRecord,
    Operation,
    UpgradeState,
)
from libs.contracts.paths import (
    BOOT,
    CORDON,
    DRIVER,
    INITIALLY_CORDONED,
    KEEP_CORDONED,
    KERNEL,
    LEASE,
    LEASE_CLAIM,
    READY,
    RECORD,
    REQUEST,
    STATE,
    leaves,
    metadata_key,
)

ENGINE_OWNERS: Final = frozenset({LeaseOwner.UPGRADE, LeaseOwner.MIG})
"""The owners of leases that the scheduler takes and ends."""

FREE: Final = frozenset({Operation.BRING_UP, Operation.VALIDATE})
"""Operations that keep the node available: it had no driver, or its driver keeps running."""


class ReplayedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A Node at one moment; the fields below the blank line are derived from those above."""

    exists: bool = True
    cordoned: bool = False
    ready: bool = True
    """True also where the condition is missing."""
    boot_id: str = ""
    kernel: str = ""
    state: str = ""
    driver: str = ""
    lease: NodeLease | None = None
    has_malformed_lease: bool = False
    claim: NodeLease | None = None
    """The lease that a person waits for; from the end of another on, it is the node's."""
    has_malformed_claim: bool = False
    record: NodeRecord | None = None
    request: str = ""
    keeps_cordon: bool = False
    initially_cordoned: bool = False

    held_by: NodeLease | None = None
    """The lease of another owner: of a person, also a claim that no operation holds up."""
    upgrade: NodeLease | None = None
    """The lease, where its owner is an upgrade."""
    operation: Operation | None = None
    """The operation under that lease."""
    leased_away: bool = False
    """Whether a lease makes the node unavailable; a malformed one and a claim do."""
    failed: bool = False
    """From the state in the record, if there is a record: people may edit the label."""
    unavailable: bool = False
    """By the definition in docs/states.md, except for gates, which no revision shows."""

    @property
    def pool(self) -> str:
        """The pool named by the record."""
        return self.record.pool if self.record else ""


ABSENT: Final = ReplayedNode(exists=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_SIMPLE_FIELDS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    CORDON: ("cordoned", bool),
    READY: ("ready", lambda value: value is None or value == "True"),
    BOOT: ("boot_id", _text),
    KERNEL: ("kernel", _text),
    STATE: ("state", _text),
    DRIVER: ("driver", _text),
    REQUEST: ("request", _text),
    KEEP_CORDONED: ("keeps_cordon", lambda value: value == "true"),
    INITIALLY_CORDONED: ("initially_cordoned", lambda value: value == "true"),
}
TRACKED_PATHS: Final = frozenset({*_SIMPLE_FIELDS, LEASE, LEASE_CLAIM, RECORD})
"""The paths of the values that make up a `ReplayedNode`."""


def state_after(before: ReplayedNode, uid: str, changed: dict[str, Any]) -> ReplayedNode:
    """Return the state after these paths took these values; only `TRACKED_PATHS` count."""
    updates: dict[str, Any] = {}
    for path, value in changed.items():
        if path in _SIMPLE_FIELDS:
            name, read = _SIMPLE_FIELDS[path]
            updates[name] = read(value)
        elif path == LEASE:
            lease = _decode(NodeLease, value)
            updates["lease"] = lease if lease and lease.node_uid == uid else None
            updates["has_malformed_lease"] = bool(value) and lease is None
        elif path == LEASE_CLAIM:
            claim = _decode(NodeLease, value)
            updates["claim"] = claim if claim and claim.node_uid == uid else None
            updates["has_malformed_claim"] = bool(value) and claim is None
        elif path == RECORD:
            record = _decode(NodeRecord, value)
            updates["record"] = record if record and record.node_uid == uid else None
    if all(getattr(before, name) == value for name, value in updates.items()):
        return before
    return _derive(msgspec.structs.replace(before, **updates))


def _derive(node: ReplayedNode) -> ReplayedNode:
    lease, record = node.lease, node.record
    upgrade = lease if lease and lease.owner in ENGINE_OWNERS else None
    operation = record.operation if upgrade and record else None
    state = record.state if record and record.state else node.state
    foreign = lease if lease is not upgrade else node.claim if upgrade is None else None
    claimed = node.claim is not None or node.has_malformed_claim
    leased_away = bool(
        node.has_malformed_lease or foreign or claimed or (upgrade and operation not in FREE)
    )
    failed = UpgradeState.UPGRADE_FAILED
    return msgspec.structs.replace(
        node,
        held_by=foreign,
        upgrade=upgrade,
        operation=operation,
        leased_away=leased_away,
        failed=state == failed,
        unavailable=(
            node.cordoned or not node.ready or leased_away or failed in (state, node.state)
        ),
    )


def _decode(kind: type[NodeLease] | type[NodeRecord], value: Any) -> Any:
    try:
        return decode(kind, _text(value).encode()) if value else None
    except MalformedMessage:
        return None


Value = TypeVar("Value")


class Series(Generic[Value]):
    """Values in the order of their positions; each holds until the next one.

    The default holds before the first one.
    """

    def __init__(self, default: Value) -> None:
        self._default = default
        self._positions: list[int] = []
        self._values: list[Value] = []

    @property
    def latest(self) -> Value:
        """The value that was appended last."""
        return self._values[-1] if self._values else self._default

    def append(self, position: int, value: Value) -> None:
        self._positions.append(position)
        self._values.append(value)

    def append_newer(self, position: int, value: Value) -> None:
        """Append a value, unless its position is not after the last one."""
        if not self._positions or position > self._positions[-1]:
            self.append(position, value)

    def at(self, position: int) -> Value:
        """Return the value that holds after a position."""
        count = bisect_right(self._positions, position)
        return self._values[count - 1] if count else self._default

    def first_after(self, position: int) -> tuple[int, Value] | None:
        """Return the first item after a position."""
        index = bisect_right(self._positions, position)
        return (self._positions[index], self._values[index]) if index < len(self._values) else None

    def items(self) -> Iterator[tuple[int, Value]]:
        return zip(self._positions, self._values, strict=True)

    def between(self, after: int, until: int) -> Iterator[tuple[int, Value]]:
        """Return positions and values from after one position up to another."""
        part = slice(bisect_right(self._positions, after), bisect_right(self._positions, until))
        return zip(self._positions[part], self._values[part], strict=True)


class NodeHistory(Series[ReplayedNode]):
    """The states of one Node object from its creation to its end."""

    def __init__(self, uid: str, name: str, *, is_complete: bool) -> None:
        """`is_complete`: the creation is in the journal, or the whole object in its start."""
        super().__init__(ABSENT)
        self.uid = uid
        self.name = name
        self.is_complete = is_complete
        self.labels: dict[str, str] = {}
        """The labels at the start of the journal."""
        self.last_writers: dict[str, str] = {}
        """The manager that changed each path last."""
        self.cordoned_by_others: bool | None = None
        """At the start of the journal; None where it is unknown or the node did not exist."""
        self.was_ours = False
        """Whether the scheduler owned a field at the start of the journal."""


_SECTIONS: Final = ("metadata", "spec", "status")


def initial_history(manifest: Mapping[str, Any], uid: str, name: str) -> NodeHistory:
    """Return the history of a Node that existed before the journal begins.

    The managedFields name the owners of its fields. A Node without them has no known owners, so
    none of its fields counts as foreign.
    """
    history = NodeHistory(uid, name, is_complete=True)
    values = dict(leaves({key: as_map(manifest.get(key)) for key in _SECTIONS}))
    for condition in as_map(manifest.get("status")).get("conditions") or ():
        if condition.get("type") == "Ready":
            values[READY] = condition.get("status")
    tracked = {path: value for path, value in values.items() if path in TRACKED_PATHS}
    history.append(-1, state_after(ReplayedNode(), uid, tracked))
    for path, value in values.items():
        if (entry := metadata_key(path)) and entry[0] == "labels":
            history.labels[entry[1]] = value
    owners = _owners(as_map(manifest.get("metadata")).get("managedFields") or ())
    for path, managers in owners.items():
        # A field that others co-own is foreign: the server would keep it for them.
        history.last_writers[path] = next((name for name in managers if name != MANAGER), MANAGER)
    history.was_ours = any(MANAGER in managers for managers in owners.values())
    if owners:
        cordon_owner = history.last_writers.get(CORDON)
        history.cordoned_by_others = bool(values.get(CORDON)) and cordon_owner != MANAGER
    return history


def _owners(managed_fields: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    owners: dict[str, list[str]] = {}
    for entry in managed_fields:
        for path, _ in leaves(_owned_keys(as_map(entry.get("fieldsV1")))):
            owners.setdefault(path, []).append(entry.get("manager", ""))
    return owners


def _owned_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the owned keys of maps as a tree, without the items of lists."""
    return {
        key.removeprefix("f:"): _owned_keys(as_map(subtree))
        for key, subtree in fields.items()
        if key.startswith("f:")
    }


def as_map(value: Any) -> Mapping[str, Any]:
    """Return a map unchanged, and an empty map for any other value."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
