"""What is known of the fleet, kept up to date change by change. Pure."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from libs.contracts.commands import TASKS
from libs.contracts.events import NO_CHANGE, CommandEvent, Event, EventKind, WaitEvent
from libs.contracts.journal import EntryPhase
from libs.contracts.message import MalformedMessage
from libs.contracts.node import UpgradeState, WaitCode
from libs.ctl import answers, node_rows
from libs.ctl.answers import EventLine, Pool, Source
from libs.ctl.cluster import Rollout
from libs.ctl.edits import record_of
from libs.ctl.node_rows import DriverState, NodeRow
from libs.ctl.text import name_versions, natural_order
from libs.kube.views import Metadata
from libs.rollout.wait_reasons import WAITS_OF_POOLS

KEPT_EVENTS: Final = 64
_UNLOADED: Final = (DriverState.CHANGING, DriverState.NONE)
_PHASES: Final[Mapping[str, str]] = {EntryPhase.STARTED: "begun"}


class Kind(StrEnum):
    """What a node does, in one word."""

    DONE = "done"
    WAITING = "to upgrade"
    IN_FLIGHT = "in flight"
    FAILED = "failed"
    SKIPPED = "skipped"
    CORDONED = "cordoned"
    """It is done, and people keep it cordoned."""
    NONE = "no state"


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Why a node waits, and who can end it."""

    code: str
    detail: str
    since: float
    until: float | None = None
    who: str = ""


class GpuUse(msgspec.Struct, frozen=True):
    """The GPUs of a node, as telemetry measures them."""

    busy: int
    total: int
    hottest: float | None = None
    """In degrees Celsius."""


class WatchedNode(msgspec.Struct, frozen=True, kw_only=True):
    """All that is shown of a node."""

    row: NodeRow
    kind: Kind
    deadline: float | None = None
    """When the state times out."""
    wait: Wait | None = None
    command: str = ""
    """What an agent was told last, and what became of it."""
    agent: str = ""
    """The agent that was told."""
    command_at: float = 0.0
    gpus: GpuUse | None = None


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller tells of a fleet of its own, for which the address says little."""

    title: str
    """In place of the cluster's address."""
    help: Sequence[str]
    """Lines above the list of keys."""


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame shows."""

    address: str
    pools: Sequence[Pool]
    nodes: Sequence[WatchedNode]
    """By name, numbers in it as numbers: node-2 is before node-10."""
    events: Sequence[EventLine]
    """The oldest first."""
    sources: Sequence[Source]
    is_measured: bool = False
    """Whether telemetry is read, which fills two columns once it answers."""
    guide: Guide | None = None


def kind_of(row: NodeRow, wait: Wait | None = None) -> Kind:
    """Return what a node does. One that waits to be let in again is skipped, not to upgrade."""
    if row.state == UpgradeState.UPGRADE_FAILED:
        return Kind.FAILED
    if row.state == UpgradeState.UPGRADE_DONE:
        return Kind.CORDONED if row.cordoned and not row.in_flight else Kind.DONE
    if row.state in (UpgradeState.UNKNOWN, UpgradeState.UPGRADE_REQUIRED):
        if row.in_flight:
            return Kind.IN_FLIGHT
        if row.skipped or (wait is not None and wait.code == WaitCode.SKIPPED):
            return Kind.SKIPPED
        return Kind.WAITING if row.state else Kind.NONE
    return Kind.IN_FLIGHT


class FleetState:
    """Nodes, rollouts, waits and events, each as last heard of."""

    def __init__(
        self,
        *,
        address: str,
        pool: str,
        versions: Mapping[str, str],
        is_measured: bool = False,
        guide: Guide | None = None,
    ) -> None:
        self._address = address
        self._guide = guide
        self._pool = pool
        self._versions = dict(versions)
        self._is_measured = is_measured
        self._metadata: dict[str, Metadata] = {}
        self._nodes: dict[str, WatchedNode] = {}
        self._waits: dict[str, tuple[str, Wait | None]] = {}
        """By node: the pool that the wait names, and the wait."""
        self._commands: dict[str, tuple[str, str, float]] = {}
        """By node: the last command in words, its agent, and when."""
        self._cordoned: set[str] = set()
        self._gpus: dict[str, GpuUse] = {}
        """By node, as measured last while its driver was loaded."""
        self._order: list[str] | None = None
        self._events: deque[EventLine] = deque(maxlen=KEPT_EVENTS)
        self.rollouts: dict[str, Rollout] = {}
        self.is_changed = True

    @property
    def pools(self) -> list[str]:
        """The pools that are shown."""
        return sorted(name for name in self.rollouts if self._pool in ("", name))

    @property
    def versions(self) -> Mapping[str, str]:
        return self._versions

    def node_changed(self, old: Metadata | None, new: Metadata | None) -> None:
        """Take over a node's metadata; None before creation and after deletion."""
        if new is not None:
            self._order = self._order if new.name in self._metadata else None
            self._metadata[new.name] = new
            self._refresh(new.name)
        elif old is not None:
            self._order = None
            for each in (self._metadata, self._nodes):
                each.pop(old.name, None)
        self.is_changed = True

    def cordon_changed(self, name: str, *, cordoned: bool) -> None:
        """Take over whether a node is cordoned, perhaps before the node is heard of."""
        if cordoned:
            self._cordoned.add(name)
        else:
            self._cordoned.discard(name)
        self._refresh(name)

    def rollout_changed(self, old: Rollout | None, new: Rollout | None) -> None:
        if new is not None:
            self.rollouts[new.metadata.name] = new
            if new.status.target and new.status.version:
                self._versions[new.status.target] = new.status.version
        elif old is not None:
            self.rollouts.pop(old.metadata.name, None)
        self.is_changed = True

    def event_received(self, event: Event) -> None:
        """Take over what an event says of its node, and list it."""
        try:
            body = event.open() if event.kind in (EventKind.WAIT, EventKind.COMMAND) else None
        except MalformedMessage:
            return
        if isinstance(body, WaitEvent):
            self._waits[event.node] = body.pool, _wait_of(body)
            self._refresh(event.node)
        elif isinstance(body, CommandEvent):
            self._commands[event.node] = _command_text(body), event.writer, event.at
            self._refresh(event.node)
        # The end of a wait is seen by what follows it; that of a pool is shown with it.
        is_shown_elsewhere = isinstance(body, WaitEvent) and (
            body.code is None or body.code in WAITS_OF_POOLS
        )
        if event.kind not in NO_CHANGE and not is_shown_elsewhere:
            self.event_listed(EventLine.of(event, self._versions))

    def event_listed(self, line: EventLine) -> None:
        """List an event; those of before are listed in the order of their times."""
        self.is_changed = True
        if self._events and self._events[-1].at > line.at:
            ordered = sorted((*self._events, line), key=lambda each: each.at)
            self._events = deque(ordered, maxlen=KEPT_EVENTS)
        else:
            self._events.append(line)

    def events_begin(self) -> None:
        """Forget the events and what they said: all are read again, perhaps from another source."""
        self._events.clear()
        self._waits.clear()
        self._commands.clear()
        for name in self._metadata:
            self._refresh(name)
        self.is_changed = True

    def gpus_measured(self, gpus: Mapping[str, GpuUse]) -> None:
        self._gpus = dict(gpus)
        for name in self._metadata:
            self._refresh(name)
        self.is_changed = True

    def watched(self, sources: Iterable[Source]) -> Watched:
        """Return what there is to show now."""
        self.is_changed = False
        if self._order is None:
            self._order = sorted(self._metadata, key=natural_order)
        nodes = [self._nodes[name] for name in self._order]
        if self._pool:
            nodes = [node for node in nodes if self._pool_of(node) == self._pool]
        waits: dict[str, Counter[str]] = {}
        for node in nodes:
            if node.wait is not None and node.kind is not Kind.SKIPPED:
                waits.setdefault(self._pool_of(node), Counter())[node.wait.code] += 1
        pools = [self._pool_view(name, waits.get(name, {})) for name in self.pools]
        return Watched(
            address=self._address,
            pools=pools,
            nodes=nodes,
            events=tuple(self._events),
            sources=tuple(sources),
            is_measured=self._is_measured,
            guide=self._guide,
        )

    def _pool_view(self, name: str, waits: Mapping[str, int]) -> Pool:
        rollout = self.rollouts[name]
        pool = answers.pool_of(rollout.metadata, rollout.spec, rollout.status, self._versions)
        return msgspec.structs.replace(pool, waits=dict(waits))

    def _pool_of(self, node: WatchedNode) -> str:
        return node.row.pool or self._waits.get(node.row.name, ("", None))[0]

    def _refresh(self, name: str) -> None:
        metadata = self._metadata.get(name)
        if metadata is None:
            return  # an event was heard of before the node
        self.is_changed = True
        row = node_rows.node_row(metadata, cordoned=name in self._cordoned)
        record = record_of(metadata)
        if row.driver_state in _UNLOADED:
            self._gpus.pop(name, None)  # measured before; none until it is measured again
        _, wait = self._waits.get(name, ("", None))
        command, agent, at = self._commands.get(name, ("", "", 0.0))
        if wait is not None:
            detail = name_versions(wait.detail, self._versions)
            wait = msgspec.structs.replace(wait, detail=detail)
        self._nodes[name] = WatchedNode(
            row=row,
            kind=kind_of(row, wait),
            deadline=None if record is None else record.deadline,
            wait=wait,
            command=command,
            agent=agent,
            command_at=at,
            gpus=self._gpus.get(name),
        )


def _command_text(event: CommandEvent) -> str:
    """Return what an agent was told to do, and how far that is."""
    told = TASKS.get(event.command, event.command)
    phase = _PHASES.get(event.outcome or event.phase, event.outcome or event.phase)
    return f"{told} ({phase})"


def _wait_of(event: WaitEvent) -> Wait | None:
    if event.code is None:
        return None
    return Wait(
        code=event.code.value,
        detail=event.detail,
        since=event.since,
        until=event.until,
        who=event.who,
    )
