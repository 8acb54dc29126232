"""The metrics of the scheduler: those of the GPU Operator by the same names, and its own."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.rollout.decision import BudgetUsage
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.runtime.metrics import Metrics
from services.scheduler.drained import DrainedSeconds

_STATES: Final = tuple(state.value for state in UpgradeState if state.value)
_KINDS: Final = ("node", "rollout", "eviction", "pod")
_OUTCOMES: Final = ("done", "conflict", "failed")
_IDLE: Final = frozenset(
    {
        "",
        UpgradeState.UPGRADE_REQUIRED.value,
        UpgradeState.UPGRADE_DONE.value,
        UpgradeState.UPGRADE_FAILED.value,
    }
)
_STATE_BUCKETS: Final = (
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
    21600.0,
)
_DECISION_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class SchedulerMetrics:
    """Metrics of one process; the gauges of nodes are zero while it does not lead."""

    def __init__(self, metrics: Metrics) -> None:
        self._auto = metrics.gauge(
            "gpu_operator_driver_auto_upgrade_enabled",
            "1 if driver auto upgrade is enabled 0 if not",
        )
        self._in_progress = metrics.gauge(
            "gpu_operator_nodes_upgrades_in_progress",
            "Total number of nodes on which the gpu operator pods are being upgraded",
        )
        self._done = metrics.gauge(
            "gpu_operator_nodes_upgrades_done",
            "Total number of nodes on which the gpu operator pods are successfully upgraded",
        )
        self._failed = metrics.gauge(
            "gpu_operator_nodes_upgrades_failed",
            "Total number of nodes on which the gpu operator pod upgrades have failed",
        )
        self._available = metrics.gauge(
            "gpu_operator_nodes_upgrades_available",
            "Total number of nodes on which the gpu operator pod upgrades can be done",
        )
        self._pending = metrics.gauge(
            "gpu_operator_nodes_upgrades_pending",
            "Total number of nodes on which the gpu operator pod upgrades are pending",
        )
        self._leading = metrics.gauge("sluice_scheduler_leading", "1 while this process leads.")
        self._serving = metrics.gauge(
            "sluice_scheduler_serving_queries", "1 while this process leads and answers queries."
        )
        self._state_seconds = metrics.histogram(
            "sluice_scheduler_state_seconds",
            "Seconds that nodes spent in each state of an upgrade.",
            _STATE_BUCKETS,
            state=_STATES,
        )
        self._drained_seconds = metrics.histogram(
            "sluice_scheduler_drained_seconds",
            "Seconds that nodes were cordoned for an upgrade that succeeded.",
            _STATE_BUCKETS,
        )
        self._pulling_seconds = metrics.histogram(
            "sluice_scheduler_drained_pulling_seconds",
            "Seconds of those that passed while the driver's image was pulled.",
            _STATE_BUCKETS,
        )
        self._waiting = metrics.gauge(
            "sluice_scheduler_nodes_waiting",
            "Nodes that wait, by wait code.",
            code=[code.value for code in WaitCode],
        )
        self._writes = metrics.counter(
            "sluice_scheduler_api_writes",
            "Write requests to the API server, by kind of object and outcome.",
            kind=_KINDS,
            outcome=_OUTCOMES,
        )
        self._decision_seconds = metrics.histogram(
            "sluice_scheduler_decision_seconds", "Seconds that a decision took.", _DECISION_BUCKETS
        )
        self._unreadable = metrics.gauge(
            "sluice_scheduler_objects_unreadable",
            "Objects of the API server that cannot be read; the log names them.",
        )
        self._machine_ahead = metrics.gauge(
            "sluice_scheduler_machine_clock_ahead_seconds",
            "Seconds by which the machine's clock is ahead of the time that the leader goes by.",
        )
        self._node_ahead = metrics.gauge(
            "sluice_scheduler_node_clock_ahead_seconds",
            "Seconds by which the clock of the node that is furthest off is ahead of the leader's"
            " time; the query why names a node's.",
        )
        self._dropped = metrics.counter(
            "sluice_scheduler_events_dropped",
            "Events dropped because the bus did not accept them in time.",
        )
        self._states: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._codes: dict[str, WaitCode] = {}

    def set_leading(self, leading: bool) -> None:
        self._leading.set(leading)
        if not leading:
            self._clear()

    def set_serving(self, serving: bool) -> None:
        self._serving.set(serving)

    def nodes_changed(self, nodes: Iterable[NodeView], gone: Iterable[str]) -> None:
        for node in nodes:
            self._count(node.name, node.state)
        for name in gone:
            self._count(name, None)
        counts = self._counts
        idle = sum(counts[state] for state in _IDLE)
        self._in_progress.set(sum(counts.values()) - idle)
        self._done.set(counts[UpgradeState.UPGRADE_DONE.value])
        self._failed.set(counts[UpgradeState.UPGRADE_FAILED.value])
        self._pending.set(counts[UpgradeState.UPGRADE_REQUIRED.value])

    def decided(
        self, seconds: float, budgets: Mapping[str, BudgetUsage], pools: Mapping[str, PoolView]
    ) -> None:
        self._decision_seconds.observe(seconds)
        self._available.set(sum(_free(budget) for budget in budgets.values()))
        self._auto.set(any(not p.gone and p.upgrade.auto_upgrade for p in pools.values()))

    def set_wait(self, name: str, code: WaitCode | None) -> None:
        """Count a node under the code of its wait; None: it does not wait."""
        before = self._codes.pop(name, None)
        if before is not None:
            self._waiting.labels(before.value).dec()
        if code is not None:
            self._codes[name] = code
            self._waiting.labels(code.value).inc()

    def state_left(self, state: str, seconds: float) -> None:
        if state in _STATES:
            self._state_seconds.labels(state).observe(seconds)

    def node_upgraded(self, drained: DrainedSeconds) -> None:
        """Count the end of an upgrade for which a node was cordoned."""
        self._drained_seconds.observe(drained.total)
        self._pulling_seconds.observe(drained.pulling)

    def count_write(self, kind: str, outcome: str) -> None:
        self._writes.labels(kind, outcome).inc()

    def set_machine_ahead(self, seconds: float) -> None:
        self._machine_ahead.set(seconds)

    def set_node_ahead(self, seconds: float) -> None:
        self._node_ahead.set(seconds)

    def set_unreadable(self, count: int) -> None:
        self._unreadable.set(count)

    def event_dropped(self) -> None:
        self._dropped.inc()

    def _clear(self) -> None:
        self._available.set(0)
        self._machine_ahead.set(0)
        self._node_ahead.set(0)
        self.nodes_changed((), tuple(self._states))
        for name in tuple(self._codes):
            self.set_wait(name, None)

    def _count(self, name: str, state: str | None) -> None:
        before = self._states.pop(name, None)
        if before is not None:
            self._counts[before] -= 1
        if state is not None:
            self._states[name] = state
            self._counts[state] += 1


def _free(budget: BudgetUsage) -> int:
    free = budget.limit - len(budget.unavailable)
    if budget.parallel_limit is None:
        return free
    return min(free, budget.parallel_limit - budget.parallel)
