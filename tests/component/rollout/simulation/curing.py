"""Putting things right: first all that is broken, then whatever each wait says would end it."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from libs.contracts.node import Record, UpgradeState
from libs.contracts.rollout import Brake
from libs.contracts.waits import WaitCode
from libs.forecast.stage import seeing
from libs.policy.wanted import Method
from libs.rollout.decision import Wait
from libs.rollout.views.node import Garbled
from libs.rollout.writes import upgrading
from tests.component.rollout.simulation.acts import Hands
from tests.component.rollout.simulation.judging import homes
from tests.component.rollout.simulation.policies import builds_of


def heal(hands: Hands) -> None:
    """Faults end; what people did stays."""
    state = hands.state
    hands.faults.bus(True)
    hands.faults.foreign_operator("")
    for part in ("nodes", "pods", "reports", "rollouts"):
        hands.faults.show(part)
    state.sources.clear()
    for name, machine in state.machines.items():
        hands.faults.deaf(name)
        if not machine.up and name in state.nodes:
            hands.faults.power_on(name)
        if not machine.hears:
            hands.faults.join_kubelet(name)
        if not machine.connected:
            hands.faults.join_agents(name)
        for part, agent in machine.agents.items():
            if machine.up and (agent.hung or not agent.alive):
                hands.faults.agent_restarts(name, part)
    for key in state.pools:
        state.touch_pool(key)


def cure(hands: Hands, waiting: Mapping[str, Wait]) -> None:
    """What would end these waits is done, whoever would have to do it."""
    for name, wait in waiting.items():
        node = hands.state.nodes.get(name)
        if node is not None and (do := _CURES.get(wait.code)) is not None:
            do(hands, name, node.pool)


def _release(hands: Hands, _name: str, pool: str) -> None:
    there = hands.state.pools[pool]
    if there.rollout is not None:
        known = there.rollout.status.targets.get(there.target)
        hands.people.release(pool, there.target, len(known.failed) if known else 1)


def _take_off_brake(hands: Hands, _name: str, pool: str) -> None:
    hands.people.brake(pool, Brake.NONE)
    there = hands.state.pools[pool]
    if not there.upgrade.auto_upgrade:
        hands.people.policy(pool, upgrade=replace(there.upgrade, auto_upgrade=True))


def _allow_more(hands: Hands, name: str, _pool: str) -> None:
    node = seeing.node_view(hands.state, name)
    for pool in homes(node) if node is not None else ():
        if pool in hands.state.pools:
            upgrade = hands.state.pools[pool].upgrade
            hands.people.policy(pool, upgrade=replace(upgrade, max_unavailable="100%"))


def _no_longer_skip(hands: Hands, name: str, _pool: str) -> None:
    hands.people.skip(name, False)
    hands.people.uncordon(name)
    node = seeing.node_view(hands.state, name)
    if node is not None and isinstance(node.lease, Garbled):
        hands.people.set_lease(name, None)


def _clear(hands: Hands, name: str, _pool: str) -> None:
    hands.people.clear_obstacles(name)
    hands.people.host_processes(name, 0)
    hands.people.end_work(name)


def _end_work(hands: Hands, name: str, _pool: str) -> None:
    hands.people.end_work(name)


def _retry(hands: Hands, name: str, _pool: str) -> None:
    hands.people.clear_obstacles(name)
    hands.people.host_processes(name, 0)
    hands.people.end_work(name)
    if hands.state.machines[name].calling:
        hands.faults.reboot(name)
    hands.people.set_state(name, UpgradeState.UPGRADE_REQUIRED)


def _put_back(hands: Hands, name: str, pool: str) -> None:
    """Whoever edited it puts back what the record says; where that is no help, it is retried."""
    node = seeing.node_view(hands.state, name)
    if node is None or not isinstance(node.record, Record):
        return
    state, label = node.state != node.record.state, node.driver_label != node.record.label
    if not upgrading(node) or not (state or label):
        _retry(hands, name, pool)
        return
    if state:
        hands.people.set_state(name, node.record.state)
    if label:
        hands.people.set_driver_label(name, node.record.label)


def _start_driver(hands: Hands, name: str, pool: str) -> None:
    """Whoever looks after the machine has its driver started anew."""
    if hands.state.pools[pool].method is Method.CONTAINER:
        hands.people.delete_driver_pod(name)
    else:
        hands.faults.reboot(name)


def _adopt(hands: Hands, name: str, _pool: str) -> None:
    hands.people.request(name, "adopt")


def _start(hands: Hands, name: str, _pool: str) -> None:
    machine = hands.state.machines[name]
    if not machine.up:
        hands.faults.power_on(name)
    for part in machine.agents:
        hands.faults.agent_restarts(name, part)


def _build(hands: Hands, name: str, pool: str) -> None:
    there = hands.state.pools[pool]
    if there.method is Method.PRE_INSTALLED:
        hands.people.install_driver(name, "of its owner")
        return
    hands.people.want(pool, there.target, builds_of(pool, there.target, there.method))


def _restore(hands: Hands, _name: str, pool: str) -> None:
    if pool:
        hands.people.policy(pool, gone=False)


_CURES: dict[WaitCode, Callable[[Hands, str, str], None]] = {
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
