"""Observe: what is different from when it was asked last, as views of nodes and pools.

It listens to caches, reports, beats and slots, and remembers which nodes and pools each of them
concerns; views are made when they are asked for. Nothing is decided or written here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sluice.bus.mirror import Mirror
from sluice.bus.pulse import Pulses
from sluice.contracts.identities import Writer
from sluice.contracts.message import Unreadable
from sluice.contracts.node import DRIVER_LABEL, Record, UpgradeState
from sluice.contracts.reports import Preflight, Report, StateKind
from sluice.contracts.subjects import State
from sluice.policy.checks import PRESENT_LABEL
from sluice.policy.kinds.upgrades import UpgradePolicy
from sluice.rollout.views.fleet import Fleet
from sluice.rollout.views.node import NodeView
from sluice.rollout.views.pool import PoolView
from sluice.runtime.clock import Clock
from sluice.scheduler import reading
from sluice.scheduler.hearing import Said, Voice, expected, said
from sluice.scheduler.memory import Memory
from sluice.scheduler.placing import NOWHERE, OURS, Member, Placement, Reading, placed
from sluice.scheduler.pods import is_of_daemon_set, is_over
from sluice.scheduler.seeing import Around, node_view, rollout_view
from sluice.scheduler.slotbook import SlotBook
from sluice.scheduler.sources import Sources
from sluice.scheduler.tenants import WATCHED, Tenants
from sluice.scheduler.things import DaemonSet, Node, Pod, Rollout

_COUNTS: Final = frozenset(
    {
        (Writer.DRIVER, StateKind.FACTS),
        (Writer.DRIVER, StateKind.USAGE),
        (Writer.DRIVER, StateKind.PREFLIGHT),
        (Writer.VALIDATOR, StateKind.EVIDENCE),
    }
)
_OF_ALL: Final = frozenset({StateKind.RESULT, StateKind.PROGRESS, StateKind.REFUSAL})
_RESTING: Final = frozenset({UpgradeState.UPGRADE_DONE.value, UpgradeState.UPGRADE_FAILED.value})


class News(NamedTuple):
    """As `Deciding.update` takes it."""

    nodes: tuple[NodeView, ...]
    nodes_gone: tuple[str, ...]
    pools: tuple[PoolView, ...]
    pools_gone: tuple[str, ...]


class Observing:
    """One reader of everything."""

    def __init__(
        self,
        *,
        sources: Sources,
        mirror: Mirror,
        pulses: Pulses,
        slots: SlotBook,
        tenants: Tenants,
        memory: Memory,
        namespace: str,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._sources = sources
        self._mirror = mirror
        self._pulses = pulses
        self._slots = slots
        self._tenants = tenants
        self._memory = memory
        self._namespace = namespace
        self._clock = clock
        self.wake = wake
        """Have whoever decides look."""
        self._reading = Reading()
        self._placement = Placement()
        self._misplaced = True
        self.nodes: dict[str, NodeView] = {}
        """As they were shown last."""
        self.pools: dict[str, PoolView] = {}
        self.gone: set[str] = set()
        """Nodes that were deleted, and whose slots and reports are to be purged."""
        self._dirty: set[str] = set()
        self._dirty_pools: set[str] = set()
        self._silent: dict[str, frozenset[str]] = {}
        self._required: set[str] = set()
        """Nodes that are not where they should be, without a lease."""
        self._leased: set[str] = set()

    def listen(self) -> Callable[[], None]:
        """Hear of every change, until the returned function is called."""
        sources = self._sources
        ends = [
            sources.nodes.cache.on_change(self._node),
            sources.drivers.cache.on_change(self._pod),
            sources.neighbours.cache.on_change(self._pod),
            sources.daemon_sets.cache.on_change(self._daemon_set),
            sources.rollouts.cache.on_change(self._rollout),
            *(each.cache.on_change(self._policy) for each in sources.policies.values()),
            sources.gpu_clusters.cache.on_change(self._policy),
            self._mirror.on_change(self._report),
            self._pulses.on_change(lambda _before, beat: self.touch(beat.node)),
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

    def touch(self, name: str) -> None:
        """The node is another one to whoever looks."""
        self._dirty.add(name)
        self.wake()

    def touch_pool(self, key: str) -> None:
        """The pool is."""
        self._dirty_pools.add(key)
        self.wake()

    def _node(self, before: Node | None, after: Node | None) -> None:
        node = after or before
        if node is None:
            return
        if before is None or after is None or _selecting(before) != _selecting(after):
            self._misplaced = True
        elif DRIVER_LABEL in after.metadata.labels:
            self._misplaced |= not self._is_known(after)
        if after is None or (before is not None and before.metadata.uid != after.metadata.uid):
            self.gone.add(node.metadata.name)
        self.touch(node.metadata.name)

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
                self.touch(pod.spec.node_name)

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
        self.touch_pool(rollout.metadata.name)

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
        self.touch(of.node)

    def _heard(self, name: str, report: Report) -> None:
        try:
            answer = report.open()
        except Unreadable:
            return
        if isinstance(answer, Preflight):
            self._memory.answered(name, answer, at=self._clock.now())

    def sweep(self) -> None:
        """Look who has fallen silent, or is heard again: nothing tells that by itself."""
        for name, node in self.nodes.items():
            silent = frozenset(one for one in node.components if self._pulses.silent(name, one))
            if self._silent.get(name, frozenset()) != silent:
                self._silent[name] = silent
                self.touch(name)

    # What is there now.

    def news(self) -> News:
        """Views of all that changed since this was asked last."""
        if self._misplaced:
            self._place()
        dirty, self._dirty = self._dirty, set()
        nodes: list[NodeView] = []
        gone: list[str] = []
        for name in sorted(dirty):
            view = self._view(name)
            if view is not None:
                nodes.append(view)
                self.nodes[name] = view
            elif self.nodes.pop(name, None) is not None:
                gone.append(name)
            self._sort(name, view)
        pools, pools_gone = self._pools()
        self._follow()
        return News(tuple(nodes), tuple(gone), pools, pools_gone)

    def fleet(self) -> Fleet:
        """All of it, as it was shown last."""
        return Fleet(pools=self.pools, nodes=self.nodes)

    @property
    def placement(self) -> Placement:
        """Which pool has each node."""
        return self._placement

    def _place(self) -> None:
        """Policies, labels or DaemonSets are others than before."""
        self._misplaced = False
        sources, before = self._sources, self._placement
        members = [_member(node) for node in sources.nodes if self._counts(node)]
        self._placement = now = placed(
            self._reading.all({kind: tuple(each) for kind, each in sources.policies.items()}),
            members,
            tuple(sources.daemon_sets),
            gpu_clusters=[one.metadata.name for one in sources.gpu_clusters],
            rollouts={one.metadata.name: one.status.target for one in sources.rollouts},
        )
        for name in before.nodes.keys() | now.nodes.keys():
            if before.nodes.get(name) != now.nodes.get(name) or before.telemetry != now.telemetry:
                self._dirty.add(name)
        for key in before.pools.keys() | now.pools.keys():
            had, has = before.pools.get(key), now.pools.get(key)
            if had != has:
                self._dirty_pools.add(key)
            if had is not None and has is not None and had.upgrade != has.upgrade:
                self._dirty.update(name for name in self._required | self._leased)

    def _counts(self, node: Node) -> bool:
        """Whether it has GPUs, or was ours once."""
        labels = node.metadata.labels
        return (
            labels.get(PRESENT_LABEL) == "true"
            or bool(node.owned.owners)
            or bool(OURS & labels.keys())
            or bool(node.metadata.annotations)
        )

    def _view(self, name: str) -> NodeView | None:
        node = self._sources.nodes.cache.get(name)
        if node is None or not self._counts(node):
            return None
        place = self._placement.nodes.get(name, NOWHERE)
        around = Around(
            place=place,
            upgrade=self._upgrade(node, place.pool),
            namespace=self._namespace,
            drivers=tuple(self._sources.drivers.cache.by("node", name)),
            tenants=self._tenants.of(name),
            carries=any(
                not is_of_daemon_set(pod) and not is_over(pod)
                for pod in self._sources.neighbours.cache.by("node", name)
            ),
            said=self._said(node),
            known=self._memory.see(name, node.metadata.uid),
        )
        return node_view(node, around)

    def _upgrade(self, node: Node, selected: str) -> UpgradePolicy | None:
        record = reading.record(node)
        key = record.pool if isinstance(record, Record) and record.pool else selected
        pool = self._placement.pools.get(key)
        return None if pool is None else pool.upgrade

    def _said(self, node: Node) -> Said:
        name = node.metadata.name
        names = list(expected(node.metadata.labels, telemetry=self._placement.telemetry))
        slots = self._slots.of(name)
        if node.owned.owners:
            # Of a node that was ours, who lives there still is told to let go.
            names += [one for one in slots if one not in names and self._is_heard(name, one)]
        voices = {one: self._voice(name, one) for one in names}
        return said(
            names,
            self._mirror.reports(name),
            voices,
            slots,
            uid=node.metadata.uid,
            boot_id=node.status.node_info.boot_id,
            now=self._clock.now(),
        )

    def _is_heard(self, name: str, component: str) -> bool:
        heard = self._pulses.last(name, component)
        return heard is not None and not self._pulses.silent(name, component)

    def _voice(self, name: str, component: str) -> Voice:
        return Voice(
            heard=self._pulses.last(name, component), silent=self._pulses.silent(name, component)
        )

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

    # Whose pods are looked at.

    def _sort(self, name: str, view: NodeView | None) -> None:
        for names in (self._required, self._leased):
            names.discard(name)
        if view is None:
            return
        if view.lease is not None:
            self._leased.add(name)
        elif view.state not in _RESTING and (view.pool or view.driver_label):
            self._required.add(name)

    def _follow(self) -> None:
        flying = {
            entry.node
            for pool in self.pools.values()
            if pool.rollout is not None
            for entry in pool.rollout.status.in_flight.values()
        }
        first = sorted(flying | self._leased)
        asked = sorted(self._asked() - flying - self._leased)
        room = max(0, WATCHED - len(first) - len(asked))
        rest: Iterable[str] = ()
        if room:
            rest = sorted(self._required.difference(first, asked))[:room]
        self._tenants.follow([*first, *asked, *rest])

    def _asked(self) -> set[str]:
        """Nodes that are next: their agents were asked lately."""
        return {name for name in self._required if self._memory.of(name).asked is not None}


def _selecting(node: Node) -> Mapping[str, str]:
    labels = node.metadata.labels
    return {key: value for key, value in labels.items() if key not in OURS}


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


def _member(node: Node) -> Member:
    record = reading.record(node)
    known = record if isinstance(record, Record) else None
    return Member(
        name=node.metadata.name,
        labels=_selecting(node),
        label=node.metadata.labels.get(DRIVER_LABEL, ""),
        record_pool="" if known is None else known.pool,
        record_label="" if known is None else known.label,
    )
