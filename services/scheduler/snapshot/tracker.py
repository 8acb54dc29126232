"""Track which nodes and pools changed, and build their views when they are asked for."""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage
from libs.contracts.node import DRIVER_LABEL
from libs.contracts.reports import Preflight, Report, StateKind
from libs.contracts.subjects import State
from libs.policy.artefacts import CONFIG_MAP, NO_ARTEFACTS, Artefacts, parse_artefacts
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.runtime.subscriptions import join_subscriptions
from services.scheduler.inputs import Inputs
from services.scheduler.node_state import NodeStates
from services.scheduler.pod_cache import FollowedNodes
from services.scheduler.resources import ConfigMap, DaemonSet, Node, Pod, ResourceClaim, Rollout
from services.scheduler.snapshot.absent_nodes import AbsentNodes
from services.scheduler.snapshot.node_view import (
    is_tracked,
    pool_member,
    rollout_view,
    selectable_labels,
)
from services.scheduler.snapshot.node_views import NodeViews
from services.scheduler.snapshot.pools import (
    PolicyReader,
    PoolSnapshot,
    snapshot_pools,
)
from services.scheduler.snapshot.reports import is_read


class SnapshotChanges(NamedTuple):
    """What changed, as `Decider.update` takes it."""

    nodes: tuple[NodeView, ...]
    nodes_gone: tuple[str, ...]
    pools: tuple[PoolView, ...]
    pools_gone: tuple[str, ...]


class SnapshotTracker:
    """The snapshot of one leader: changes mark nodes and pools, `changes` builds their views."""

    def __init__(self, inputs: Inputs, node_states: NodeStates) -> None:
        self._inputs = inputs
        self._informers = inputs.informers
        self._reports = inputs.reports
        self._heartbeats = inputs.heartbeats
        self._clock = inputs.env.clock
        self._node_states = node_states
        self._policy_reader = PolicyReader()
        self._node_views = NodeViews(inputs, node_states)
        self._followed = FollowedNodes(pod_cache=inputs.pod_cache, node_states=node_states)
        self.nodes: dict[str, NodeView] = {}
        """The views that `changes` returned last, by name."""
        self.pools: dict[str, PoolView] = {}
        self.pool_snapshot = PoolSnapshot()
        self.to_purge: set[str] = set()
        """Deleted nodes whose slots and reports remain on the bus."""
        self._absent_nodes = AbsentNodes(inputs)
        self._dirty: set[str] = set()
        self._dirty_pools: set[str] = set()
        self._pools_stale = True
        """Whether policies, labels or DaemonSets have changed since `pool_snapshot`."""
        self._silent: dict[str, frozenset[str]] = {}

    def subscribe(self) -> Callable[[], None]:
        """Track changes until the returned function is called."""
        informers = self._informers
        subscriptions = (
            informers.nodes.cache.on_change(self._node_changed),
            informers.driver_pods.cache.on_change(self._pod_changed),
            informers.other_pods.cache.on_change(self._pod_changed),
            informers.resource_claims.cache.on_change(self._claim_changed),
            informers.config_maps.cache.on_change(self._config_map_changed),
            informers.daemon_sets.cache.on_change(self._daemon_set_changed),
            informers.rollouts.cache.on_change(self._rollout_changed),
            *(each.cache.on_change(self._policy_changed) for each in informers.policies.values()),
            informers.gpu_clusters.cache.on_change(self._policy_changed),
            self._reports.on_change(self._report_changed),
            self._heartbeats.on_change(lambda _before, beat: self.mark_node(beat.node)),
        )
        self._dirty.update(node.metadata.name for node in informers.nodes)
        return join_subscriptions(*subscriptions)

    # Marks.

    def mark_node(self, name: str) -> None:
        self._dirty.add(name)
        self._inputs.wake_signal.notify()

    def mark_pool(self, key: str) -> None:
        self._dirty_pools.add(key)
        self._inputs.wake_signal.notify()

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        node = after or before
        if node is None:
            return
        if before is None or after is None or selectable_labels(before) != selectable_labels(after):
            self._pools_stale = True
        elif DRIVER_LABEL in after.metadata.labels:
            self._pools_stale |= not self._has_build(after.label(DRIVER_LABEL))
        if after is None or (before is not None and before.metadata.uid != after.metadata.uid):
            self.to_purge.add(node.metadata.name)
        self.mark_node(node.metadata.name)

    def _has_build(self, label: str) -> bool:
        return any(
            build.label == label
            for pool in self.pool_snapshot.pools.values()
            for builds in pool.builds.values()
            for build in builds.values()
        )

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        for pod in (before, after):
            if pod is not None and pod.spec.node_name:
                self.mark_node(pod.spec.node_name)

    def _claim_changed(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        claim = after or before
        if claim is not None:
            for name in self._node_views.claim_users.of(claim.metadata.key):
                self.mark_node(name)

    def _config_map_changed(self, before: ConfigMap | None, after: ConfigMap | None) -> None:
        config_map = after or before
        if config_map is not None:
            for name in self._node_views.wanted_migs.users_of(config_map.metadata.name):
                self.mark_node(name)
            if config_map.metadata.name == CONFIG_MAP:
                self._pools_stale = True
                self._inputs.wake_signal.notify()

    def _daemon_set_changed(self, before: DaemonSet | None, after: DaemonSet | None) -> None:
        if before is None or after is None or _build_state(before) != _build_state(after):
            self._pools_stale = True
            self._inputs.wake_signal.notify()

    def _rollout_changed(self, before: Rollout | None, after: Rollout | None) -> None:
        rollout = after or before
        if rollout is None:
            return
        if (
            before is None
            or after is None
            or before.status.target != after.status.target
            or rollout.metadata.name not in self.pool_snapshot.pools
        ):
            self._pools_stale = True
        self.mark_pool(rollout.metadata.name)

    def _policy_changed(self, _before: Any, _after: Any) -> None:
        self._pools_stale = True
        self._inputs.wake_signal.notify()

    def _report_changed(self, state: State, _before: Report | None, after: Report | None) -> None:
        if not is_read(state):
            return
        if state.kind == StateKind.PREFLIGHT:
            if state.asker != Writer.SCHEDULER or after is None:
                return
            try:
                answer = after.open()
            except MalformedMessage:
                answer = None
            if isinstance(answer, Preflight):
                self._node_states.record_answer(state.node, answer, at=self._clock.now())
        self.mark_node(state.node)

    def sweep(self) -> None:
        """Mark what changes with time alone: nodes with silent agents, and nodes to purge."""
        self._node_states.retain(self.nodes)
        self._inputs.metrics.set_unreadable(
            sum(len(each.cache.unreadable) for each in self._informers.all())
        )
        self._inputs.metrics.set_node_ahead(self._heartbeats.largest_clock_difference())
        self.to_purge |= self._absent_nodes.find()
        for name in self._silent.keys() - self.nodes.keys():
            del self._silent[name]
        for name, node in self.nodes.items():
            silent = frozenset(
                component
                for component in node.components
                if self._heartbeats.is_silent(name, component)
            )
            if self._silent.get(name, frozenset()) != silent:
                self._silent[name] = silent
                self.mark_node(name)

    def why_unreadable(self, name: str) -> str:
        """Return why the Node cannot be read; empty if it can, or there is none."""
        return self._informers.nodes.cache.unreadable.get(name, "")

    # Views.

    def changes(self) -> SnapshotChanges:
        """Return the views of all nodes and pools that changed since the last call."""
        if self._pools_stale:
            self._snapshot_pools()
        dirty, self._dirty = self._dirty, set()
        nodes: list[NodeView] = []
        nodes_gone: list[str] = []
        for name in sorted(dirty):
            view = self._node_views.of(name, self.pool_snapshot)
            if view is not None:
                nodes.append(view)
                self.nodes[name] = view
            elif self.nodes.pop(name, None) is not None:
                nodes_gone.append(name)
            self._followed.update(name, view)
        pools, pools_gone = self._pool_changes()
        self._followed.follow(self.pools.values())
        return SnapshotChanges(tuple(nodes), tuple(nodes_gone), pools, pools_gone)

    def _snapshot_pools(self) -> None:
        self._pools_stale = False
        informers, before = self._informers, self.pool_snapshot
        policies = {kind: tuple(each) for kind, each in informers.policies.items()}
        self.pool_snapshot = after = snapshot_pools(
            self._policy_reader.read(policies),
            [pool_member(node) for node in informers.nodes if is_tracked(node)],
            tuple(informers.daemon_sets),
            gpu_clusters=[each.metadata.name for each in informers.gpu_clusters],
            artefacts=self._artefacts(),
            rollouts={each.metadata.name: each.status.target for each in informers.rollouts},
            auto_upgrade_set_by={
                (kind, each.metadata.name): each.auto_upgrade_set_by
                for kind, found in policies.items()
                for each in found
            },
        )
        for name in before.assignments.keys() | after.assignments.keys():
            if before.assignments.get(name) != after.assignments.get(name) or (
                before.absent_agents,
                before.with_plugin_configs,
                before.mig,
            ) != (after.absent_agents, after.with_plugin_configs, after.mig):
                self._dirty.add(name)
        for key in before.pools.keys() | after.pools.keys():
            old, new = before.pools.get(key), after.pools.get(key)
            if old != new:
                self._dirty_pools.add(key)
            if old is not None and new is not None and old.upgrade != new.upgrade:
                self._dirty |= self._followed.unsettled

    def _artefacts(self) -> Artefacts:
        """Return what the ConfigMap says of the artefacts of host drivers."""
        key = f"{self._inputs.namespace}/{CONFIG_MAP}"
        config_map = self._informers.config_maps.cache.get(key)
        return NO_ARTEFACTS if config_map is None else parse_artefacts(config_map.data or {})

    def _pool_changes(self) -> tuple[tuple[PoolView, ...], tuple[str, ...]]:
        dirty, self._dirty_pools = self._dirty_pools, set()
        pools: list[PoolView] = []
        gone: list[str] = []
        for key in sorted(dirty):
            view = self.pool_snapshot.pools.get(key)
            if view is None:
                if self.pools.pop(key, None) is not None:
                    gone.append(key)
                continue
            rollout = self._informers.rollouts.cache.get(key)
            if rollout is not None:
                writing = key in self._node_states.writing_rollouts
                view = replace(view, rollout=rollout_view(rollout, writing=writing))
            self.pools[key] = view
            pools.append(view)
        return tuple(pools), tuple(gone)


def _build_state(daemon_set: DaemonSet) -> object:
    metadata = daemon_set.metadata
    return (
        metadata.uid,
        metadata.annotations,
        metadata.labels,
        metadata.deletion_timestamp,
        daemon_set.status.observed_generation >= metadata.generation,
    )
