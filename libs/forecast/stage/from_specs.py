"""What a stage is built of, in the words of whoever sets it up."""

from collections.abc import Iterable

import msgspec

from libs.contracts.commands import Command, Idle, Order, Proven, Validate
from libs.contracts.facts import LoadedDriver
from libs.contracts.journal import EntryPhase
from libs.contracts.node import MANAGER, NodeRecord, UpgradeState
from libs.contracts.reports import Evidence, Finding, Outcome, Result
from libs.forecast.stage import agent_processes, agents, api, driver_agent
from libs.forecast.stage.driver_container import version_of
from libs.forecast.stage.field_paths import CORDON, DRIVER, RECORD, STATE
from libs.forecast.stage.managed_fields import OwnedField
from libs.forecast.stage.objects import (
    DriverContainerStatus,
    DriverPodPhase,
    KernelDriver,
    StageAgent,
    StageDriverPod,
    StageMachine,
    StageNode,
    StagePool,
    StageRollout,
    StageSlot,
    Tenant,
)
from libs.forecast.stage.state import StageState
from libs.forecast.stage.tenant_pods import start_tenant_pod
from libs.forecast.stage.validator_agent import MIG, RUNTIME
from libs.policy.wanted import InstallMethod
from libs.rollout.views.pool import Build, PoolView, Readiness

COMPONENTS = ("driver", "validator", "plugin", "telemetry", "discovery")
CAPABILITIES = frozenset({"quiesce", "idle", "swap", "install", "validate", "preflight", "holders"})


class StageNodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One machine with its Node, at the start."""

    name: str
    pool: str = ""
    variant: str = "ubuntu24.04"
    kernel: str = "6.8.0-31-generic"
    gpus: int = 8
    target: str = ""
    """The target that it was upgraded to, with all evidence; empty: it has no driver yet."""
    tenants: tuple[Tenant, ...] = ()
    cordoned_by: str = ""
    """The manager of a person who had cordoned it."""
    obstacles: tuple[Finding, ...] = ()
    host_processes: int = 0
    upgrade_last: bool = False


_AGO = 3600.0
"""Seconds since when everything is as it is."""
_TOKEN, _OP = 1, 2


def populate(
    state: StageState, pools: Iterable[PoolView], node_specs: Iterable[StageNodeSpec]
) -> None:
    """All of it."""
    for pool in pools:
        add_pool(state, pool)
    for plan in node_specs:
        add_node(state, plan, found=True)


def add_pool(state: StageState, view: PoolView) -> None:
    """A policy, with what its controller made of it."""
    seen = view.rollout
    state.pools[view.key] = StagePool(
        key=view.key,
        uid=view.uid,
        target=view.target,
        method=view.method,
        builds=view.builds,
        upgrade=view.upgrade,
        strategy=view.strategy,
        held=view.held,
        gone=view.gone,
    )
    if seen is not None:
        state.revision += 1
        rollout = state.pools[view.key].rollout = StageRollout(
            uid=seen.uid,
            revision=state.revision,
            generation=seen.generation,
            spec=seen.spec,
            status=seen.status,
            finalized=seen.has_finalizer,
        )
        state.epoch = max(state.epoch, seen.status.epoch)
        if state.recorder is not None:
            state.recorder.rollout_found(view.key, rollout)
    create_daemon_sets(state, view.key)
    state.touch_pool(view.key)


def create_daemon_sets(state: StageState, key: str) -> None:
    """Those that the builds of a pool are."""
    pool = state.pools[key]
    if pool.method is not InstallMethod.CONTAINER:
        return
    for each in pool.builds.values():
        for build in each.values():
            if build.readiness is not Readiness.MISSING:
                state.daemon_sets[build.label] = build.install_digest


def add_node(state: StageState, spec: StageNodeSpec, *, found: bool = False) -> None:
    """A machine and its Node."""
    machine = add_machine(state, spec)
    pool = state.pools.get(spec.pool)
    node = StageNode(
        name=spec.name,
        uid=state.new_uid("node"),
        revision=0,
        created=state.now - _AGO,
        boot_id=machine.boot_id,
        kernel=spec.kernel,
        pool=spec.pool,
        variant=spec.variant,
        gpus=spec.gpus,
        upgrade_last=spec.upgrade_last,
    )
    if spec.cordoned_by:
        node.fields = {CORDON: OwnedField(True, (spec.cordoned_by,))}
        node.taint = True
    build = pool.builds.get(spec.target, {}).get(spec.variant) if pool is not None else None
    if pool is not None and build is not None:
        _runs(state, (machine, node), pool, spec.target, build)
    api.create_node(state, node, found=found)
    agent_processes.bind_to_node(state, machine)
    if build is not None:
        _instructed(state, machine, node, build.label)
    for number, tenant in enumerate(spec.tenants):
        if machine.loaded is not None or not tenant.gpus:
            start_tenant_pod(state, machine, number, state.new_uid("pod"))
    driver_agent.report_facts(state, machine)


def add_machine(state: StageState, spec: StageNodeSpec) -> StageMachine:
    """With agents that are alive and have never been told anything."""
    machine = state.machines[spec.name] = StageMachine(
        name=spec.name,
        boot_id=f"{spec.name}-boot-1",
        kernel=spec.kernel,
        variant=spec.variant,
        tenants=spec.tenants,
        obstacles=spec.obstacles,
        host_processes=spec.host_processes,
    )
    for part in COMPONENTS:
        machine.agents[part] = StageAgent(
            part=part,
            capabilities=CAPABILITIES,
            last_beat=state.now,
            holds_devices=part not in agents.WITHOUT_DEVICES,
        )
    return machine


def _runs(
    state: StageState,
    where: tuple[StageMachine, StageNode],
    pool: StagePool,
    target: str,
    build: Build,
) -> None:
    machine, node = where
    since = state.now - _AGO
    loaded = LoadedDriver(
        version=version_of(build.install_digest),
        loaded_at=since,
        preinstalled=pool.method is InstallMethod.PRE_INSTALLED,
    )
    machine.loaded = KernelDriver(build.install_digest, loaded)
    pod_uid = ""
    if pool.method is InstallMethod.PRE_INSTALLED:
        machine.preinstalled = machine.loaded
    if pool.method is InstallMethod.CONTAINER:
        pod_uid = machine.admitted = state.new_uid("driver-pod")
        status = DriverContainerStatus(ready=True, started=since)
        machine.drivers[pod_uid] = StageDriverPod(
            uid=pod_uid,
            name=f"driver-{node.name}-{pod_uid}",
            label=build.label,
            install_digest=build.install_digest,
            on_machine=True,
            phase=DriverPodPhase.RUNNING,
            status=status,
            reported_status=status,
        )
    record = NodeRecord(
        node_uid=node.uid,
        epoch=1,
        token=_TOKEN,
        pool=pool.key,
        target=target,
        label=build.label,
        state=UpgradeState.UPGRADE_DONE,
        since=since,
        boot_id=machine.boot_id,
        evidence=_proof(machine, node, build, pod_uid, since),
    )
    said = {STATE: UpgradeState.UPGRADE_DONE.value, DRIVER: build.label, RECORD: record}
    node.fields = {
        **node.fields,
        **{path: OwnedField(value, (MANAGER,)) for path, value in said.items()},
    }


def _proof(
    machine: StageMachine, node: StageNode, build: Build, pod_uid: str, since: float
) -> Evidence:
    return Evidence(
        epoch=1,
        token=_TOKEN,
        op=_OP - 1,
        passed=True,
        label=build.label,
        node_uid=node.uid,
        boot_id=machine.boot_id,
        kernel=machine.kernel,
        driver_pod_uid=pod_uid,
        driver_started=since,
        driver_version=version_of(build.install_digest),
        driver_digest=build.install_digest,
        runtime_digest=RUNTIME,
        mig_digest=MIG,
        at=since,
    )


def _instructed(state: StageState, machine: StageMachine, node: StageNode, label: str) -> None:
    """Every slot is idle, acknowledged, and says what is proven to whom it concerns.

    That it was validated before is in the validator's journal.
    """
    proven = Proven(label=label, kernel=machine.kernel)
    for part, agent in machine.agents.items():
        body = Idle(proven=proven) if part in agents.WITHOUT_DEVICES else Idle()
        command = Command.of(
            body,
            node=node.name,
            node_uid=node.uid,
            boot_id=machine.boot_id,
            epoch=1,
            order=Order(_TOKEN, _OP),
            deadline=state.now,
        )
        state.slots[node.name, part] = StageSlot(1, command)
        agent.epoch, agent.highest_order, agent.slot = 1, command.order, command
        agent.last_result = _done(command)
        agent.proven = body.proven
        earlier = Command.of(
            Validate(label=label),
            node=node.name,
            node_uid=node.uid,
            boot_id=machine.boot_id,
            epoch=1,
            order=Order(_TOKEN, _OP - 1),
            deadline=state.now,
        )
        if part == "validator" and state.recorder is not None:
            said = {"phase": EntryPhase.FINISHED, "result": _done(earlier)}
            state.recorder.entry(state.now - _AGO, machine.boot_id, part, earlier, **said)
        agent.pending_reports = agent.published_reports = type(agent.published_reports)(
            result=agent.last_result, highest_order=command.order
        )


def _done(command: Command) -> Result:
    return Result(
        epoch=command.epoch,
        token=command.token,
        op=command.op,
        command=command.kind.value,
        outcome=Outcome.DONE,
    )
