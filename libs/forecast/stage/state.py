"""The state of a stage: its objects, its timers, and the changes since the last view.

The functions of the other modules that take a state change it.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple

import msgspec

from libs.contracts.commands import Command
from libs.contracts.journal import EntryPhase, Verb
from libs.forecast.stage.objects import (
    DriverFacts,
    NodeMemory,
    StageAgent,
    StageDriverPod,
    StageMachine,
    StageNode,
    StageSlot,
)
from libs.forecast.world import WorldModel
from libs.rollout.decision import Step, Wait, WriteNode
from libs.rollout.views.pool import PoolView, RolloutView

SCHEDULER = "system:serviceaccount:sluice:sluice-scheduler"


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, as seen with a real control plane and healthy agents."""

    write: float = 0.02
    """Until a request of the scheduler is carried out and answered."""
    request_timeout: float = 3.0
    """Until an unanswered request is given up."""
    eviction_retry: float = 5.0
    """Between two requests to evict a pod that a disruption budget keeps."""

    taint: float = 0.3
    """Until the node lifecycle controller follows a cordon."""
    daemon_set: float = 0.2
    """Until the DaemonSet controller follows a Node or a pod."""
    kubelet: float = 0.1
    """Until a kubelet sees a pod, or the API server a container."""
    grace_period: float = 30.0
    """Of driver pods."""
    not_ready_after: float = 40.0
    """Until a silent node is NotReady."""
    pod_gc: float = 40.0
    """Until the pods of a deleted Node are deleted."""
    restart_backoff: float = 10.0
    """Before a crashed container restarts; doubles with each crash."""
    restart_backoff_max: float = 300.0
    pod_scheduling: float = 5.0
    """Until the Kubernetes scheduler fills a node that is open again."""

    slot_poke: float = 0.1
    """From a slot's write until the agent has read it."""
    slot_reread: float = 60.0
    """Until an agent that missed a poke reads its slot."""
    agent_start: float = 5.0
    """From the start of a machine or an agent until it has read its slot."""
    silent_after: float = 150.0
    """From an agent's death until it counts as silent; its last beat was earlier."""
    device_close: float = 1.0
    """Until a component has closed the devices."""
    divide: float = 5.0
    """Until the driver agent has divided the GPUs."""
    preflight: float = 2.0
    operand_pause: float = 3.0
    """Until foreign operands have left or returned after their label changed."""
    unload_retry: float = 5.0
    """Between two attempts at an unload that found holders."""


class Timer(NamedTuple):
    """A pending call. Of two at the same time, the lower entry comes first.

    A function and plain values, so that a copy of the timers is valid for a copy of the stage.
    """

    at: float
    entry: int
    callback: Callable[..., None]
    """Called with the state of the stage and the values."""
    values: tuple[Any, ...]


class Requester(NamedTuple):
    """The author and verb of a request to the API server."""

    verb: Verb
    user: str
    manager: str = ""


class ObjectRef(NamedTuple):
    kind: str
    name: str
    uid: str
    namespace: str = ""


NodeHandler = Callable[["StageState", str, frozenset[str]], None]
"""Called with the name of a Node and the paths that changed."""
MachineHandler = Callable[["StageState", StageMachine], None]
"""Called after a change on a machine."""


class StageState:
    def __init__(self, *, world: WorldModel, start: float, latencies: Latencies) -> None:
        self.now = start
        self.world = world
        self.latencies = latencies
        self.timers: list[Timer] = []
        """A heap."""
        self.timer_entries = 0
        self.revision = 100
        self.uids = 0
        """Number of generated uids."""

        self.nodes: dict[str, StageNode] = {}
        self.machines: dict[str, StageMachine] = {}
        self.pools: dict[str, PoolView] = {}
        """Policies and their Rollouts, as the API server has them."""
        self.daemon_sets: dict[str, str] = {}
        """Install digests by driver label."""

        self.gangs: dict[str, list[tuple[str, str]]] = {}
        """Machine and uid of the pods of each gang that lost no member yet."""
        self.budgets: dict[str, int] = {}
        """How many evictions each known disruption budget allows now."""
        self.bus_up = True
        self.slots: dict[tuple[str, str], StageSlot] = {}
        self.driver_facts: dict[str, DriverFacts] = {}

        self.memory: dict[str, NodeMemory] = {}
        self.writing_rollouts: set[str] = set()
        self.epoch = 1
        """The epoch of the current leader."""
        self.leader = 0
        """Number of the current leader; only effects of earlier ones can still arrive."""
        self.foreign_operator = ""

        self.node_handlers: tuple[NodeHandler, ...] = ()
        self.machine_handlers: tuple[MachineHandler, ...] = ()

        self.dirty: set[str] = set()
        """Nodes to decide about again."""
        self.dirty_pools: set[str] = set()
        self.decided_nodes: set[str] = set()
        """Nodes changed by a decision itself: in the next view, but not decided again for that."""
        self.decided_pools: set[str] = set()
        self.stale_views: set[str] = set()
        """Nodes with an outdated view."""
        self.stale_memory_views: set[str] = set()
        """Nodes with a view that is outdated only in the scheduler's memory."""
        self.stale_pool_views: set[str] = set()

    # Time.

    def call_after(self, seconds: float, callback: Callable[..., None], *values: Any) -> None:
        self.call_at(self.now + seconds, callback, *values)

    def call_at(self, at: float, callback: Callable[..., None], *values: Any) -> None:
        """Add a timer. Timers are never cancelled; callbacks ignore those that became void."""
        self.timer_entries += 1
        heappush(self.timers, Timer(at, self.timer_entries, callback, values))

    def run_until(self, time: float) -> None:
        """Advance to this time, running all timers on the way."""
        while self.timers and self.timers[0].at <= time:
            due = heappop(self.timers)
            self.now = max(self.now, due.at)
            due.callback(self, *due.values)
        self.now = max(self.now, time)

    # Changes.

    def new_uid(self, kind: str) -> str:
        self.uids += 1
        return f"{kind}-{self.uids}"

    def touch(self, name: str) -> None:
        """Mark the node as changed."""
        self.dirty.add(name)
        self.stale_views.add(name)

    def touch_pool(self, key: str) -> None:
        self.dirty_pools.add(key)
        self.stale_pool_views.add(key)

    def change_pool(self, key: str, **changes: Any) -> None:
        """Change a policy, or its Rollout."""
        self.pools[key] = msgspec.structs.replace(self.pools[key], **changes)
        self.touch_pool(key)

    def touch_decided(self, name: str) -> None:
        """Mark the node as changed by a decision about it."""
        self.decided_nodes.add(name)
        self.stale_memory_views.add(name)

    def touch_all(self, names: Iterable[str]) -> None:
        self.dirty.update(names)
        self.stale_views.update(self.dirty)

    def node_changed(self, name: str, paths: frozenset[str]) -> None:
        """Notify the handlers; `UID` is among the paths of a created or deleted Node."""
        for handler in self.node_handlers:
            handler(self, name, paths)

    def machine_changed(self, machine: StageMachine) -> None:
        for handler in self.machine_handlers:
            handler(self, machine)

    # Lookups.

    def memory_of(self, name: str) -> NodeMemory:
        return self.memory.setdefault(name, NodeMemory())

    def machine(self, name: str, boot: int) -> StageMachine | None:
        """Return the machine, if it is up and in this boot."""
        machine = self.machines.get(name)
        return machine if machine is not None and machine.up and machine.boot == boot else None

    # Overridden by simulations; a forecast does without.

    def log(self, text: str) -> None:
        """Log a line for people."""

    def on_request(
        self,
        ref: ObjectRef,
        by: Requester,
        code: int,
        revision: int = 0,
        after: StageNode | RolloutView | Mapping[str, Any] | None = None,
    ) -> None:
        """Observe a write or an attempt; `after`: the object as stored, or empty if it is gone."""

    def on_entry(
        self,
        machine: StageMachine,
        agent: StageAgent,
        command: Command,
        phase: EntryPhase,
        **details: Any,
    ) -> None:
        """Observe a line of an agent's journal."""

    def on_gate_opened(self, machine: StageMachine, pod: StageDriverPod) -> None:
        """Observe a driver pod that was admitted."""

    def on_driver_start(self, machine: StageMachine, pod: StageDriverPod) -> None:
        """Observe a driver container that is about to start."""

    def on_node_written(self, name: str, before: str, write: WriteNode, step: Step) -> None:
        """Observe a successful write to a Node that was in the state `before`."""

    def on_wait_changed(self, name: str, wait: Wait | None) -> None:
        """Observe another wait code of a node, or the end of its wait."""

    def on_node_answer(self, name: str) -> None:
        """Observe an answer of the API server about a Node."""

    def on_deletion_answer(self, name: str, uid: str) -> None:
        """Observe that the API server has deleted a driver pod of that node."""

    def on_rollout_answer(self, key: str) -> None:
        """Observe an answer of the API server about a Rollout."""

    def on_slot_answer(self, name: str, component: str) -> None:
        """Observe an answer of the bus about a slot."""

    def poke_seconds(self, name: str, component: str) -> float:
        """Return the time until a component reads a slot that is being written."""
        del name, component
        return self.latencies.slot_poke
