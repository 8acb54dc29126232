"""I4, all other fields: what somebody else wrote last, we change only where we are meant to.

The takeovers: requests to us are cleared; a state of `upgrade-required` is a request too; an edit
of our state or driver label is taken back once in an attempt; a state that the GPU Operator left is
adopted. A node whose record was lost is not ours until a person asks us to adopt or forget it.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from libs.audit.checks.case import AuditCase, write_violation
from libs.audit.findings import AuditFinding
from libs.audit.replay.changes import NodeChange
from libs.audit.replay.nodes import (
    DRIVER,
    INITIALLY_CORDONED,
    LEASE,
    RECORD,
    REQUEST,
    STATE,
    UNSCHEDULABLE,
)
from libs.audit.replay.timeline import OURS
from libs.contracts.journal import Verb
from libs.contracts.node import (
    MANAGER,
    REQUESTED_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    NodeRequest,
    UpgradeState,
)
from libs.contracts.paths import annotation_path, metadata_key

_REQUESTS: Final = frozenset(
    {REQUEST, annotation_path(REQUESTED_ANNOTATION), annotation_path(SAFE_LOAD_ANNOTATION)}
)
_ELSEWHERE: Final = frozenset({UNSCHEDULABLE, LEASE, RECORD, INITIALLY_CORDONED})
"""Judged elsewhere, or shared with the GPU Operator by design."""

_SIGNS: Final = frozenset({STATE, DRIVER, LEASE, RECORD})
_OWNED: Final = frozenset({NodeRequest.ADOPT.value, NodeRequest.FORGET.value})

INCUMBENTS: Final = frozenset({"gpu-operator", "k8s-driver-manager", "nfd-master", "nfd-worker"})
"""Whose labels our services take over when a cluster is moved to us."""
_INHERITED: Final = ("nvidia.com/", "feature.node.kubernetes.io/")


class _Node(msgspec.Struct):
    """What of a node's past decides whether we may."""

    known: bool = False
    """Whether it ever was ours."""
    lost: bool = False
    signs: set[str] = set()
    """Paths that carry what we wrote there last; of one that was ours from the start, all."""
    garbled: bool = False
    """Whether there is a record that cannot be read."""
    edits: dict[tuple[int, bool], list[int]] = {}
    """By token, and whether it was in flight: where we took an edit back."""


def foreign_fields(case: AuditCase) -> Iterator[AuditFinding]:
    """Each path of each write of ours."""
    nodes: dict[str, _Node] = {}
    for change in case.timeline.changes:
        uid = change.node.uid
        node = nodes.get(uid)
        if node is None:
            signed = change.node.was_ours
            node = nodes[uid] = _Node(known=signed, signs=set(_SIGNS) if signed else set())
        for message in _messages(change, node):
            yield write_violation("I4", change, f"{change.node.name}: {message}")
        _sign(change, node)
        node.lost = (node.lost or change.record_lost) and _bears_signs(change, node)


def _sign(change: NodeChange, node: _Node) -> None:
    """Who wrote last what is on it now."""
    for path in _SIGNS & change.revision.changed.keys():
        value = change.revision.changed[path][1]
        if change.ours and value:
            node.signs.add(path)
        else:
            node.signs.discard(path)
        if path == RECORD:
            node.garbled = bool(value) and change.after.record is None


def _bears_signs(change: NodeChange, node: _Node) -> bool:
    """Whether anything on it says that it was ours; if nothing does, it is like a new one."""
    if change.after.upgrade is not None or node.signs - {DRIVER}:
        return True
    return DRIVER in node.signs and (node.garbled or bool(change.after.state))


def _messages(change: NodeChange, node: _Node) -> Iterator[str]:
    manager = change.revision.manager
    if change.ours:
        yield from _form(change)
        yield from _of_lost(change, node)
        for path, last in change.over.items():
            if last is None or last == MANAGER or path in _ELSEWHERE:
                continue
            rule = _RULES.get(path, _refuse)
            if problem := rule(change, node, path):
                yield f"{path}, which {last} wrote, {problem}"
        node.known = True
    elif manager.startswith(OURS):
        for path, last in change.over.items():
            if last is not None and last != manager and not _inherits(path, last):
                yield f"{manager} changed {path}, which {last} wrote"


def _form(change: NodeChange) -> Iterator[str]:
    revision = change.revision
    if revision.code == 201:
        yield "it was created by us: an apply must name the uid of the Node that it means"
    elif revision.verb != Verb.APPLY:
        yield f"we wrote it by {revision.verb}, and not by an apply, which alone keeps ownership"


def _of_lost(change: NodeChange, node: _Node) -> Iterator[str]:
    if change.before.request in _OWNED:
        node.lost = False
    elif node.lost:
        yield "we wrote it, though its record is lost and nobody asked us to adopt or forget it"


def _refuse(change: NodeChange, _: _Node, path: str) -> str:
    before, after = change.revision.changed[path]
    return f"went from {before!r} to {after!r}"


def _request(change: NodeChange, _: _Node, path: str) -> str:
    after = change.revision.changed[path][1]
    return f"was set to {after!r}" if after else ""


def _state(change: NodeChange, node: _Node, _: str) -> str:
    before = change.before
    asked = before.state == UpgradeState.UPGRADE_REQUIRED or before.request in _OWNED
    if asked or not node.known or before.record is None:
        return ""
    # Who puts it right again himself has edited nothing that is left.
    return _edit(change, node) if before.state != before.record.state else ""


def _driver(change: NodeChange, node: _Node, _: str) -> str:
    before = change.before
    in_flight = before.upgrade is not None and before.record is not None and before.record.started
    return _edit(change, node) if in_flight else ""


def _edit(change: NodeChange, node: _Node) -> str:
    token = change.before.record.token if change.before.record else 0
    places = node.edits.setdefault((token, change.before.upgrade is not None), [])
    if change.position not in places:  # one write may take back several at once
        places.append(change.position)
    return "was taken back for the second time in one attempt" if len(places) == 2 else ""


_RULES: Final[dict[str, Callable[[NodeChange, _Node, str], str]]] = {
    STATE: _state,
    DRIVER: _driver,
    **dict.fromkeys(_REQUESTS, _request),
}


def _inherits(path: str, last: str) -> bool:
    found = metadata_key(path)
    return found is not None and last in INCUMBENTS and found[1].startswith(_INHERITED)
