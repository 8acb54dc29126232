"""What becomes of each node under our engine, as it is written on the Node and on its machine.

Above all: for how long a node under a lease waits for nothing but us. Must not know what is
decided.
"""

import math
from dataclasses import dataclass

from bench.ours_costs import PodWatches
from libs.contracts.commands import Quiesce, Validate
from libs.contracts.node import MANAGER, UpgradeState
from libs.contracts.paths import DRIVER, LEASE, STATE
from libs.forecast.stage import api
from libs.forecast.stage.objects import DriverPodPhase, StageMachine
from libs.forecast.stage.state import StageState
from libs.forecast.world import VALIDATION_STEPS
from services.scheduler.pod_cache import MAX_WATCHED_NODES

_WORKING = frozenset({DriverPodPhase.PULLING, DriverPodPhase.LOADING, DriverPodPhase.CRASHED})
_RESTING = frozenset({UpgradeState.UPGRADE_DONE.value, UpgradeState.UPGRADE_FAILED.value})


@dataclass(slots=True)
class NodeRun:
    started: float | None = None
    """When the driver label moved to the new driver."""
    failed: float | None = None
    """When the node was first reported as failed."""
    idle: float = 0.0
    leased: bool = False
    since: float = 0.0
    """When the node was last checked."""
    until: float = -math.inf
    """Until when, as last known, the node waits for something other than the scheduler."""


class NodeRuns:
    """The runs of all nodes; follows the Nodes of a stage."""

    def __init__(self, state: StageState, target: str) -> None:
        self.of = {name: NodeRun() for name in state.nodes}
        self.changed = state.now
        """The time of the last write of a state."""
        self.events = 0
        self.unproven = 0
        """Nodes that finished on the new driver without evidence."""
        self.pauses = 0
        """How often the record of a node newly said that other operands pause."""
        self.pod_watches = PodWatches()
        self._target = target
        self._stirred: set[str] = set()
        self._required: set[str] = set()
        self._paused: set[str] = set()
        self._others = True
        """Whether the nodes in flight or next have changed."""
        state.node_handlers += (self._on_node_changed,)
        state.machine_handlers += (self._on_machine_changed,)

    def moment(self, state: StageState) -> None:
        """Account for everything at the present time."""
        for name in state.dirty | self._stirred:
            self._count_idle(state, name)
        self._stirred.clear()

    def decided(self, state: StageState) -> None:
        """Account for the grants and checks of a decision."""
        if self._others:
            self._others = False
            self.pod_watches.follow(self._followed(state), state.now)

    def asks(self) -> None:
        """Note that checks are requested or a Rollout is written."""
        self._others = True

    def _on_machine_changed(self, _state: StageState, machine: StageMachine) -> None:
        self._stirred.add(machine.name)

    def _on_node_changed(self, state: StageState, name: str, paths: frozenset[str]) -> None:
        node = state.nodes[name]
        run, now = self.of[name], state.now
        self._stirred.add(name)
        if DRIVER in paths and api.driver_label_of(node) == self._target and run.started is None:
            run.started = now
        if STATE in paths and node.writers.get(STATE) == MANAGER:
            self._enters(state, name)
        record = api.record_of(node)
        paused = record is not None and record.paused
        self.pauses += paused and name not in self._paused
        (self._paused.add if paused else self._paused.discard)(name)
        if STATE in paths or LEASE in paths:
            self._others = True
            required = api.value(node, LEASE) is None and api.value(node, STATE) not in _RESTING
            (self._required.add if required else self._required.discard)(name)

    def _enters(self, state: StageState, name: str) -> None:
        node, run = state.nodes[name], self.of[name]
        now, is_now = state.now, api.value(node, STATE)
        self.events += 1
        self.changed = now
        if is_now == UpgradeState.UPGRADE_FAILED and run.failed is None:
            run.failed = now
        if is_now == UpgradeState.UPGRADE_DONE and run.started is not None:
            record = api.record_of(node)
            evidence = record.evidence if record is not None else None
            self.unproven += not (evidence and evidence.passed and evidence.label == self._target)

    def _count_idle(self, state: StageState, name: str) -> None:
        """Count the time since the last check in which the node waited only for the scheduler."""
        run, now = self.of[name], state.now
        if run.leased:
            run.idle += max(0.0, now - max(run.since, min(run.until, now)))
        run.leased = api.value(state.nodes[name], LEASE) is not None
        run.since = now
        run.until = busy_until(state, name) if run.leased else -math.inf

    def _followed(self, state: StageState) -> list[str]:
        """Return the nodes whose pods the scheduler watches: in flight, checked, then next."""
        flying = {name for name, run in self.of.items() if run.leased}
        for pool in state.pools.values():
            if pool.rollout is not None:
                flying.update(each.node for each in pool.rollout.status.in_flight.values())
        required = self._required - flying
        asked = {name for name in required if state.memory_of(name).preflight is not None}
        first = [*sorted(flying), *sorted(asked)]
        room = max(0, MAX_WATCHED_NODES - len(first))
        rest = sorted(required - asked)[:room] if room else []
        return [*first, *rest]


def busy_until(state: StageState, name: str) -> float:
    """Until when, as far as can be known now, a node waits for something else than us.

    For pods that leave, a driver that ends, is fetched, loads or is started again, modules that
    come out, components that let go, and a validation; not for requests, pokes or our own retries.
    """
    machine = state.machines[name]
    if machine.is_unloading or _pods_leave(state, name) or _drivers_work(machine):
        return math.inf
    for agent in machine.agents.values():
        if agent.running and isinstance(agent.body, Quiesce) and agent.holds_devices:
            return math.inf
        if agent.running and isinstance(agent.body, Validate) and agent.phase in VALIDATION_STEPS:
            return math.inf
    refused = (
        math.inf
        if work.tenant.eviction_refused_for is None
        else work.first_refused + work.tenant.eviction_refused_for
        for work in machine.tenant_pods.values()
        if work.first_refused is not None
    )
    return max(refused, default=-math.inf)


def _pods_leave(state: StageState, name: str) -> bool:
    waits = api.value(state.nodes[name], STATE) == UpgradeState.WAIT_FOR_JOBS_REQUIRED
    return any(
        work.deleting or (waits and work.tenant.job)
        for work in state.machines[name].tenant_pods.values()
    )


def _drivers_work(machine: StageMachine) -> bool:
    return any(
        pod.deleting
        or pod.phase in _WORKING
        or (pod.phase is DriverPodPhase.RUNNING and not pod.status.ready)
        for pod in machine.drivers.values()
    )
