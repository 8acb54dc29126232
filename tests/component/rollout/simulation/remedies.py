"""Putting things right: first all that is broken, then whatever each wait says would end it."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.rollout import Brake
from libs.contracts.waits import WaitCode
from libs.forecast.stage import views
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import Wait
from libs.rollout.node_writes import upgrade_lease
from libs.rollout.views.node import MalformedAnnotation
from tests.component.rollout.simulation.checks import counted_pools
from tests.component.rollout.simulation.disturbances import DisturbanceContext
from tests.component.rollout.simulation.policies import builds_of


def repair_everything(hands: DisturbanceContext) -> None:
    """Faults end; what people did stays."""
    state = hands.state
    hands.faults.set_bus_up(True)
    hands.faults.foreign_operator("")
    for part in ("nodes", "pods", "reports", "rollouts"):
        hands.faults.unfreeze(part)
    state.sources.clear()
    for name, machine in state.machines.items():
        hands.faults.miss_pokes(name)
        if not machine.up and name in state.nodes:
            hands.faults.power_on(name)
        if not machine.kubelet_connected:
            hands.faults.reconnect_kubelet(name)
        if not machine.connected:
            hands.faults.reconnect_agents(name)
        for part, agent in machine.agents.items():
            if machine.up and (agent.hung or not agent.alive):
                hands.faults.restart_agent(name, part)
    for key in state.pools:
        state.touch_pool(key)


def apply_remedies(hands: DisturbanceContext, waiting: Mapping[str, Wait]) -> None:
    """What would end these waits is done, whoever would have to do it."""
    for name, wait in waiting.items():
        node = hands.state.nodes.get(name)
        if node is not None and (do := _CURES.get(wait.code)) is not None:
            do(hands, name, node.pool)


def _release(hands: DisturbanceContext, _name: str, pool: str) -> None:
    there = hands.state.pools[pool]
    if there.rollout is not None:
        known = there.rollout.status.targets.get(there.target)
        hands.people.set_release(pool, there.target, len(known.failed) if known else 1)


def _take_off_brake(hands: DisturbanceContext, _name: str, pool: str) -> None:
    hands.people.set_brake(pool, Brake.NONE)
    there = hands.state.pools[pool]
    if not there.upgrade.auto_upgrade:
        hands.people.edit_policy(pool, upgrade=replace(there.upgrade, auto_upgrade=True))


def _allow_more(hands: DisturbanceContext, name: str, _pool: str) -> None:
    node = views.node_view(hands.state, name)
    for pool in counted_pools(node) if node is not None else ():
        if pool in hands.state.pools:
            upgrade = hands.state.pools[pool].upgrade
            hands.people.edit_policy(pool, upgrade=replace(upgrade, max_unavailable="100%"))


def _no_longer_skip(hands: DisturbanceContext, name: str, _pool: str) -> None:
    hands.people.set_skip(name, False)
    hands.people.uncordon(name)
    node = views.node_view(hands.state, name)
    if node is not None and isinstance(node.lease, MalformedAnnotation):
        hands.people.set_lease(name, None)


def _clear(hands: DisturbanceContext, name: str, _pool: str) -> None:
    hands.people.clear_obstacles(name)
    hands.people.set_host_processes(name, 0)
    hands.people.end_tenants(name)


def _end_work(hands: DisturbanceContext, name: str, _pool: str) -> None:
    hands.people.end_tenants(name)


def _retry(hands: DisturbanceContext, name: str, _pool: str) -> None:
    hands.people.clear_obstacles(name)
    hands.people.set_host_processes(name, 0)
    hands.people.end_tenants(name)
    if hands.state.machines[name].is_unloading:
        hands.faults.reboot(name)
    hands.people.set_state(name, UpgradeState.UPGRADE_REQUIRED)


def _put_back(hands: DisturbanceContext, name: str, pool: str) -> None:
    """Whoever edited it puts back what the record says; where that is no help, it is retried."""
    node = views.node_view(hands.state, name)
    if node is None or not isinstance(node.record, NodeRecord):
        return
    state, label = node.state != node.record.state, node.driver_label != node.record.label
    if not upgrade_lease(node) or not (state or label):
        _retry(hands, name, pool)
        return
    if state:
        hands.people.set_state(name, node.record.state)
    if label:
        hands.people.set_driver_label(name, node.record.label)


def _start_driver(hands: DisturbanceContext, name: str, pool: str) -> None:
    """Whoever looks after the machine has its driver started anew."""
    if hands.state.pools[pool].method is InstallMethod.CONTAINER:
        hands.people.delete_driver_pod(name)
    else:
        hands.faults.reboot(name)


def _adopt(hands: DisturbanceContext, name: str, _pool: str) -> None:
    hands.people.set_request(name, "adopt")


def _start(hands: DisturbanceContext, name: str, _pool: str) -> None:
    machine = hands.state.machines[name]
    if not machine.up:
        hands.faults.power_on(name)
    for part in machine.agents:
        hands.faults.restart_agent(name, part)


def _build(hands: DisturbanceContext, name: str, pool: str) -> None:
    there = hands.state.pools[pool]
    if there.method is InstallMethod.PRE_INSTALLED:
        hands.people.install_driver(name, "of its owner")
        return
    hands.people.set_target(pool, there.target, builds_of(pool, there.target, there.method))


def _restore(hands: DisturbanceContext, _name: str, pool: str) -> None:
    if pool:
        hands.people.edit_policy(pool, gone=False)


_CURES: dict[WaitCode, Callable[[DisturbanceContext, str, str], None]] = {
    WaitCode.BUDGET: _allow_more,
    WaitCode.HALTED: _release,
    WaitCode.PAUSED: _take_off_brake,
    WaitCode.FROZEN: _take_off_brake,
    WaitCode.SKIPPED: _no_longer_skip,
    WaitCode.PREFLIGHT: _clear,
    WaitCode.AGENT_SILENT: _start,
    WaitCode.NOT_READY: _start,
    WaitCode.TARGET_MISSING: _build,
    WaitCode.BACK_OFF: _end_work,
    WaitCode.DRIVER_START: _start_driver,
    WaitCode.JOBS: _end_work,
    WaitCode.EVICTION: _end_work,
    WaitCode.PDB: _end_work,
    WaitCode.FAILED: _retry,
    WaitCode.LABEL_EDITED: _put_back,
    WaitCode.RECORD_LOST: _adopt,
    WaitCode.POLICY_GONE: _restore,
}
