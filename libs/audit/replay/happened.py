"""What a journal tells, item by item: changes of Nodes, editions of what stands beside them."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from libs.audit.replay.nodes import Facts, Life
from libs.contracts.journal import Revision
from libs.contracts.node import MANAGER, Lease
from libs.contracts.rollout import TargetRecord


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A granted write to a Node that made it another one for the audit, or was our own."""

    place: int
    revision: Revision
    node: Life
    before: Facts
    after: Facts
    labels: Mapping[str, str | None] = {}
    """Labels that changed, and what they are now."""
    over: Mapping[str, str | None] = {}
    """Of a write of ours: the paths, and who had changed each last; None: nobody knows."""
    ours: bool = False
    """Whether the scheduler wrote it."""
    ended: Lease | None = None
    """The upgrade's lease that ended with it."""
    taken: Lease | None = None
    """The upgrade's lease that began with it."""
    moved: bool = False
    """Whether the driver label is another one."""
    shows: str | None = None
    """The state, if it is another one."""
    lost: bool = False
    """Whether somebody else took its record away, or garbled it."""

    @classmethod
    def of(cls, place: int, revision: Revision, node: Life, after: Facts, **paths: Any) -> "Change":
        """What follows from the Node as it was so far."""
        before = node.facts
        held, lease = before.upgrade, after.upgrade
        return cls(
            place=place,
            revision=revision,
            node=node,
            before=before,
            after=after,
            ours=revision.manager == MANAGER,
            ended=held if held != after.lease else None,
            taken=lease if held is None else None,
            moved=before.driver != after.driver,
            shows=after.state if after.state != before.state else None,
            lost=_is_lost(before, after) and revision.manager != MANAGER,
            **paths,
        )


def _is_lost(before: Facts, after: Facts) -> bool:
    return before.record is not None and after.record is None and after.exists


class Edition(msgspec.Struct, frozen=True, kw_only=True):
    """A write to a policy or a strategy: the object is this now."""

    place: int
    time: float
    kind: str
    name: str
    whole: Mapping[str, Any] | None
    """None: it is gone."""


class RolloutEdition(msgspec.Struct, frozen=True, kw_only=True):
    """A write to a Rollout: of what it says now, as much as the audit asks for."""

    place: int
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


class Pod(msgspec.Struct, kw_only=True):
    """What the audit asks of a pod."""

    name: str
    gone: Revision | None = None


def rollout_edition(
    place: int, time: float, name: str, whole: Mapping[str, Any], revision: Revision | None
) -> RolloutEdition:
    """Read from the whole object; an empty one is gone."""
    status, release = _map(whole, "status"), _map(_map(whole, "spec"), "release")
    targets = _map(status, "targets")
    begun = {} if revision else msgspec.convert(targets, dict[str, TargetRecord])
    return RolloutEdition(
        place=place,
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
