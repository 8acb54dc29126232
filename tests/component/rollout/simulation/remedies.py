"""Repair every fault, and do what each wait asks of a user."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.rollout import Brake
from libs.contracts.waits import WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import Wait
from libs.rollout.views.node import MalformedAnnotation
from tests.component.rollout.simulation.checks import counted_pools
from tests.component.rollout.simulation.disturbances import DisturbanceContext
from tests.component.rollout.simulation.policies import builds_of


def repair_everything(context: DisturbanceContext) -> None:
    """End every fault; what users did stays."""
    state = context.state
    context.faults.set_bus_up(True)
    context.faults.foreign_operator("")
    for part in ("nodes", "pods", "reports", "rollouts"):
        context.faults.unfreeze(part)
    state.sources.clear()
    for name, machine in state.machines.items():
        context.faults.miss_pokes(name)
        if not machine.up and name in state.nodes:
            context.faults.power_on(name)
        if not machine.kubelet_connected:
            context.faults.reconnect_kubelet(name)
        if not machine.connected:
            context.faults.reconnect_agents(name)
        for part, agent in machine.agents.items():
            if machine.up and (agent.hung or not agent.alive):
                context.faults.restart_agent(name, part)
    for key in state.pools:
        state.touch_pool(key)


def apply_remedies(context: DisturbanceContext, waits: Mapping[str, Wait]) -> None:
    """End each of these waits, as a user or an administrator would."""
    for name, wait in waits.items():
        node = context.state.nodes.get(name)
        if node is not None and (remedy := _REMEDIES.get(wait.code)) is not None:
            remedy(context, name, node.view.pool)


def _release(context: DisturbanceContext, _name: str, pool: str) -> None:
    state = context.state.pools[pool]
    if state.rollout is not None:
        record = state.rollout.status.targets.get(state.target)
        context.users.set_release(pool, state.target, len(record.harmed) if record else 1)


def _remove_brake(context: DisturbanceContext, _name: str, pool: str) -> None:
    context.users.set_brake(pool, Brake.NONE)
    upgrade = context.state.pools[pool].upgrade
    if not upgrade.auto_upgrade:
        context.users.edit_policy(pool, upgrade=replace(upgrade, auto_upgrade=True))


def _raise_budget(context: DisturbanceContext, name: str, _pool: str) -> None:
    node = context.state.node_view(name)
    for pool in counted_pools(node) if node is not None else ():
        if pool in context.state.pools:
            upgrade = context.state.pools[pool].upgrade
            context.users.edit_policy(pool, upgrade=replace(upgrade, max_unavailable="100%"))


def _end_skip(context: DisturbanceContext, name: str, _pool: str) -> None:
    context.users.set_skip(name, False)
    context.users.uncordon(name)
    context.users.return_lease(name)
    node = context.state.node_view(name)
    if node is not None and isinstance(node.lease, MalformedAnnotation):
        context.users.set_lease(name, None)


def _clear_preflight(context: DisturbanceContext, name: str, _pool: str) -> None:
    context.users.clear_obstacles(name)
    context.users.set_host_processes(name, 0)
    context.users.end_tenants(name)


def _end_work(context: DisturbanceContext, name: str, _pool: str) -> None:
    context.users.end_tenants(name)


def _repair_gpus(context: DisturbanceContext, name: str, _pool: str) -> None:
    context.faults.repair_gpus(name)
    if context.state.machines[name].loaded is None:  # without a driver nothing is known of them
        context.users.set_operator_request(name)


def _retry(context: DisturbanceContext, name: str, _pool: str) -> None:
    context.faults.repair_gpus(name)
    context.users.clear_obstacles(name)
    context.users.set_host_processes(name, 0)
    context.users.end_tenants(name)
    if context.state.machines[name].is_unloading:
        context.faults.reboot(name)
    context.users.set_state(name, UpgradeState.UPGRADE_REQUIRED)


def _undo_edits(context: DisturbanceContext, name: str, pool: str) -> None:
    """Restore the labels of the record; otherwise retry the node."""
    node = context.state.node_view(name)
    if node is None or not isinstance(node.record, NodeRecord):
        return
    state, label = node.state != node.record.state, node.driver_label != node.record.label
    if not node.upgrade_lease or not (state or label):
        _retry(context, name, pool)
        return
    if state:
        context.users.set_state(name, node.record.state)
    if label:
        context.users.set_driver_label(name, node.record.label)


def _restart_driver(context: DisturbanceContext, name: str, pool: str) -> None:
    if context.state.pools[pool].method is InstallMethod.CONTAINER:
        context.users.delete_driver_pod(name)
    else:
        context.faults.reboot(name)


def _adopt(context: DisturbanceContext, name: str, _pool: str) -> None:
    context.users.set_request(name, "adopt")


def _start_agents(context: DisturbanceContext, name: str, _pool: str) -> None:
    machine = context.state.machines[name]
    if not machine.up:
        context.faults.power_on(name)
    for part in machine.agents:
        context.faults.restart_agent(name, part)


def _provide_build(context: DisturbanceContext, name: str, pool: str) -> None:
    state = context.state.pools[pool]
    if state.method is InstallMethod.PRE_INSTALLED:
        context.users.install_driver(name, "installed by its owner")
        return
    context.users.set_target(pool, state.target, builds_of(pool, state.target, state.method))


def _undivide(context: DisturbanceContext, name: str, _pool: str) -> None:
    context.users.set_mig_config(name, "")


def _restore_policy(context: DisturbanceContext, _name: str, pool: str) -> None:
    if pool:
        context.users.edit_policy(pool, gone=False)


_REMEDIES: dict[WaitCode, Callable[[DisturbanceContext, str, str], None]] = {
    WaitCode.BUDGET: _raise_budget,
    WaitCode.HALTED: _release,
    WaitCode.PAUSED: _remove_brake,
    WaitCode.FROZEN: _remove_brake,
    WaitCode.SKIPPED: _end_skip,
    WaitCode.PREFLIGHT: _clear_preflight,
    WaitCode.AGENT_SILENT: _start_agents,
    WaitCode.NOT_READY: _start_agents,
    WaitCode.TARGET_MISSING: _provide_build,
    WaitCode.GPU_FAILED: _repair_gpus,
    WaitCode.BACK_OFF: _end_work,
    WaitCode.DRIVER_START: _restart_driver,
    WaitCode.JOBS: _end_work,
    WaitCode.EVICTION: _end_work,
    WaitCode.PDB: _end_work,
    WaitCode.MIG: _undivide,
    WaitCode.REBOOT: lambda context, name, _pool: context.faults.reboot(name),
    WaitCode.FAILED: _retry,
    WaitCode.LABEL_EDITED: _undo_edits,
    WaitCode.RECORD_LOST: _adopt,
    WaitCode.POLICY_GONE: _restore_policy,
}
