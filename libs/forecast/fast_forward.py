"""Fast-forward upgrades in which nothing goes wrong.

Deciding about each of their steps costs ten times as much. Every other node is played step by step.
"""

from collections.abc import Iterator

from libs.contracts.node import UpgradeState
from libs.contracts.paths import LEASE
from libs.contracts.reports import Preflight
from libs.forecast.stage import api, driver_agent, effects, installed, tenant_pods
from libs.forecast.stage.objects import StageMachine, StageNode
from libs.forecast.stage.state import StageState
from libs.forecast.upgrade_estimate import UpgradeEstimate, estimate_upgrade
from libs.rollout.views.machine import EvictionExemption, PreflightQuery

_NEVER_EXPIRES = 1e12


class FastForward:
    """The fast-forwarded nodes of one play."""

    def __init__(self, state: StageState) -> None:
        self._state = state
        self._estimated: set[tuple[str, int]] = set()
        """Nodes with the token of the lease for which they were estimated, once each."""
        self._active: set[str] = set()
        for node in state.nodes.values():
            _answer_preflight(state, node)

    @property
    def changed_nodes(self) -> set[str]:
        """The changed nodes, without those that are being fast-forwarded."""
        return self._state.dirty - self._active

    def start(self) -> Iterator[tuple[str, UpgradeEstimate]]:
        """Fast-forward the changed nodes that qualify for it."""
        for name in self.changed_nodes:
            estimate = self._estimate(name)
            if estimate is not None:
                self._begin(name, estimate)
                yield name, estimate

    def _estimate(self, name: str) -> UpgradeEstimate | None:
        state = self._state
        node = state.nodes.get(name)
        record = api.record_of(node) if node is not None else None
        if node is None or record is None or api.value(node, LEASE) is None:
            return None
        if record.state != UpgradeState.POD_DELETION_REQUIRED or state.memory_of(name).writing:
            return None
        if (name, record.token) in self._estimated or state.machines[name].failed_gpus:
            return None
        self._estimated.add((name, record.token))
        return (
            None
            if effects.has_pending_evictions(state, name)
            else estimate_upgrade(state, node, record)
        )

    def _begin(self, name: str, estimate: UpgradeEstimate) -> None:
        """Keep the engine from deciding about the node, as if a write were unanswered."""
        state = self._state
        state.memory_of(name).writing += 1
        node = state.nodes[name]
        node.store(api.with_cordon_taint(node, True))
        self._active.add(name)
        state.stale_views.add(name)
        state.call_at(estimate.label_moves_at, move_label, name, estimate, self._active)


def move_label(state: StageState, name: str, estimate: UpgradeEstimate, active: set[str]) -> None:
    """Remove the evicted pods, and continue unless the target was halted meanwhile."""
    machine, pool = state.machines[name], state.pools[estimate.upgrade.pool]
    for uid in estimate.evicted_pods:
        pod = machine.tenant_pods.pop(uid, None)
        if pod is not None:
            tenant_pods.stop_gang(state, pod.tenant.gang)
    targets = pool.rollout.status.targets if pool.rollout is not None else {}
    target = targets.get(estimate.upgrade.target)
    if target is not None and target.halted_because:
        _resume_decisions(state, name, active)
    else:
        state.call_at(estimate.upgrade.at, finish_fast_forward, name, estimate, active)


def finish_fast_forward(
    state: StageState, name: str, estimate: UpgradeEstimate, active: set[str]
) -> None:
    """Leave the node as the steps of its upgrade would have left it."""
    node, machine, upgrade = state.nodes[name], state.machines[name], estimate.upgrade
    label = upgrade.build.label
    for operation, count in (
        ("unload", estimate.unloads),
        (f"load {label}", estimate.loads),
        (f"run {label}", 1),
        (f"validation {label}", 1),
    ):
        machine.counts[operation] = machine.counts.get(operation, 0) + count
    installed.load_driver(machine, upgrade, preinstalled=False)
    installed.run_driver_pod(state, machine, upgrade, restarts=estimate.loads - 1)
    evidence = installed.evidence_of(node, machine, upgrade)
    installed.idle_agents(state, node, machine, upgrade, evidence)
    fields = installed.node_fields(node, machine, upgrade)
    api.change_fields(state, node, api.apply_fields(node.fields, fields), api.OUR_APPLY)
    node.store(api.with_cordon_taint(node, node.view.cordoned))
    driver_agent.report_facts(state, machine)
    tenant_pods.refill_node(state, name, node.view.uid)
    _resume_decisions(state, name, active)


def _resume_decisions(state: StageState, name: str, active: set[str]) -> None:
    active.discard(name)
    state.memory_of(name).writing -= 1
    state.touch(name)


def _answer_preflight(state: StageState, node: StageNode) -> None:
    """Store a preflight answer that never expires, for a node that would pass the check.

    Where an image has to be brought, the check that requests it is played.
    """
    machine, pool = state.machines[node.view.name], state.pools.get(node.view.pool)
    build = None if pool is None else pool.builds.get(pool.target, {}).get(node.view.variant)
    if build is None or not _passes_preflight(machine):
        return
    if build.image and build.label not in machine.images:
        return
    memory = state.memory_of(node.view.name)
    memory.preflight_boot = node.view.boot_id
    memory.preflight = PreflightQuery(
        label=build.label,
        asked_at=state.now,
        artefact=build.artefact,
        answered_at=_NEVER_EXPIRES,
        answer=Preflight(check=f"check-{node.view.name}", label=build.label),
    )
    state.stale_views.add(node.view.name)


def _passes_preflight(machine: StageMachine) -> bool:
    driver = machine.agents.get("driver")
    if driver is None or driver.silent_at is not None:
        return False
    if machine.host_processes or machine.obstacles:
        return False
    tenants = (pod.tenant for pod in machine.tenant_pods.values() if pod.tenant.gpus)
    return not any(
        tenant.exemption is not EvictionExemption.NONE or tenant.bare or tenant.empty_dir
        for tenant in tenants
    )
