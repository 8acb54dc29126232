"""What a journal tells, item by item: changes of Nodes, editions of what stands beside them."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from libs.audit.replay.nodes import NodeHistory, ReplayedNode
from libs.contracts.journal import Revision
from libs.contracts.node import MANAGER, NodeLease
from libs.contracts.rollout import TargetRecord


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """A granted write to a Node that made it another one for the audit, or was our own."""

    position: int
    revision: Revision
    node: NodeHistory
    before: ReplayedNode
    after: ReplayedNode
    labels: Mapping[str, str | None] = {}
    """Labels that changed, and what they are now."""
    over: Mapping[str, str | None] = {}
    """Of a write of ours: the paths, and who had changed each last; None: nobody knows."""
    ours: bool = False
    """Whether the scheduler wrote it."""
    lease_ended: NodeLease | None = None
    """The upgrade's lease that ended with it."""
    lease_taken: NodeLease | None = None
    """The upgrade's lease that began with it."""
    label_moved: bool = False
    """Whether the driver label is another one."""
    new_state: str | None = None
    """The state, if it is another one."""
    record_lost: bool = False
    """Whether somebody else took its record away, or garbled it."""

    @classmethod
    def of(
        cls, position: int, revision: Revision, node: NodeHistory, after: ReplayedNode, **paths: Any
    ) -> "NodeChange":
        """What follows from the Node as it was so far."""
        before = node.latest
        held, lease = before.upgrade, after.upgrade
        return cls(
            position=position,
            revision=revision,
            node=node,
            before=before,
            after=after,
            ours=revision.manager == MANAGER,
            lease_ended=held if held != after.lease else None,
            lease_taken=lease if held is None else None,
            label_moved=before.driver != after.driver,
            new_state=after.state if after.state != before.state else None,
            record_lost=_is_lost(before, after) and revision.manager != MANAGER,
            **paths,
        )


def _is_lost(before: ReplayedNode, after: ReplayedNode) -> bool:
    return before.record is not None and after.record is None and after.exists


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A write to a policy or a strategy: the object is this now."""

    position: int
    time: float
    kind: str
    name: str
    whole: Mapping[str, Any] | None
    """None: it is gone."""


class RolloutWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write to a Rollout: of what it says now, as much as the audit asks for."""

    position: int
    time: float
    pool: str
    exists: bool = True
    release: tuple[str, int] = ("", 0)
    """The target whose halt a person ended, and how many failures he accepts."""
    base: int = 0
    targets: frozenset[str] = frozenset()
    """Every one that it knows."""
    begun: Mapping[str, TargetRecord] = {}
    """What it knows of them; only at the start, where nothing else can tell."""
    revision: Revision | None = None
    """None: it was so at the start."""


class PodHistory(msgspec.Struct, kw_only=True):
    """What the audit asks of a pod."""

    name: str
    deletion: Revision | None = None


def rollout_write(
    place: int, time: float, name: str, whole: Mapping[str, Any], revision: Revision | None
) -> RolloutWrite:
    """Read from the whole object; an empty one is gone."""
    status, release = _map(whole, "status"), _map(_map(whole, "spec"), "release")
    targets = _map(status, "targets")
    begun = {} if revision else msgspec.convert(targets, dict[str, TargetRecord])
    return RolloutWrite(
        position=place,
        time=time,
        pool=name,
        exists=bool(whole),
        release=(release.get("target", ""), release.get("failures", 0)),
        base=status.get("base") or 0,
        targets=frozenset(targets),
        begun=begun,
        revision=revision,
    )


def _map(whole: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = whole.get(key)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
