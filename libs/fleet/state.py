"""The fleet as last heard of, kept up to date change by change. Pure.

A change only marks its node, whose row is made anew when it is asked for: a node that changes
several times within a frame is made once.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from libs.contracts.commands import TASKS
from libs.contracts.events import CommandEvent, Event, EventKind, WaitEvent
from libs.contracts.identities import Writer
from libs.contracts.journal import EntryPhase
from libs.contracts.message import MalformedMessage
from libs.contracts.queries import WaitReason
from libs.contracts.rollout import RolloutStatus
from libs.fleet.names import name_versions, natural_order
from libs.fleet.node import (
    Doing,
    DriverState,
    FollowedNode,
    GpuUse,
    LastCommand,
    doing_of,
    fleet_node,
)
from libs.fleet.pools import Pool, Rollout, pool_of
from libs.fleet.records import record_of
from libs.kube.views import Metadata

_UNLOADED: Final = (DriverState.CHANGING, DriverState.NONE)
_PHASES: Final[Mapping[str, str]] = {EntryPhase.STARTED: "begun"}


class FleetState:
    """Nodes, rollouts and waits, each as last heard of: of one pool, or of all."""

    def __init__(self, versions: Mapping[str, str] | None = None, *, pool: str = "") -> None:
        self._pool = pool
        self._versions = dict(versions or {})
        self._metadata: dict[str, Metadata] = {}
        self._nodes: dict[str, FollowedNode] = {}
        self._waits: dict[str, tuple[str, WaitEvent]] = {}
        """By node, with the uid of the Node that waits."""
        self._commands: dict[str, LastCommand] = {}
        self._cordoned: set[str] = set()
        self._unready: set[str] = set()
        self._health: dict[str, Mapping[str, int]] = {}
        """By node, the number of its GPUs by health."""
        self._use: dict[str, GpuUse] = {}
        """By node, as measured last while its driver was loaded."""
        self._order: list[str] | None = None
        self._marked: set[str] = set()
        self.rollouts: dict[str, Rollout] = {}
        self.is_changed = True
        """Whether there is something that was not shown yet."""

    @property
    def versions(self) -> Mapping[str, str]:
        return self._versions

    def node_changed(
        self, old: Metadata | None, new: Metadata | None, *, unready: bool = False
    ) -> None:
        """Take over a node's metadata; None before creation and after deletion."""
        if new is not None:
            self._order = self._order if new.name in self._metadata else None
            self._metadata[new.name] = new
            _keep(self._unready, new.name, is_in=unready)
            self._mark(new.name)
        elif old is not None:
            self._order = None
            for each in (self._metadata, self._nodes, self._waits, self._commands):
                each.pop(old.name, None)
            self._unready.discard(old.name)
            self._mark(old.name)

    def cordon_changed(self, name: str, *, cordoned: bool) -> None:
        """Take over whether a node is cordoned, perhaps before the node is heard of."""
        _keep(self._cordoned, name, is_in=cordoned)
        self._mark(name)

    def rollout_changed(self, old: Rollout | None, new: Rollout | None) -> None:
        """Take over a Rollout, and mark the nodes that show it otherwise now.

        A new target changes what each node is done with, and what its wait names; a flight that
        began or ended changes only its own node. To mark all each time would make thousands of
        nodes anew at each step of one.
        """
        before, after = (each.status if each else RolloutStatus() for each in (old, new))
        if new is not None:
            self.rollouts[new.metadata.name] = new
            if after.target and after.version:
                self._versions[after.target] = after.version
        elif old is not None:
            self.rollouts.pop(old.metadata.name, None)
        if (before.target, before.version) != (after.target, after.version):
            self._marked |= self._metadata.keys()
        for flight in (*before.in_flight.values(), *after.in_flight.values()):
            self._marked.add(flight.node)
        self.is_changed = True

    def versions_found(self, versions: Mapping[str, str]) -> None:
        """Take over the driver versions of targets, also of those that are not wanted any more."""
        if not versions.items() <= self._versions.items():
            self._versions.update(versions)
            self._mark(*self._metadata)

    def event_received(self, event: Event) -> None:
        """Take over what an event says of its node. Why a node waits is the scheduler's to say."""
        try:
            body = event.open() if event.kind in (EventKind.WAIT, EventKind.COMMAND) else None
        except MalformedMessage:
            return
        if isinstance(body, WaitEvent) and event.writer == Writer.SCHEDULER:
            self._waits[event.node] = event.node_uid, body
            self._mark(event.node)
        elif isinstance(body, CommandEvent):
            self._commands[event.node] = LastCommand(_told(body), event.writer, event.at)
            self._mark(event.node)

    def events_begin(self) -> None:
        """Forget what events said: all are read again, perhaps from another source."""
        self._waits.clear()
        self._commands.clear()
        self._mark(*self._metadata)

    def gpus_measured(self, use: Mapping[str, GpuUse]) -> None:
        self._use = dict(use)
        self._mark(*self._metadata)

    def gpus_counted(self, node: str, health: Mapping[str, int]) -> None:
        """Take over the number of a node's GPUs by health."""
        self._health[node] = dict(sorted(health.items()))
        self._mark(node)

    def refresh(self) -> set[str]:
        """Make the marked nodes anew; return their names, also of those that are gone."""
        marked, self._marked = self._marked, set()
        self.is_changed = False
        for name in marked & self._metadata.keys():
            self._nodes[name] = self._made(self._metadata[name])
        return marked

    def metadata(self, name: str) -> Metadata | None:
        return self._metadata.get(name)

    def node(self, name: str) -> FollowedNode | None:
        """Return a node as of the last `refresh`."""
        return self._nodes.get(name)

    def nodes(self) -> Sequence[FollowedNode]:
        """Return all nodes that are shown, as they are now.

        By name, with numbers in it as numbers: node-2 is before node-10.
        """
        self.refresh()
        if self._order is None:
            self._order = sorted(self._metadata, key=natural_order)
        nodes = [self._nodes[name] for name in self._order]
        return [each for each in nodes if self._pool in ("", self._pool_with(each))]

    def pools(self) -> Sequence[Pool]:
        """Return the pools that are shown; how many nodes wait for what is not said."""
        return [
            pool_of(each.metadata, each.spec, each.status, self._versions)
            for name, each in sorted(self.rollouts.items())
            if self._pool in ("", name)
        ]

    def pools_with_waits(self) -> Sequence[Pool]:
        """Return the pools, with what their nodes wait for as events say it."""
        waits: dict[str, Counter[str]] = {}
        for node in self.nodes():
            if node.wait is not None and node.doing is not Doing.SKIPPED:
                waits.setdefault(self._pool_with(node), Counter())[node.wait.code.value] += 1
        return [
            msgspec.structs.replace(pool, waits=dict(waits.get(pool.name, {})))
            for pool in self.pools()
        ]

    def _pool_with(self, node: FollowedNode) -> str:
        """Return the pool of a node: one without a record is known by what it waits for."""
        told = self._waits.get(node.name)
        return node.pool or (told[1].pool if told is not None else "")

    def _mark(self, *names: str) -> None:
        self._marked.update(names)
        self.is_changed = True

    def _made(self, metadata: Metadata) -> FollowedNode:
        """Return a node with all that was heard of it, from whichever source came first."""
        name, record = metadata.name, record_of(metadata)
        node = fleet_node(metadata, cordoned=name in self._cordoned)
        if node.driver_state in _UNLOADED:
            self._use.pop(name, None)  # measured before; none until it is measured again
        wait = self._wait_of(metadata)
        return FollowedNode(
            **msgspec.structs.asdict(node),
            doing=doing_of(node, wait),
            deadline=None if record is None else record.deadline,
            wait=wait,
            command=self._commands.get(name),
            unready=name in self._unready,
            health=self._health.get(name, {}),
            use=self._use.get(name),
        )

    def _wait_of(self, metadata: Metadata) -> WaitReason | None:
        """Return why the node waits; what an earlier Node of its name waited for is over."""
        uid, told = self._waits.get(metadata.name, ("", None))
        if told is None or told.code is None or uid not in ("", metadata.uid):
            return None
        return WaitReason(
            code=told.code,
            detail=name_versions(told.detail, self._versions),
            since=told.since,
            until=told.until,
            who=told.who,
        )


def _keep(names: set[str], name: str, *, is_in: bool) -> None:
    if is_in:
        names.add(name)
    else:
        names.discard(name)


def _told(event: CommandEvent) -> str:
    """Return what an agent was told to do, and how far that is."""
    task = TASKS.get(event.command, event.command)
    phase = _PHASES.get(event.outcome or event.phase, event.outcome or event.phase)
    return f"{task} ({phase})"
