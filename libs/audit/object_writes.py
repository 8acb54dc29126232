"""Writes to the objects that steer the nodes: policies, strategies and Rollouts."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from libs.audit.nodes import as_map
from libs.contracts.journal import Revision
from libs.contracts.paths import segments
from libs.contracts.rollout import TargetRecord

_IN_FLIGHT: Final = ("status", "inFlight")


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A write to a policy or a strategy."""

    position: int
    time: float
    kind: str
    name: str
    manifest: Mapping[str, Any] | None
    """The new object; None where it was deleted."""


class Grant(NamedTuple):
    """An entry in flight in a Rollout."""

    token: int
    target: str


class RolloutWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write to a Rollout, with the part of the new object that the audit needs."""

    position: int
    time: float
    pool: str
    exists: bool
    release: tuple[str, int]
    """The target that a person released from its halt, and the number of failures accepted."""
    base: int
    grants: Mapping[str, Grant]
    """The entries in flight in its status, by node uid."""
    shown: frozenset[str] | None = None
    """The node uids whose entries the journal shows, where it began after the Rollout: other nodes
    may have an entry, too. None: all are shown."""
    targets: frozenset[str]
    """The targets in its status."""
    vanished: frozenset[str] = frozenset()
    """Those of which it names vanished nodes."""
    completed: frozenset[str] = frozenset()
    """Those of which it says that all nodes have them."""
    initial_records: Mapping[str, TargetRecord]
    """The records of the targets; only at the start of the journal, which has no other source."""
    revision: Revision | None
    """None at the start of the journal."""


def rollout_write(
    position: int,
    time: float,
    name: str,
    manifest: Mapping[str, Any],
    revision: Revision | None,
    *,
    shown: frozenset[str] | None,
) -> RolloutWrite:
    """Decode a write from the whole object; an empty one was deleted."""
    status, spec = as_map(manifest.get("status")), as_map(manifest.get("spec"))
    release, targets = as_map(spec.get("release")), as_map(status.get("targets"))
    return RolloutWrite(
        position=position,
        time=time,
        pool=name,
        exists=bool(manifest),
        release=(release.get("target", ""), release.get("failures", 0)),
        base=status.get("base") or 0,
        grants={
            uid: Grant(as_map(entry).get("token", 0), as_map(entry).get("target", ""))
            for uid, entry in as_map(status.get("inFlight")).items()
        },
        shown=shown,
        targets=frozenset(targets),
        vanished=frozenset(
            target for target, record in targets.items() if as_map(record).get("vanished")
        ),
        completed=frozenset(
            target for target, record in targets.items() if as_map(record).get("complete")
        ),
        initial_records={} if revision else msgspec.convert(targets, dict[str, TargetRecord]),
        revision=revision,
    )


def shown_entries(revision: Revision) -> Iterator[str]:
    """Yield the node uids whose entries in flight a write to a Rollout added or removed."""
    for path, (before, after) in revision.changed.items():
        parts = segments(path)
        if parts[:2] == _IN_FLIGHT and parts[3:] == ("token",) and None in (before, after):
            yield str(parts[2])
