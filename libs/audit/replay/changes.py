"""The items of a replayed journal: changes of Nodes, policies, Rollouts and pods."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from libs.audit.replay.nodes import NodeHistory, ReplayedNode
from libs.contracts.journal import Revision
from libs.contracts.node import MANAGER, NodeLease
from libs.contracts.rollout import TargetRecord


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """A successful write to a Node that changed its replayed state or labels, or was ours."""

    position: int
    revision: Revision
    node: NodeHistory
    before: ReplayedNode
    after: ReplayedNode
    labels: Mapping[str, str | None] = {}
    """The changed labels with their new values."""
    previous_writers: Mapping[str, str | None] = {}
    """Of a write of ours: the last writer of each path before it; None where it is unknown."""
    ours: bool = False
    """Whether the scheduler is the writer."""
    lease_ended: NodeLease | None = None
    """The lease of an upgrade that the write ended."""
    lease_taken: NodeLease | None = None
    """The lease of an upgrade that began with the write."""
    label_moved: bool = False
    """Whether the driver label changed."""
    new_state: str | None = None
    """The state, where it changed."""
    record_lost: bool = False
    """Whether another writer removed the record or made it malformed."""

    @classmethod
    def of(
        cls, position: int, revision: Revision, node: NodeHistory, after: ReplayedNode, **paths: Any
    ) -> "NodeChange":
        before = node.latest
        lease_before, lease_after = before.upgrade, after.upgrade
        return cls(
            position=position,
            revision=revision,
            node=node,
            before=before,
            after=after,
            ours=revision.manager == MANAGER,
            lease_ended=lease_before if lease_before != after.lease else None,
            lease_taken=lease_after if lease_before is None else None,
            label_moved=before.driver != after.driver,
            new_state=after.state if after.state != before.state else None,
            record_lost=(
                before.record is not None
                and after.record is None
                and after.exists
                and revision.manager != MANAGER
            ),
            **paths,
        )


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A write to a policy or a strategy."""

    position: int
    time: float
    kind: str
    name: str
    manifest: Mapping[str, Any] | None
    """The new object; None where it was deleted."""


class RolloutWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write to a Rollout, with the part of the new object that the audit needs."""

    position: int
    time: float
    pool: str
    exists: bool = True
    release: tuple[str, int] = ("", 0)
    """The target that a person released from its halt, and the number of failures accepted."""
    base: int = 0
    targets: frozenset[str] = frozenset()
    """The targets in its status."""
    initial_records: Mapping[str, TargetRecord] = {}
    """The records of the targets; only at the start of the journal, which has no other source."""
    revision: Revision | None = None
    """None at the start of the journal."""


class PodHistory(msgspec.Struct, kw_only=True):
    name: str
    deletion: Revision | None = None


def rollout_write(
    position: int, time: float, name: str, manifest: Mapping[str, Any], revision: Revision | None
) -> RolloutWrite:
    """Decode a write from the whole object; an empty one was deleted."""
    status, release = (
        as_map(manifest.get("status")),
        as_map(as_map(manifest.get("spec")).get("release")),
    )
    targets = as_map(status.get("targets"))
    return RolloutWrite(
        position=position,
        time=time,
        pool=name,
        exists=bool(manifest),
        release=(release.get("target", ""), release.get("failures", 0)),
        base=status.get("base") or 0,
        targets=frozenset(targets),
        initial_records={} if revision else msgspec.convert(targets, dict[str, TargetRecord]),
        revision=revision,
    )


def as_map(value: Any) -> Mapping[str, Any]:
    """Return a map as it is, and anything else as an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
