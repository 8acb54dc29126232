"""The run of each node under our engine, observed on the Node and on its machine.

Its main figure is the time for which a node under a lease waits only for the scheduler. This module
is independent of decisions.
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
    """The last known end of waits for anything but the scheduler."""


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
        """How often the record of a node began to pause other operands."""
        self.pod_watches = PodWatches()
        self._target = target
        self._changed_names: set[str] = set()
        self._required: set[str] = set()
        self._paused: set[str] = set()
        self._followed_changed = True
        """Whether the nodes in flight or next have changed."""
        state.node_handlers += (self._on_node_changed,)
        state.machine_handlers += (self._on_machine_changed,)

    def moment(self, state: StageState) -> None:
        """Account for everything at the present time."""
        for name in state.dirty | self._changed_names:
            self._count_idle(state, name)
        self._changed_names.clear()

    def decided(self, state: StageState) -> None:
        """Account for the grants and checks of a decision."""
        if self._followed_changed:
            self._followed_changed = False
            self.pod_watches.follow(self._followed(state), state.now)

    def asks(self) -> None:
        """Note that checks are requested or a Rollout is written."""
        self._followed_changed = True

    def _on_machine_changed(self, _state: StageState, machine: StageMachine) -> None:
        self._changed_names.add(machine.name)

    def _on_node_changed(self, state: StageState, name: str, paths: frozenset[str]) -> None:
        node = state.nodes[name]
        run, now = self.of[name], state.now
        self._changed_names.add(name)
        if DRIVER in paths and node.view.driver_label == self._target and run.started is None:
            run.started = now
        if STATE in paths and node.writers.get(STATE) == MANAGER:
            self._enter_state(state, name)
        record = api.record_of(node)
        paused = record is not None and record.paused
        self.pauses += paused and name not in self._paused
        (self._paused.add if paused else self._paused.discard)(name)
        if STATE in paths or LEASE in paths:
            self._followed_changed = True
            required = api.value(node, LEASE) is None and api.value(node, STATE) not in _RESTING
            (self._required.add if required else self._required.discard)(name)

    def _enter_state(self, state: StageState, name: str) -> None:
        node, run = state.nodes[name], self.of[name]
        now, new_state = state.now, api.value(node, STATE)
        self.events += 1
        self.changed = now
        if new_state == UpgradeState.UPGRADE_FAILED and run.failed is None:
            run.failed = now
        if new_state == UpgradeState.UPGRADE_DONE and run.started is not None:
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
        in_flight = {name for name, run in self.of.items() if run.leased}
        for pool in state.pools.values():
            if pool.rollout is not None:
                in_flight.update(each.node for each in pool.rollout.status.in_flight.values())
        required = self._required - in_flight
        asked = {name for name in required if state.memory_of(name).preflight is not None}
        first = [*sorted(in_flight), *sorted(asked)]
        room = max(0, MAX_WATCHED_NODES - len(first))
        rest = sorted(required - asked)[:room] if room else []
        return [*first, *rest]


def busy_until(state: StageState, name: str) -> float:
    """Return the known end of a node's waits for anything but the scheduler.

    Such waits are for pods that end; a driver that ends, is pulled, loads or restarts; modules that
    are unloaded; components that release devices; and a validation. Requests and retries of the
    scheduler do not count.
    """
    machine = state.machines[name]
    if machine.is_unloading or _pods_end(state, name) or _drivers_work(machine):
        return math.inf
    for agent in machine.agents.values():
        if agent.running and isinstance(agent.body, Quiesce) and agent.holds_devices:
            return math.inf
        if agent.running and isinstance(agent.body, Validate) and agent.phase in VALIDATION_STEPS:
            return math.inf
    refused = (
        math.inf
        if pod.tenant.eviction_refused_for is None
        else pod.first_refused + pod.tenant.eviction_refused_for
        for pod in machine.tenant_pods.values()
        if pod.first_refused is not None
    )
    return max(refused, default=-math.inf)


def _pods_end(state: StageState, name: str) -> bool:
    waits = api.value(state.nodes[name], STATE) == UpgradeState.WAIT_FOR_JOBS_REQUIRED
    return any(
        pod.deleting or (waits and pod.tenant.job)
        for pod in state.machines[name].tenant_pods.values()
    )


def _drivers_work(machine: StageMachine) -> bool:
    return any(
        pod.deleting
        or pod.phase in _WORKING
        or (pod.phase is DriverPodPhase.RUNNING and not pod.status.ready)
        for pod in machine.drivers.values()
    )
