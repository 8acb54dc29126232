"""The state of a stage.

Holds objects and timers, counts revisions and uids, and keeps track of changes. What changes it is
in the modules whose functions take a state.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

from libs.forecast.stage.latencies import Latencies
from libs.forecast.stage.objects import (
    DriverFacts,
    NodeMemory,
    StageMachine,
    StageNode,
    StagePool,
    StageSlot,
    copy_machine,
)
from libs.forecast.stage.recorder import JournalRecorder
from libs.forecast.stage.timers import Callback, TimerQueue
from libs.forecast.world import WorldModel
from libs.rollout.views.fleet import SourceState

NodeHandler = Callable[["StageState", str, frozenset[str]], None]
"""Called with the name of a Node and the paths that changed."""
MachineHandler = Callable[["StageState", StageMachine], None]
"""Called after something happened on a machine."""

SOURCES = ("nodes", "pods", "rollouts", "policies", "daemonsets")


class StageState:
    def __init__(
        self, *, world: WorldModel, start: float, latencies: Latencies, journalled: bool
    ) -> None:
        self.now = start
        self.world = world
        self.latencies = latencies
        self.timers = TimerQueue()
        self.revision = 100
        self.made = 0
        """Number of uids made."""

        self.nodes: dict[str, StageNode] = {}
        self.machines: dict[str, StageMachine] = {}
        self.pools: dict[str, StagePool] = {}
        self.daemon_sets: dict[str, str] = {}
        """Install digests by driver label."""

        self.bus_up = True
        self.slots: dict[tuple[str, str], StageSlot] = {}
        self.driver_facts: dict[str, DriverFacts] = {}

        self.memory: dict[str, NodeMemory] = {}
        self.writing_rollouts: set[str] = set()
        self.missed_pokes: dict[str, tuple[str, ...]] = {}
        """Components that miss their pokes, by node."""
        self.epoch = 1
        """The current leader's."""
        self.leader = 0
        """Number of the current leader; only effects of earlier ones can still arrive."""
        self.sources = dict[str, SourceState]()
        """Sources that are older than now."""
        self.frozen: set[str] = set()
        """Frozen parts of the views; see `views`."""
        self.frozen_parts: dict[str, Mapping[str, Any]] = {}
        self.bus_down_since: float | None = None
        self.bus_outages: tuple[tuple[float, float], ...] = ()
        self.foreign_operator = ""

        self.node_handlers: tuple[NodeHandler, ...] = ()
        self.machine_handlers: tuple[MachineHandler, ...] = ()

        self.dirty: set[str] = set()
        """Nodes to decide about again."""
        self.dirty_pools: set[str] = set()
        self.decided_nodes: set[str] = set()
        """Nodes changed by a decision itself: shown, but no reason to decide again."""
        self.decided_pools: set[str] = set()
        self.stale_views: set[str] = set()
        """Nodes whose view is out of date."""
        self.stale_memory_views: set[str] = set()
        """Nodes of whose view only the scheduler's memory is out of date."""
        self.stale_pool_views: set[str] = set()
        self.violations: list[tuple[float, str, str]] = []
        self.recorder: JournalRecorder | None = JournalRecorder() if journalled else None

    def call_after(self, seconds: float, callback: Callback, *values: Any) -> None:
        self.timers.add(self.now + seconds, callback, *values)

    def new_uid(self, kind: str) -> str:
        self.made += 1
        return f"{kind}-{self.made}"

    def touch(self, name: str) -> None:
        """Mark the node as changed."""
        self.dirty.add(name)
        self.stale_views.add(name)

    def touch_pool(self, key: str) -> None:
        self.dirty_pools.add(key)
        self.stale_pool_views.add(key)

    def touch_decided(self, name: str) -> None:
        """Mark the node as changed by a decision about it."""
        self.decided_nodes.add(name)
        self.stale_memory_views.add(name)

    def touch_all(self, names: Iterable[str]) -> None:
        self.dirty.update(names)
        self.stale_views.update(self.dirty)

    def memory_of(self, name: str) -> NodeMemory:
        memory = self.memory.get(name)
        if memory is None:
            memory = self.memory[name] = NodeMemory()
        return memory

    def record_violation(self, name: str, text: str) -> None:
        """Record something that no order of events may cause on a machine."""
        self.violations.append((self.now, name, text))

    def log(self, text: str) -> None:
        """Log a line for people."""
        if self.recorder is not None:
            self.recorder.log(self.now, text)

    def node_changed(self, name: str, paths: frozenset[str]) -> None:
        """Notify the handlers; `UID` is among the paths of a created or deleted Node."""
        for handler in self.node_handlers:
            handler(self, name, paths)

    def machine_changed(self, machine: StageMachine) -> None:
        for handler in self.machine_handlers:
            handler(self, machine)

    def machine(self, name: str, boot: int) -> StageMachine | None:
        """Return the machine, if it is up and in this boot."""
        machine = self.machines.get(name)
        return machine if machine is not None and machine.up and machine.boot == boot else None

    def copy(self) -> "StageState":
        """Return an independent state, which shares immutable values."""
        copied = copy(self)
        copied.timers = self.timers.copy()
        copied.nodes = {name: copy(node) for name, node in self.nodes.items()}
        copied.machines = {name: copy_machine(machine) for name, machine in self.machines.items()}
        copied.pools = {}
        for key, pool in self.pools.items():
            own = copied.pools[key] = copy(pool)
            own.rollout = copy(pool.rollout)
        copied.memory = {}
        for name, memory in self.memory.items():
            own_memory = copied.memory[name] = copy(memory)
            if memory.evictions is not None:
                pending = own_memory.evictions = copy(memory.evictions)
                pending.pods = pending.pods.copy()
                pending.refused = pending.refused.copy()
        for field in (
            "daemon_sets",
            "writing_rollouts",
            "missed_pokes",
            "slots",
            "driver_facts",
            "sources",
            "frozen",
            "frozen_parts",
        ):
            setattr(copied, field, copy(getattr(self, field)))
        for field in (
            "dirty",
            "dirty_pools",
            "decided_nodes",
            "decided_pools",
            "stale_views",
            "stale_memory_views",
            "stale_pool_views",
            "violations",
        ):
            setattr(copied, field, copy(getattr(self, field)))
        copied.recorder = self.recorder.copy() if self.recorder is not None else None
        return copied
