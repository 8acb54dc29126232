"""Whose each node is, as policies and their selectors say it at a moment."""

from collections.abc import Mapping
from typing import Any, Final

from libs.audit.replay.nodes import NodeHistory
from libs.policy.kinds.nvidia_driver import NvidiaDriver
from libs.policy.manifests import ParsedPolicy, parse_manifest
from libs.policy.owners import NodeLabels
from libs.policy.pools import Pool, Pools
from libs.policy.pools import assemble_pools as pools_of
from libs.policy.validation import OWNER_LABEL, PRESENT_LABEL
from libs.policy.verdicts import Acceptance

_ALWAYS: Final = frozenset({OWNER_LABEL, PRESENT_LABEL})


class PoolMembership:
    """Follows policies and nodes; asks the policy library who has whom."""

    def __init__(self) -> None:
        self._reads: dict[tuple[str, str], ParsedPolicy] = {}
        self._nodes: dict[str, NodeLabels] = {}
        self._owners: dict[str, str] = {}
        self._selects = _ALWAYS
        self._in_conflict = False

    def pool_of(self, name: str) -> str:
        """The key of the pool of a node; empty where there is none."""
        return self._owners.get(name, "")

    def update_policy(
        self, kind: str, name: str, whole: Mapping[str, Any] | None
    ) -> tuple[Pool, ...]:
        """A policy or a strategy is this now: all pools that there are."""
        if whole is None:
            self._reads.pop((kind, name), None)
        else:
            self._reads[kind, name] = parse_manifest(kind, whole)
        self._selects = _ALWAYS | {
            key
            for one in self._reads.values()
            if isinstance(one.policy, NvidiaDriver)
            for key in one.policy.spec.node_selector
        }
        return self._all().pools

    @property
    def has_policies(self) -> bool:
        """Whether there is any policy to say it."""
        return bool(self._reads)

    def node_deleted(self, life: NodeHistory) -> bool:
        """A node is gone: whether others may have changed hands by it."""
        known = self._nodes.get(life.name)
        if known is None or known.uid != life.uid:
            return False
        del self._nodes[life.name]
        self._owners.pop(life.name, None)
        if not self._in_conflict:
            return False
        self._all()
        return True

    def node_relabelled(self, life: NodeHistory, labels: Mapping[str, str | None]) -> bool:
        """A node came, or has other labels: whether others may have changed hands by it."""
        known = self._nodes.get(life.name)
        came = known is None or known.uid != life.uid
        if not (came or labels):
            return False
        had = known.labels if known and not came else life.labels
        now = {key: value for key, value in {**had, **labels}.items() if value is not None}
        node = self._nodes[life.name] = NodeLabels(name=life.name, uid=life.uid, labels=now)
        if not self._reads or not (came or self._selects & labels.keys()):
            return False
        if not self._in_conflict:
            found = pools_of(self._reads.values(), [node])
            if not _in_conflict(found):
                self._owners.pop(life.name, None)
                self._owners.update(found.owners)
                return False
        self._all()
        return True

    def _all(self) -> Pools:
        found = pools_of(self._reads.values(), self._nodes.values())
        self._owners = dict(found.owners)
        self._in_conflict = _in_conflict(found)
        return found


def _in_conflict(found: Pools) -> bool:
    return any(told.acceptance is Acceptance.CONFLICTING for told in found.verdicts)
