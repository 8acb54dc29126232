"""Nodes of a stage as data: their machines, drivers and tenants."""

import msgspec

from libs.contracts.commands import Command, Order, Validate
from libs.contracts.journal import EntryPhase, Verb
from libs.contracts.node import MANAGER
from libs.contracts.paths import CORDON, TAINTS, UID
from libs.contracts.reports import Finding
from libs.forecast.stage import (
    agents,
    api,
    driver_agent,
    driver_pods,
    gpu_health,
    installed,
    mig,
)
from libs.forecast.stage.fields import OwnedField
from libs.forecast.stage.installed import FinishedUpgrade
from libs.forecast.stage.objects import (
    GpuFailure,
    StageAgent,
    StageMachine,
    StageNode,
    Tenant,
)
from libs.forecast.stage.state import ObjectRef, Requester
from libs.forecast.stage.tenant_pods import start_tenant_pod
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import NodeTaint
from libs.rollout.views.node import NodeView
from libs.testing.stage.faults import KUBELET, bind_to_node
from libs.testing.stage.state import SimulatedState

COMPONENTS = ("driver", "validator", "plugin", "telemetry", "discovery")
CAPABILITIES = frozenset(
    {"quiesce", "idle", "swap", "install", "validate", "mig", "preflight", "holders"}
)
_AGE = 3600.0
"""Seconds since which everything on a new stage has been as it is."""


class StageNodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with its Node."""

    name: str
    pool: str = ""
    variant: str = "ubuntu24.04"
    kernel: str = "6.8.0-31-generic"
    gpus: int = 8
    target: str = ""
    """The target that it was upgraded to, with evidence; empty: it has no driver."""
    tenants: tuple[Tenant, ...] = ()
    cordoned_by: str = ""
    """The field manager of a person's cordon."""
    obstacles: tuple[Finding, ...] = ()
    host_processes: int = 0
    upgrade_last: bool = False
    taints: tuple[NodeTaint, ...] = ()
    """Those that its pool template gives it."""
    mig_config: str = ""
    failed_gpus: tuple[GpuFailure, ...] = ()


def add_node(state: SimulatedState, spec: StageNodeSpec, *, found: bool = False) -> None:
    """Add a machine with its Node; `found`: it existed before the journal began."""
    machine = _add_machine(state, spec)
    pool = state.pools.get(spec.pool)
    view = NodeView(
        name=spec.name,
        uid=state.new_uid("node"),
        revision="",
        created=state.now - _AGE,
        boot_id=machine.boot_id,
        kernel=spec.kernel,
        pool=spec.pool,
        variant=spec.variant,
        gpus=spec.gpus,
        upgrade_last=spec.upgrade_last,
        mig=mig.wanted_mig(spec.mig_config) if spec.mig_config else None,
    )
    node = StageNode(view=view)
    if spec.taints:
        node.store({TAINTS: OwnedField(spec.taints, (KUBELET,))})
    if spec.cordoned_by:
        node.store({**node.fields, CORDON: OwnedField(True, (spec.cordoned_by,))})
        node.store(api.with_cordon_taint(node, True))
    build = pool.builds.get(spec.target, {}).get(spec.variant) if pool is not None else None
    upgrade = None
    if pool is not None and build is not None:
        upgrade = FinishedUpgrade(
            pool=pool.key,
            target=spec.target,
            build=build,
            epoch=1,
            token=1,
            validate_op=1,
            at=state.now - _AGE,
            driver_started=state.now - _AGE,
            driver_loaded=state.now - _AGE,
        )
        preinstalled = pool.method is InstallMethod.PRE_INSTALLED
        installed.load_driver(machine, upgrade, preinstalled=preinstalled)
        if preinstalled:
            machine.preinstalled = machine.loaded
        elif pool.method is InstallMethod.HOST:
            machine.installed = build.install_digest
        if pool.method is InstallMethod.CONTAINER:
            installed.run_driver_pod(state, machine, upgrade)
            _record_driver_pod(state, machine, found=found)
        fields = installed.node_fields(node, machine, upgrade)
        owned = {path: OwnedField(value, (MANAGER,)) for path, value in fields.items()}
        node.store({**node.fields, **owned})
    create_node(state, node, found=found)
    bind_to_node(state, machine)
    if upgrade is not None:
        _record_validation(state, machine, node, upgrade)
        installed.idle_agents(state, node, machine, upgrade)
    for number, tenant in enumerate(spec.tenants):
        if machine.loaded is not None or not tenant.gpus:
            start_tenant_pod(state, machine, number, state.new_uid("pod"))
    driver_agent.report_facts(state, machine)
    mig.on_machine_changed(state, machine)
    gpu_health.on_machine_changed(state, machine)


def _add_machine(state: SimulatedState, spec: StageNodeSpec) -> StageMachine:
    """Add a machine with running agents that never had a command."""
    machine = state.machines[spec.name] = StageMachine(
        name=spec.name,
        boot_id=f"{spec.name}-boot-1",
        kernel=spec.kernel,
        variant=spec.variant,
        tenants=spec.tenants,
        obstacles=spec.obstacles,
        host_processes=spec.host_processes,
        failed_gpus=spec.failed_gpus,
    )
    for part in COMPONENTS:
        machine.agents[part] = StageAgent(
            component=part,
            capabilities=CAPABILITIES,
            last_beat=state.now,
            holds_devices=part not in agents.WITHOUT_DEVICES,
        )
    return machine


def create_node(state: SimulatedState, node: StageNode, *, found: bool = False) -> None:
    state.nodes[node.view.name] = node
    state.revision += 1
    node.show(revision=str(state.revision))
    if not found:
        by = Requester(Verb.CREATE, KUBELET, "kubelet")
        ref = ObjectRef("Node", node.view.name, node.view.uid)
        state.on_request(ref, by, api.CREATED, state.revision, node)
    elif state.recorder is not None:
        state.recorder.node_found(node)
    state.touch(node.view.name)
    state.node_changed(node.view.name, frozenset(() if found else (UID,)))


def _record_driver_pod(state: SimulatedState, machine: StageMachine, *, found: bool) -> None:
    for pod in machine.drivers.values():
        if not found:
            by = (Verb.CREATE, driver_pods.DAEMON_SET_CONTROLLER)
            driver_pods.journal(state, pod, by, api.CREATED, driver_pods.pod_leaves(machine, pod))
        elif state.recorder is not None:
            state.recorder.pod_found(machine, pod)


def _record_validation(
    state: SimulatedState, machine: StageMachine, node: StageNode, upgrade: FinishedUpgrade
) -> None:
    """Write the validation of the upgrade into the journal of the validator."""
    command = Command.of(
        Validate(label=upgrade.build.label),
        node=node.view.name,
        node_uid=node.view.uid,
        boot_id=machine.boot_id,
        epoch=upgrade.epoch,
        order=Order(upgrade.token, upgrade.validate_op),
        deadline=state.now,
    )
    build, uid = upgrade.build, node.view.uid
    state.last_proven[machine.name] = uid, machine.kernel, build.label, build.install_digest
    if state.recorder is not None:
        state.recorder.entry(
            upgrade.at,
            machine.boot_id,
            "validator",
            command,
            evidence=None,
            phase=EntryPhase.FINISHED,
            result=installed.done(command),
        )
