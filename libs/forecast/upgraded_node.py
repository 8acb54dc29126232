"""What a node and its machine are like at the end of a plain way, upgraded in good order.

As whoever decides step by step would have left them. Must not know how long anything took.
"""

from libs.contracts.commands import Command, Idle, Order, Proven
from libs.contracts.facts import LoadedDriver
from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER, NodeRecord, UpgradeState
from libs.contracts.reports import Evidence, Outcome, Result
from libs.forecast.stage import agents, api, driver_agent, tenant_pods
from libs.forecast.stage.driver_container import version_of
from libs.forecast.stage.field_paths import DRIVER, RECORD, SCHEDULER, STATE
from libs.forecast.stage.managed_fields import applied
from libs.forecast.stage.objects import (
    AgentReports,
    DriverContainerStatus,
    DriverPodPhase,
    KernelDriver,
    StageAgent,
    StageDriverPod,
    StageMachine,
    StageNode,
    StageSlot,
)
from libs.forecast.stage.state import StageState
from libs.forecast.stage.validator_agent import MIG, RUNTIME
from libs.forecast.upgrade_estimate import UpgradeEstimate

_BY = api.Requester(Verb.APPLY, SCHEDULER, MANAGER)
_VALIDATED, _IDLE = 2, 3
"""The numbers of the last ops under a lease."""


def apply_upgrade(state: StageState, node: StageNode, estimate: UpgradeEstimate) -> None:
    """The new driver runs and is proven, all agents are idle, and the node is given back."""
    machine = state.machines[node.name]
    _tried(machine, estimate)
    _loads(state, machine, estimate)
    evidence = _evidence(state, node, machine, estimate)
    for agent in machine.agents.values():
        _instructed(state, (node, machine, agent), estimate, evidence)
    record = NodeRecord(
        node_uid=node.uid,
        epoch=state.epoch,
        token=estimate.record.token,
        pool=estimate.record.pool,
        target=estimate.record.target,
        label=estimate.build.label,
        state=UpgradeState.UPGRADE_DONE,
        since=state.now,
        boot_id=machine.boot_id,
        restarts=estimate.record.restarts,
        evidence=evidence,
    )
    said = {STATE: UpgradeState.UPGRADE_DONE.value, DRIVER: estimate.build.label, RECORD: record}
    api.change_fields(state, node, applied(node.fields, MANAGER, said), _BY)
    node.taint = api.is_cordoned(node)
    driver_agent.report_facts(state, machine)
    tenant_pods.refill_node(state, node.name, node.uid)


def _tried(machine: StageMachine, way: UpgradeEstimate) -> None:
    """Later attempts are numbered on."""
    label = way.build.label
    once = (f"run {label}", f"validation {label}")
    for what in ("unload",) * way.unloads + (f"load {label}",) * way.loads + once:
        machine.attempt(what)


def _loads(state: StageState, machine: StageMachine, way: UpgradeEstimate) -> None:
    """The new driver in the place of the old one."""
    uid, digest = state.new_uid("driver-pod"), way.build.install_digest
    status = DriverContainerStatus(ready=True, started=way.driver_starts_at, restarts=way.loads - 1)
    machine.admitted = uid
    machine.loaded = KernelDriver(
        digest, LoadedDriver(version=version_of(digest), loaded_at=way.driver_loads_at)
    )
    machine.drivers = {
        uid: StageDriverPod(
            uid=uid,
            name=f"driver-{machine.name}-{uid}",
            label=way.build.label,
            install_digest=digest,
            on_machine=True,
            phase=DriverPodPhase.RUNNING,
            status=status,
            reported_status=status,
        )
    }


def _evidence(
    state: StageState, node: StageNode, machine: StageMachine, way: UpgradeEstimate
) -> Evidence:
    digest = way.build.install_digest
    return Evidence(
        epoch=state.epoch,
        token=way.record.token,
        op=_VALIDATED,
        passed=True,
        label=way.build.label,
        node_uid=node.uid,
        boot_id=machine.boot_id,
        kernel=machine.kernel,
        driver_pod_uid=machine.admitted,
        driver_started=way.driver_starts_at,
        driver_version=version_of(digest),
        driver_digest=digest,
        runtime_digest=RUNTIME,
        mig_digest=MIG,
        at=state.now,
    )


def _instructed(
    state: StageState,
    where: tuple[StageNode, StageMachine, StageAgent],
    way: UpgradeEstimate,
    evidence: Evidence,
) -> None:
    """It was told to be idle, with what is proven where that matters, and has answered."""
    node, machine, agent = where
    quiet = agent.part in agents.WITHOUT_DEVICES
    proven = Proven(label=way.build.label, kernel=machine.kernel) if quiet else None
    command = Command.of(
        Idle(proven=proven),
        node=node.name,
        node_uid=node.uid,
        boot_id=machine.boot_id,
        epoch=state.epoch,
        order=Order(way.record.token, _IDLE),
        deadline=state.now,
    )
    key = node.name, agent.part
    before = state.slots.get(key)
    state.slots[key] = StageSlot(1 if before is None else before.sequence + 1, command)
    agent.epoch, agent.highest_order = state.epoch, command.order
    agent.slot, agent.proven, agent.holds_devices = command, proven, not quiet
    agent.last_result = Result(
        epoch=state.epoch,
        token=command.token,
        op=command.op,
        command=command.kind.value,
        outcome=Outcome.DONE,
    )
    proof = evidence if agent.part == "validator" else None
    agent.pending_reports = agent.published_reports = AgentReports(
        result=agent.last_result, evidence=proof, highest_order=command.order
    )
