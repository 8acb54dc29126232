"""Nodes whose way is plain are taken along it in one leap.

So a play of thousands of nodes decides about each a few times instead of fifty. Whatever is not
plain is played step by step. Must not know what a plain way is, nor what a node is like at its end.
"""

from collections.abc import Iterator

from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.reports import Preflight
from libs.forecast.stage import api, evictions
from libs.forecast.stage.field_paths import LEASE
from libs.forecast.stage.objects import StageMachine, StageNode
from libs.forecast.stage.state import StageState
from libs.forecast.upgrade_estimate import UpgradeEstimate, estimate_upgrade
from libs.forecast.upgraded_node import apply_upgrade
from libs.rollout.views.machine import EvictionExemption, PreflightQuery

_FOR_GOOD = 1e12


class FastForward:
    """Of one play."""

    def __init__(self, state: StageState) -> None:
        self._state = state
        self._known: set[tuple[str, int]] = set()
        """Nodes, by the token under which they were looked at."""
        self._aloft: set[str] = set()
        for node in state.nodes.values():
            _checked(state, node)

    @property
    def changed_nodes(self) -> set[str]:
        """Of the nodes that changed, those that are not on their leap."""
        return self._state.dirty - self._aloft

    def start(self) -> Iterator[tuple[str, UpgradeEstimate]]:
        """Who leaps now, of all that changed."""
        for name in self.changed_nodes:
            way = self._way(name)
            if way is not None:
                yield name, way

    def _way(self, name: str) -> UpgradeEstimate | None:
        state = self._state
        node, record = _emptying(state, name)
        if node is None or record is None or (name, record.token) in self._known:
            return None
        known = state.memory_of(name)
        if known.writing:
            return None
        self._known.add((name, record.token))
        way = None if evictions.has_pending(state, name) else estimate_upgrade(state, node, record)
        if way is not None:
            known.writing += 1
            node.taint = True
            self._aloft.add(name)
            state.stale_views.add(name)
            state.timers.add(way.label_moves_at, move_label, name, way, self._aloft)
        return way


def move_label(state: StageState, name: str, estimate: UpgradeEstimate, active: set[str]) -> None:
    """Its pods are gone, and its label would move: not where the target was halted meanwhile."""
    machine, pool = state.machines[name], state.pools[estimate.record.pool]
    for uid in estimate.evicted_pods:
        machine.tenant_pods.pop(uid, None)
    targets = pool.rollout.status.targets if pool.rollout is not None else {}
    target = targets.get(estimate.record.target)
    if target is not None and target.halted_because:
        resume_decisions(state, name, active)
    else:
        state.timers.add(estimate.ends_at, finish_fast_forward, name, estimate, active)


def finish_fast_forward(
    state: StageState, name: str, estimate: UpgradeEstimate, active: set[str]
) -> None:
    """It is given back, upgraded in good order."""
    apply_upgrade(state, state.nodes[name], estimate)
    resume_decisions(state, name, active)


def resume_decisions(state: StageState, name: str, active: set[str]) -> None:
    """From here on it is decided about again."""
    active.discard(name)
    state.memory_of(name).writing -= 1
    state.touch(name)


def _emptying(state: StageState, name: str) -> tuple[StageNode | None, NodeRecord | None]:
    """The node, if it is leased for an upgrade and its pods are the next to go."""
    node = state.nodes.get(name)
    record = api.record_of(node) if node is not None else None
    if node is None or record is None or api.value(node, LEASE) is None:
        return None, None
    return node, record if record.state == UpgradeState.POD_DELETION_REQUIRED else None


def _checked(state: StageState, node: StageNode) -> None:
    """A preflight that will find nothing has found nothing: nobody else changes machines here."""
    machine, pool = state.machines[node.name], state.pools.get(node.pool)
    build = None if pool is None else pool.builds.get(pool.target, {}).get(node.variant)
    if build is None or not _unobstructed(machine):
        return
    known = state.memory_of(node.name)
    nothing = Preflight(check=f"check-{node.name}", label=build.label)
    known.preflight_boot = node.boot_id
    known.preflight = PreflightQuery(
        label=build.label, asked_at=state.now, answered_at=_FOR_GOOD, answer=nothing
    )
    state.stale_views.add(node.name)


def _unobstructed(machine: StageMachine) -> bool:
    driver = machine.agents.get("driver")
    if driver is None or driver.silent_at is not None:
        return False
    if machine.host_processes or machine.obstacles:
        return False
    tenants = (work.tenant for work in machine.tenant_pods.values() if work.tenant.gpus)
    return not any(
        tenant.exemption is not EvictionExemption.NONE or tenant.bare or tenant.empty_dir
        for tenant in tenants
    )
