"""Observe: what is different from when it was asked last, as views of nodes and pools.

It listens to caches, reports, beats and slots, and remembers which nodes and pools each of them
concerns; views are made when they are asked for. Nothing is decided or written here.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from libs.bus.heartbeats import HeartbeatMonitor
from libs.bus.reports import ReportCache
from libs.bus.slot_cache import SlotCache
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage
from libs.contracts.node import DRIVER_LABEL
from libs.contracts.reports import Preflight, Report, StateKind
from libs.contracts.subjects import State
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.runtime.clock import Clock
from services.scheduler.informers import Informers
from services.scheduler.node_state import NodeStates
from services.scheduler.pod_cache import FollowedNodes, PodCache
from services.scheduler.resources import DaemonSet, Node, Pod, Rollout
from services.scheduler.snapshot.node_view import (
    NodeViews,
    is_tracked,
    pool_member,
    rollout_view,
    selectable_labels,
)
from services.scheduler.snapshot.pools import PolicyReader, PoolSnapshot, snapshot_pools

_COUNTS: Final = frozenset(
    {
        (Writer.DRIVER, StateKind.FACTS),
        (Writer.DRIVER, StateKind.USAGE),
        (Writer.DRIVER, StateKind.PREFLIGHT),
        (Writer.VALIDATOR, StateKind.EVIDENCE),
    }
)
_OF_ALL: Final = frozenset({StateKind.RESULT, StateKind.PROGRESS, StateKind.REFUSAL})


class SnapshotChanges(NamedTuple):
    """As `Deciding.update` takes it."""

    nodes: tuple[NodeView, ...]
    nodes_gone: tuple[str, ...]
    pools: tuple[PoolView, ...]
    pools_gone: tuple[str, ...]


class SnapshotTracker:
    """One reader of everything."""

    def __init__(
        self,
        *,
        informers: Informers,
        reports: ReportCache,
        heartbeats: HeartbeatMonitor,
        slot_cache: SlotCache,
        pod_cache: PodCache,
        node_states: NodeStates,
        namespace: str,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._sources = informers
        self._mirror = reports
        self._pulses = heartbeats
        self._slots = slot_cache
        self._memory = node_states
        self._clock = clock
        self.wake = wake
        """Have whoever decides look."""
        self._reading = PolicyReader()
        self._placement = PoolSnapshot()
        self._misplaced = True
        self.nodes: dict[str, NodeView] = {}
        """As they were shown last."""
        self.pools: dict[str, PoolView] = {}
        self.to_purge: set[str] = set()
        """Nodes that are not there, and whose slots and reports are to be purged."""
        self._left: dict[str, float] = {}
        """Names that the bus knows and no Node bears, and since when that is seen."""
        self._dirty: set[str] = set()
        self._dirty_pools: set[str] = set()
        self._silent: dict[str, frozenset[str]] = {}
        self._following = FollowedNodes(pod_cache=pod_cache, node_states=node_states)
        self._viewing = NodeViews(
            informers=informers,
            reports=reports,
            heartbeats=heartbeats,
            slot_cache=slot_cache,
            pod_cache=pod_cache,
            node_states=node_states,
            namespace=namespace,
            clock=clock,
        )

    def subscribe(self) -> Callable[[], None]:
        """Hear of every change, until the returned function is called."""
        sources = self._sources
        ends = [
            sources.nodes.cache.on_change(self._node),
            sources.driver_pods.cache.on_change(self._pod),
            sources.other_pods.cache.on_change(self._pod),
            sources.daemon_sets.cache.on_change(self._daemon_set),
            sources.rollouts.cache.on_change(self._rollout),
            *(each.cache.on_change(self._policy) for each in sources.policies.values()),
            sources.gpu_clusters.cache.on_change(self._policy),
            self._mirror.on_change(self._report),
            self._pulses.on_change(lambda _before, beat: self.mark_node(beat.node)),
        ]
        for node in sources.nodes:
            self._dirty.add(node.metadata.name)
        self._dirty_pools.update(self._placement.pools)
        self._misplaced = True

        def end() -> None:
            for each in ends:
                each()

        return end

    # What changed.

    def mark_node(self, name: str) -> None:
        """The node is another one to whoever looks."""
        self._dirty.add(name)
        self.wake()

    def mark_pool(self, key: str) -> None:
        """The pool is."""
        self._dirty_pools.add(key)
        self.wake()

    def _node(self, before: Node | None, after: Node | None) -> None:
        node = after or before
        if node is None:
            return
        if before is None or after is None or selectable_labels(before) != selectable_labels(after):
            self._misplaced = True
        elif DRIVER_LABEL in after.metadata.labels:
            self._misplaced |= not self._is_known(after)
        if after is None or (before is not None and before.metadata.uid != after.metadata.uid):
            self.to_purge.add(node.metadata.name)
        self.mark_node(node.metadata.name)

    def _is_known(self, node: Node) -> bool:
        """Whether what it is told to run is in a view of a pool already."""
        label = node.metadata.labels[DRIVER_LABEL]
        return any(
            build.label == label
            for pool in self._placement.pools.values()
            for builds in pool.builds.values()
            for build in builds.values()
        )

    def _pod(self, before: Pod | None, after: Pod | None) -> None:
        for pod in (before, after):
            if pod is not None and pod.spec.node_name:
                self.mark_node(pod.spec.node_name)

    def _daemon_set(self, before: DaemonSet | None, after: DaemonSet | None) -> None:
        if before is None or after is None or _settling(before) != _settling(after):
            self._misplaced = True
            self.wake()

    def _rollout(self, before: Rollout | None, after: Rollout | None) -> None:
        rollout = after or before
        if rollout is None:
            return
        if (
            before is None
            or after is None
            or before.status.target != after.status.target
            or rollout.metadata.name not in self._placement.pools
        ):
            self._misplaced = True
        self.mark_pool(rollout.metadata.name)

    def _policy(self, _before: Any, _after: Any) -> None:
        self._misplaced = True
        self.wake()

    def _report(self, of: State, _before: Report | None, after: Report | None) -> None:
        kind = StateKind(of.kind)
        if kind not in _OF_ALL and (of.component, kind) not in _COUNTS:
            return
        if kind is StateKind.PREFLIGHT:
            if of.asker != Writer.SCHEDULER or after is None:
                return
            self._heard(of.node, after)
        self.mark_node(of.node)

    def _heard(self, name: str, report: Report) -> None:
        try:
            answer = report.open()
        except MalformedMessage:
            return
        if isinstance(answer, Preflight):
            self._memory.record_answer(name, answer, at=self._clock.now())

    def sweep(self) -> None:
        """Look who has fallen silent, is heard again, or is gone for good: nobody tells that."""
        self._memory.retain(self.nodes)
        self.to_purge |= self._left_behind()
        for name in self._silent.keys() - self.nodes.keys():
            del self._silent[name]
        for name, node in self.nodes.items():
            silent = frozenset(one for one in node.components if self._pulses.is_silent(name, one))
            if self._silent.get(name, frozenset()) != silent:
                self._silent[name] = silent
                self.mark_node(name)

    def _left_behind(self) -> set[str]:
        """What was deleted when nobody heard of it, or could not be purged."""
        nodes, now = self._sources.nodes, self._clock.monotonic()
        known = {*self._mirror.nodes(), *self._slots.nodes()}
        left = [name for name in known if nodes.cache.get(name) is None]
        self._left = {name: self._left.get(name, now) for name in left}
        if self._mirror.age:
            return set()  # nothing can be purged now
        proved = now - nodes.age  # a Node that had an agent before that would be known
        return {name for name, since in self._left.items() if since < proved}

    # What is there now.

    def changes(self) -> SnapshotChanges:
        """Views of all that changed since this was asked last."""
        if self._misplaced:
            self._place()
        dirty, self._dirty = self._dirty, set()
        nodes: list[NodeView] = []
        gone: list[str] = []
        for name in sorted(dirty):
            view = self._viewing.view(name, self._placement)
            if view is not None:
                nodes.append(view)
                self.nodes[name] = view
            elif self.nodes.pop(name, None) is not None:
                gone.append(name)
            self._following.update(name, view)
        pools, pools_gone = self._pools()
        self._following.follow(self.pools.values())
        return SnapshotChanges(tuple(nodes), tuple(gone), pools, pools_gone)

    def fleet(self) -> Fleet:
        """All of it, as it was shown last."""
        return Fleet(pools=self.pools, nodes=self.nodes)

    @property
    def pool_snapshot(self) -> PoolSnapshot:
        """Which pool has each node."""
        return self._placement

    def _place(self) -> None:
        """Policies, labels or DaemonSets are others than before."""
        self._misplaced = False
        sources, before = self._sources, self._placement
        members = [pool_member(node) for node in sources.nodes if is_tracked(node)]
        self._placement = now = snapshot_pools(
            self._reading.read({kind: tuple(each) for kind, each in sources.policies.items()}),
            members,
            tuple(sources.daemon_sets),
            gpu_clusters=[one.metadata.name for one in sources.gpu_clusters],
            rollouts={one.metadata.name: one.status.target for one in sources.rollouts},
        )
        for name in before.assignments.keys() | now.assignments.keys():
            if (
                before.assignments.get(name) != now.assignments.get(name)
                or before.telemetry != now.telemetry
            ):
                self._dirty.add(name)
        for key in before.pools.keys() | now.pools.keys():
            had, has = before.pools.get(key), now.pools.get(key)
            if had != has:
                self._dirty_pools.add(key)
            if had is not None and has is not None and had.upgrade != has.upgrade:
                self._dirty |= self._following.unsettled

    def _pools(self) -> tuple[tuple[PoolView, ...], tuple[str, ...]]:
        dirty, self._dirty_pools = self._dirty_pools, set()
        views: list[PoolView] = []
        gone: list[str] = []
        for key in sorted(dirty):
            view = self._placement.pools.get(key)
            if view is None:
                if self.pools.pop(key, None) is not None:
                    gone.append(key)
                continue
            rollout = self._sources.rollouts.cache.get(key)
            if rollout is not None:
                writing = key in self._memory.writing_rollouts
                view = replace(view, rollout=rollout_view(rollout, writing=writing))
            self.pools[key] = view
            views.append(view)
        return tuple(views), tuple(gone)


def _settling(one: DaemonSet) -> object:
    metadata = one.metadata
    caught_up = one.status.observed_generation >= metadata.generation
    return (
        metadata.uid,
        metadata.annotations,
        metadata.labels,
        metadata.deletion_timestamp,
        caught_up,
    )
