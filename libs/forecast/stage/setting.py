"""How a stage is furnished by plans: policies as they are seen, machines as somebody wants them.

A node that runs a target was upgraded to it in good order, by whoever led before. Must not know
what will happen to anything.
"""

from collections.abc import Iterable

from libs.contracts.commands import Command, Idle, Order, Proven, Validate
from libs.contracts.facts import LoadedDriver
from libs.contracts.journal import EntryPhase
from libs.contracts.node import MANAGER, Record, UpgradeState
from libs.contracts.reports import Evidence, Outcome, Result
from libs.forecast.stage import agents, api, driving, processes
from libs.forecast.stage.fields import Held
from libs.forecast.stage.loading import version_of
from libs.forecast.stage.objects import (
    Agent,
    Driver,
    Loaded,
    Machine,
    Node,
    Phase,
    Pool,
    Rollout,
    Slot,
    Status,
)
from libs.forecast.stage.paths import CORDON, DRIVER, RECORD, STATE
from libs.forecast.stage.plans import COMPONENTS, KNOWS, NodePlan
from libs.forecast.stage.state import State
from libs.forecast.stage.validating import MIG, RUNTIME
from libs.forecast.stage.works import place
from libs.policy.wanted import Method
from libs.rollout.views.pool import Build, PoolView, Readiness

_AGO = 3600.0
"""Seconds since when everything is as it is."""
_TOKEN, _OP = 1, 2


def furnish(state: State, pools: Iterable[PoolView], nodes: Iterable[NodePlan]) -> None:
    """All of it."""
    for pool in pools:
        furnish_pool(state, pool)
    for plan in nodes:
        furnish_node(state, plan, found=True)


def furnish_pool(state: State, view: PoolView) -> None:
    """A policy, with what its controller made of it."""
    seen = view.rollout
    state.pools[view.key] = Pool(
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
        rollout = state.pools[view.key].rollout = Rollout(
            uid=seen.uid,
            revision=state.revision,
            generation=seen.generation,
            spec=seen.spec,
            status=seen.status,
            finalized=seen.finalized,
        )
        state.epoch = max(state.epoch, seen.status.epoch)
        if state.chronicle is not None:
            state.chronicle.found_rollout(view.key, rollout)
    make_daemon_sets(state, view.key)
    state.touch_pool(view.key)


def make_daemon_sets(state: State, key: str) -> None:
    """Those that the builds of a pool are."""
    pool = state.pools[key]
    if pool.method is not Method.CONTAINER:
        return
    for each in pool.builds.values():
        for build in each.values():
            if build.readiness is not Readiness.MISSING:
                state.daemon_sets[build.label] = build.install_digest


def furnish_node(state: State, plan: NodePlan, *, found: bool = False) -> None:
    """A machine and its Node."""
    machine = machine_of(state, plan)
    pool = state.pools.get(plan.pool)
    node = Node(
        name=plan.name,
        uid=state.uid("node"),
        revision=0,
        created=state.now - _AGO,
        boot_id=machine.boot_id,
        kernel=plan.kernel,
        pool=plan.pool,
        variant=plan.variant,
        gpus=plan.gpus,
        last=plan.last,
    )
    if plan.cordoned_by:
        node.fields = {CORDON: Held(True, (plan.cordoned_by,))}
        node.taint = True
    build = pool.builds.get(plan.runs, {}).get(plan.variant) if pool is not None else None
    if pool is not None and build is not None:
        _runs(state, (machine, node), pool, plan.runs, build)
    api.create_node(state, node, found=found)
    processes.node_is(state, machine)
    if build is not None:
        _instructed(state, machine, node, build.label)
    for number, tenant in enumerate(plan.tenants):
        if machine.loaded is not None or not tenant.gpus:
            place(state, machine, number, state.uid("pod"))
    driving.tell_facts(state, machine)


def machine_of(state: State, plan: NodePlan) -> Machine:
    """With agents that are alive and have never been told anything."""
    machine = state.machines[plan.name] = Machine(
        name=plan.name,
        boot_id=f"{plan.name}-boot-1",
        kernel=plan.kernel,
        variant=plan.variant,
        tenants=plan.tenants,
        obstacles=plan.obstacles,
        host_processes=plan.host_processes,
    )
    for part in COMPONENTS:
        machine.agents[part] = Agent(
            part=part, knows=KNOWS, heard=state.now, holds=part not in agents.QUIET
        )
    return machine


def _runs(state: State, where: tuple[Machine, Node], pool: Pool, target: str, build: Build) -> None:
    machine, node = where
    since = state.now - _AGO
    loaded = LoadedDriver(
        version=version_of(build.install_digest),
        loaded_at=since,
        preinstalled=pool.method is Method.PRE_INSTALLED,
    )
    machine.loaded = Loaded(build.install_digest, loaded)
    pod_uid = ""
    if pool.method is Method.PRE_INSTALLED:
        machine.preinstalled = machine.loaded
    if pool.method is Method.CONTAINER:
        pod_uid = machine.admitted = state.uid("driver-pod")
        status = Status(ready=True, started=since)
        machine.drivers[pod_uid] = Driver(
            uid=pod_uid,
            name=f"driver-{node.name}-{pod_uid}",
            label=build.label,
            install_digest=build.install_digest,
            on_machine=True,
            phase=Phase.RUNNING,
            status=status,
            shown=status,
        )
    record = Record(
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
    node.fields = {**node.fields, **{path: Held(value, (MANAGER,)) for path, value in said.items()}}


def _proof(machine: Machine, node: Node, build: Build, pod_uid: str, since: float) -> Evidence:
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


def _instructed(state: State, machine: Machine, node: Node, label: str) -> None:
    """Every slot is idle, acknowledged, and says what is proven to whom it concerns.

    That it was validated before is in the validator's journal.
    """
    proven = Proven(label=label, kernel=machine.kernel)
    for part, agent in machine.agents.items():
        body = Idle(proven=proven) if part in agents.QUIET else Idle()
        command = Command.of(
            body,
            node=node.name,
            node_uid=node.uid,
            boot_id=machine.boot_id,
            epoch=1,
            order=Order(_TOKEN, _OP),
            deadline=state.now,
        )
        state.slots[node.name, part] = Slot(1, command)
        agent.epoch, agent.highest, agent.slot = 1, command.order, command
        agent.ended = _done(command)
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
        if part == "validator" and state.chronicle is not None:
            said = {"phase": EntryPhase.FINISHED, "result": _done(earlier)}
            state.chronicle.entry(state.now - _AGO, machine.boot_id, part, earlier, **said)
        agent.says = agent.said = type(agent.said)(result=agent.ended, highest=command.order)


def _done(command: Command) -> Result:
    return Result(
        epoch=command.epoch,
        token=command.token,
        op=command.op,
        command=command.kind.value,
        outcome=Outcome.DONE,
    )
