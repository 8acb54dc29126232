"""The pool of each node by the policies and their selectors."""

from collections.abc import Mapping
from typing import Any

from libs.audit.nodes import NodeHistory
from libs.policy.findings import Acceptance
from libs.policy.kinds.nvidia_driver import NvidiaDriver
from libs.policy.manifests import ParsedPolicy, parse_manifest
from libs.policy.owners import POOL_LABELS, NodeLabels, selecting_labels
from libs.policy.pool import Pool, Pools
from libs.policy.pools import assemble_pools


class PoolMembership:
    """Tracks policies and nodes, and assigns nodes to pools with the policy library."""

    def __init__(self) -> None:
        self._policies: dict[tuple[str, str], ParsedPolicy] = {}
        self._nodes: dict[str, NodeLabels] = {}
        self._owners: dict[str, str] = {}
        self._selecting_labels = POOL_LABELS
        self._in_conflict = False

    def pool_of(self, name: str) -> str:
        """Return the key of a node's pool; empty where it has none."""
        return self._owners.get(name, "")

    def update_policy(
        self, kind: str, name: str, manifest: Mapping[str, Any] | None
    ) -> tuple[Pool, ...]:
        """Replace or remove a policy or a strategy, and return all pools."""
        if manifest is None:
            self._policies.pop((kind, name), None)
        else:
            self._policies[kind, name] = parse_manifest(kind, manifest)
        self._selecting_labels = POOL_LABELS | {
            key
            for parsed in self._policies.values()
            if isinstance(parsed.policy, NvidiaDriver)
            for key in selecting_labels(parsed.policy)
        }
        return self._assign_all().pools

    @property
    def has_policies(self) -> bool:
        return bool(self._policies)

    def delete_node(self, history: NodeHistory) -> bool:
        """Remove a node, and report whether the pools of other nodes may have changed."""
        known = self._nodes.get(history.name)
        if known is None or known.uid != history.uid:
            return False
        del self._nodes[history.name]
        self._owners.pop(history.name, None)
        if not self._in_conflict:
            return False
        self._assign_all()
        return True

    def update_node(self, history: NodeHistory, labels: Mapping[str, str | None]) -> bool:
        """Add a node or change its labels, and report whether other pools may have changed."""
        known = self._nodes.get(history.name)
        is_new = known is None or known.uid != history.uid
        if not (is_new or labels):
            return False
        before = known.labels if known and not is_new else history.labels
        updated = {key: value for key, value in {**before, **labels}.items() if value is not None}
        node = NodeLabels(name=history.name, uid=history.uid, labels=updated)
        self._nodes[history.name] = node
        if not self._policies or not (is_new or self._selecting_labels & labels.keys()):
            return False
        if not self._in_conflict:
            pools = assemble_pools(self._policies.values(), [node])
            if not _in_conflict(pools):
                self._owners.pop(history.name, None)
                self._owners.update(pools.owners)
                return False
        self._assign_all()
        return True

    def _assign_all(self) -> Pools:
        pools = assemble_pools(self._policies.values(), self._nodes.values())
        self._owners = dict(pools.owners)
        self._in_conflict = _in_conflict(pools)
        return pools


def _in_conflict(pools: Pools) -> bool:
    return any(verdict.acceptance is Acceptance.CONFLICTING for verdict in pools.verdicts)
