"""A node after a successful upgrade: its driver pod, its evidence and the idle slots of its agents.

Stages are set up with such nodes, and a forecast that fast-forwards an upgrade ends with one.
"""

import msgspec

from libs.contracts.commands import Command, Idle, Order, Proven
from libs.contracts.identities import Writer
from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.paths import DRIVER, RECORD, STATE
from libs.contracts.reports import Evidence, Outcome, Result
from libs.forecast.stage import agents
from libs.forecast.stage.driver_pods import kernel_driver, version_of
from libs.forecast.stage.objects import (
    AgentReports,
    DriverContainerStatus,
    DriverPodPhase,
    StageDriverPod,
    StageMachine,
    StageNode,
    StageSlot,
)
from libs.forecast.stage.state import StageState
from libs.forecast.stage.validator_agent import RUNTIME
from libs.rollout.views.pool import Build


class FinishedUpgrade(msgspec.Struct, frozen=True, kw_only=True):
    """A completed upgrade of a node."""

    pool: str
    target: str
    build: Build
    epoch: int
    token: int
    validate_op: int
    """The op that validated the driver; the idle op after it is the last one of the upgrade."""
    at: float
    driver_started: float
    driver_loaded: float
    restarts: tuple[float, ...] = ()
    """The driver restarts in the node's record."""
    pulled: float | None = None
    """Seconds in which the driver's image was pulled."""


def load_driver(machine: StageMachine, upgrade: FinishedUpgrade, *, preinstalled: bool) -> None:
    """Load the driver of the build into the kernel."""
    machine.loaded = kernel_driver(
        upgrade.build.install_digest, upgrade.driver_loaded, preinstalled=preinstalled
    )


def run_driver_pod(
    state: StageState, machine: StageMachine, upgrade: FinishedUpgrade, *, restarts: int = 0
) -> None:
    """Replace the driver pods of the machine by one that runs the build."""
    uid = machine.admitted = state.new_uid("driver-pod")
    status = DriverContainerStatus(ready=True, started=upgrade.driver_started, restarts=restarts)
    machine.drivers = {
        uid: StageDriverPod(
            uid=uid,
            name=f"driver-{machine.name}-{uid}",
            label=upgrade.build.label,
            install_digest=upgrade.build.install_digest,
            on_machine=True,
            phase=DriverPodPhase.RUNNING,
            status=status,
            reported_status=status,
            pulled=upgrade.pulled,
        )
    }


def node_fields(
    node: StageNode, machine: StageMachine, upgrade: FinishedUpgrade
) -> dict[str, object]:
    """Return the fields that the scheduler owns on the node afterwards, by path."""
    record = NodeRecord(
        node_uid=node.view.uid,
        epoch=upgrade.epoch,
        token=upgrade.token,
        pool=upgrade.pool,
        target=upgrade.target,
        label=upgrade.build.label,
        state=UpgradeState.UPGRADE_DONE,
        since=upgrade.at,
        boot_id=machine.boot_id,
        restarts=upgrade.restarts,
        was_done=True,
        evidence=evidence_of(node, machine, upgrade),
    )
    return {
        STATE: UpgradeState.UPGRADE_DONE.value,
        DRIVER: upgrade.build.label,
        RECORD: record,
    }


def evidence_of(node: StageNode, machine: StageMachine, upgrade: FinishedUpgrade) -> Evidence:
    """Return the evidence of the validation that ended the upgrade."""
    return Evidence(
        epoch=upgrade.epoch,
        token=upgrade.token,
        op=upgrade.validate_op,
        passed=True,
        label=upgrade.build.label,
        node_uid=node.view.uid,
        boot_id=machine.boot_id,
        kernel=machine.kernel,
        driver_pod_uid=machine.admitted,
        driver_started=upgrade.driver_started,
        driver_version=version_of(upgrade.build.install_digest),
        driver_digest=upgrade.build.install_digest,
        runtime_digest=RUNTIME,
        mig_digest=machine.layout,
        at=upgrade.at,
    )


def idle_agents(
    state: StageState,
    node: StageNode,
    machine: StageMachine,
    upgrade: FinishedUpgrade,
    evidence: Evidence | None = None,
) -> None:
    """Give every agent an idle slot that it has acknowledged; `evidence` is the validator's."""
    order = Order(upgrade.token, upgrade.validate_op + 1)
    for part, agent in machine.agents.items():
        without_devices = part in agents.WITHOUT_DEVICES
        proven = Proven(
            label=upgrade.build.label,
            kernel=machine.kernel,
            install_digest=upgrade.build.install_digest,
        )
        body = Idle(
            proven=proven if without_devices else None,
            config=node.view.plugin_config if part == Writer.PLUGIN else "",
        )
        command = Command.of(
            body,
            node=node.view.name,
            node_uid=node.view.uid,
            boot_id=machine.boot_id,
            epoch=upgrade.epoch,
            order=order,
            deadline=state.now,
        )
        key = node.view.name, part
        before = state.slots.get(key)
        state.slots[key] = StageSlot(1 if before is None else before.sequence + 1, command)
        agent.epoch, agent.highest_order, agent.slot = upgrade.epoch, order, command
        agent.proven, agent.holds_devices = body.proven, not without_devices
        agents.keep_proof(agent, command)
        agent.has_read_slot = True
        agent.last_result = done(command)
        agent.pending_reports = agent.published_reports = AgentReports(
            result=agent.last_result,
            evidence=evidence if part == "validator" else None,
            highest_order=order,
        )


def done(command: Command) -> Result:
    """Return the result of a command that succeeded."""
    return Result(
        epoch=command.epoch,
        token=command.token,
        op=command.op,
        command=command.kind.value,
        outcome=Outcome.DONE,
    )
