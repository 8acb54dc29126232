"""Populate a stage from specs."""

from collections.abc import Iterable

import msgspec

from libs.contracts.commands import Command, Order, Validate
from libs.contracts.journal import EntryPhase
from libs.contracts.node import MANAGER
from libs.contracts.reports import Finding
from libs.forecast.stage import agent_processes, agents, api, driver_agent, installed
from libs.forecast.stage.field_paths import CORDON
from libs.forecast.stage.installed import FinishedUpgrade
from libs.forecast.stage.objects import (
    OwnedField,
    StageAgent,
    StageMachine,
    StageNode,
    StagePool,
    StageRollout,
    Tenant,
)
from libs.forecast.stage.state import StageState
from libs.forecast.stage.tenant_pods import start_tenant_pod
from libs.policy.wanted import InstallMethod
from libs.rollout.views.pool import PoolView, Readiness

COMPONENTS = ("driver", "validator", "plugin", "telemetry", "discovery")
CAPABILITIES = frozenset({"quiesce", "idle", "swap", "install", "validate", "preflight", "holders"})


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


_AGE = 3600.0
"""Seconds since which everything on a new stage has been as it is."""


def populate(
    state: StageState, pools: Iterable[PoolView], node_specs: Iterable[StageNodeSpec]
) -> None:
    for pool in pools:
        add_pool(state, pool)
    for plan in node_specs:
        add_node(state, plan, found=True)


def add_pool(state: StageState, view: PoolView) -> None:
    """Add a policy with the DaemonSets that its controller made."""
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
    pool = state.pools[key]
    if pool.method is not InstallMethod.CONTAINER:
        return
    for each in pool.builds.values():
        for build in each.values():
            if build.readiness is not Readiness.MISSING:
                state.daemon_sets[build.label] = build.install_digest


def add_node(state: StageState, spec: StageNodeSpec, *, found: bool = False) -> None:
    machine = add_machine(state, spec)
    pool = state.pools.get(spec.pool)
    node = StageNode(
        name=spec.name,
        uid=state.new_uid("node"),
        revision=0,
        created=state.now - _AGE,
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
        if pool.method is InstallMethod.CONTAINER:
            installed.run_driver_pod(state, machine, upgrade)
        fields = installed.node_fields(node, machine, upgrade)
        node.fields |= {path: OwnedField(value, (MANAGER,)) for path, value in fields.items()}
    api.create_node(state, node, found=found)
    agent_processes.bind_to_node(state, machine)
    if upgrade is not None:
        _record_validation(state, machine, node, upgrade)
        installed.idle_agents(state, node, machine, upgrade)
    for number, tenant in enumerate(spec.tenants):
        if machine.loaded is not None or not tenant.gpus:
            start_tenant_pod(state, machine, number, state.new_uid("pod"))
    driver_agent.report_facts(state, machine)


def add_machine(state: StageState, spec: StageNodeSpec) -> StageMachine:
    """Add a machine with running agents that never had a command."""
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


def _record_validation(
    state: StageState, machine: StageMachine, node: StageNode, upgrade: FinishedUpgrade
) -> None:
    """Write the validation of the upgrade into the journal of the validator."""
    if state.recorder is None:
        return
    command = Command.of(
        Validate(label=upgrade.build.label),
        node=node.name,
        node_uid=node.uid,
        boot_id=machine.boot_id,
        epoch=upgrade.epoch,
        order=Order(upgrade.token, upgrade.validate_op),
        deadline=state.now,
    )
    state.recorder.entry(
        upgrade.at,
        machine.boot_id,
        "validator",
        command,
        phase=EntryPhase.FINISHED,
        result=installed.done(command),
    )
