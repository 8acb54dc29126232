"""Populate a stage from views, as far as they show the cluster.

The world supplies, once, the facts that no view shows: when a job ends, whether a disruption budget
will refuse. Operations in progress on a machine begin again.
"""

from collections.abc import Iterator
from typing import Any

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.node import NodeLease, NodeRecord, UpgradeState
from libs.contracts.paths import (
    CORDON,
    DRIVER,
    INITIALLY_CORDONED,
    KEEP_CORDONED,
    LEASE,
    LEASE_CLAIM,
    MIG_STATE,
    RECORD,
    REQUEST,
    REQUESTED,
    SAFE_LOAD,
    SKIP,
    STATE,
    TAINTS,
)
from libs.forecast.stage import (
    agents,
    driver_pods,
    effects,
    gpu_health,
    images,
    preflights,
    tenant_pods,
)
from libs.forecast.stage.objects import (
    CORDON_TAINT,
    UNDIVIDED,
    AgentReports,
    DriverContainerStatus,
    DriverFacts,
    DriverPodPhase,
    KernelDriver,
    NodeMemory,
    OwnedField,
    PendingEvictions,
    StageAgent,
    StageDriverPod,
    StageMachine,
    StageNode,
    StagePool,
    StageRollout,
    StageSlot,
)
from libs.forecast.stage.state import StageState
from libs.forecast.stage.tenants_of_fleet import populate_tenants
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import NodeTaint
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.machine import Component, DriverPod, WantedMig
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from libs.rollout.views.pool import PoolView, Readiness


def populate_from_fleet(state: StageState, fleet: Fleet) -> None:
    for pool in fleet.pools.values():
        add_pool(state, pool)
    for view in fleet.nodes.values():
        _node(state, view)
    for view in fleet.nodes.values():
        _machine(state, view)
    populate_tenants(state, fleet)


def add_pool(state: StageState, view: PoolView) -> None:
    """Add a policy with its DaemonSets."""
    fields: dict[str, Any] = {name: getattr(view, name) for name in StagePool.__struct_fields__}
    fields["rollout"] = None
    pool = state.pools[view.key] = StagePool(**fields)
    if (rollout := view.rollout) is not None:
        state.revision += 1
        pool.rollout = StageRollout(
            uid=rollout.uid,
            revision=state.revision,
            generation=rollout.generation,
            spec=rollout.spec,
            status=rollout.status,
            finalized=rollout.has_finalizer,
        )
        state.epoch = max(state.epoch, rollout.status.epoch)
    create_daemon_sets(state, view.key)
    state.touch_pool(view.key)


def create_daemon_sets(state: StageState, key: str) -> None:
    pool = state.pools[key]
    if pool.method is not InstallMethod.CONTAINER:
        return
    for builds in pool.builds.values():
        for build in builds.values():
            if build.readiness is not Readiness.MISSING:
                state.daemon_sets[build.label] = build.install_digest


def _node(state: StageState, view: NodeView) -> None:
    state.revision += 1
    state.nodes[view.name] = StageNode(
        name=view.name,
        uid=view.uid,
        revision=state.revision,
        created=view.created,
        boot_id=view.boot_id,
        kernel=view.kernel,
        pool=view.pool,
        variant=view.variant,
        excluded=view.excluded,
        upgrade_last=view.upgrade_last,
        gpus=view.gpus,
        mig=_played_mig(view),
        plugin_config=view.plugin_config,
        ready=view.ready,
        operands_paused=isinstance(view.record, NodeRecord) and view.record.paused,
        fields=dict(_fields(view)),
    )
    memory = NodeMemory(
        waiting=view.last_wait, preflight=view.preflight, preflight_boot=view.boot_id
    )
    if view.evictions:
        memory.evictions = PendingEvictions(
            pods={eviction.uid: eviction.since for eviction in view.evictions},
            by_force=view.evictions[0].by_force,
            refused={
                eviction.uid: eviction.refused for eviction in view.evictions if eviction.refused
            },
        )
    state.memory[view.name] = memory
    state.touch(view.name)


def _played_mig(view: NodeView) -> WantedMig | None:
    """Return how the GPUs are to be divided; None: that is not known, or they stay undivided."""
    wanted = view.mig
    if wanted is None or not (wanted.error or wanted.digest):
        return None
    return None if wanted.applied and wanted.digest == UNDIVIDED else wanted


def _fields(view: NodeView) -> dict[str, OwnedField]:
    fields: dict[str, tuple[NodeField | None, object]] = {
        CORDON: (NodeField.CORDON, True if view.cordoned else None),
        TAINTS: (NodeField.TAINTS, _taints(view)),
        MIG_STATE: (NodeField.MIG_STATE, _played_mig(view) and view.mig_state),
        STATE: (NodeField.STATE, view.state or None),
        DRIVER: (NodeField.DRIVER, view.driver_label or None),
        LEASE: (NodeField.LEASE, _annotation(view.lease)),
        LEASE_CLAIM: (None, _annotation(view.claim)),
        RECORD: (NodeField.RECORD, _annotation(view.record)),
        INITIALLY_CORDONED: (NodeField.INITIALLY_CORDONED, view.initially_cordoned and "true"),
        REQUEST: (NodeField.REQUEST, view.request and view.request.value),
        REQUESTED: (NodeField.REQUESTED, view.requested and "true"),
        SAFE_LOAD: (NodeField.SAFE_LOAD, view.safe_load and "true"),
        SKIP: (None, view.skip and "true"),
        KEEP_CORDONED: (None, view.keep_cordoned and "true"),
    }
    return {
        path: OwnedField(
            value, (view.field_managers.get(field, ()) if field else ()) or ("somebody",)
        )
        for path, (field, value) in fields.items()
        if value
    }


def _taints(view: NodeView) -> tuple[NodeTaint, ...]:
    others = tuple(taint for taint in view.taints if taint.key != CORDON_TAINT.key)
    return (*others, CORDON_TAINT) if view.cordon_taint else others


def _annotation(value: NodeLease | NodeRecord | MalformedAnnotation | None) -> object:
    return "cannot be read" if isinstance(value, MalformedAnnotation) else value


def _machine(state: StageState, view: NodeView) -> None:
    machine = state.machines[view.name] = StageMachine(
        name=view.name,
        boot_id=view.boot_id,
        kernel=view.kernel,
        variant=view.variant,
        kubelet_connected=view.ready,
        admitted=view.gate.admitted_pod_uid if view.gate is not None else "",
        host_processes=view.usage.host_processes if view.usage is not None else 0,
        images=frozenset(_images(view)),
        wanted_image=view.image_pull.label if view.image_pull is not None else "",
        image_trouble=view.image_pull.trouble if view.image_pull is not None else "",
    )
    if view.mig is not None and view.mig.applied:
        machine.layout = view.mig.digest
    elif view.evidence is not None:
        machine.layout = view.evidence.mig_digest
    gpu_health.add_from_view(machine, view)
    for pod in view.driver_pods:
        _driver(state, machine, view, pod)
    started = _started_since_facts(view)
    if started is not None:
        machine.admitted = started.uid
        if started.ready:
            machine.loaded = driver_pods.kernel_driver(started.install_digest, state.now)
    elif view.loaded is not None:
        machine.loaded = KernelDriver(_digest(machine, view), view.loaded)
    for part, component in view.components.items():
        _agent(state, machine, view, part, component)
    if view.modules_reported:
        state.driver_facts[view.name] = DriverFacts(
            loaded=view.loaded, gate=view.gate, usage=view.usage
        )
    state.call_after(0.0, _resume, view.name)


def _started_since_facts(view: NodeView) -> DriverPod | None:
    """Return the driver pod whose container runs already, where the agent's facts do not say so.

    They are a few seconds old. A container that runs was let through the gate, and one that is
    ready has loaded its driver.
    """
    if view.state != UpgradeState.POD_RESTART_REQUIRED or view.gate is None:
        return None
    for pod in view.driver_pods:
        if pod.started is None or pod.deleting or pod.label != view.driver_label:
            continue
        if pod.uid != view.gate.admitted_pod_uid or (pod.ready and view.loaded is None):
            return pod
    return None


def _images(view: NodeView) -> Iterator[str]:
    """Yield the labels of the drivers whose images are on the machine."""
    yield from (pod.label for pod in view.driver_pods if pod.started is not None)
    if view.image_pull is not None and view.image_pull.present:
        yield view.image_pull.label


def _resume(state: StageState, name: str) -> None:
    """Resume the operations in progress."""
    machine = state.machines[name]
    driver_pods.sync_drivers(state, name)
    preflights.resume_preflight(state, name)
    if machine.wanted_image not in ("", *machine.images):
        images.pull_image(state, name, machine.wanted_image)
    is_at_rest = all(agent.current_op is None for agent in machine.agents.values())
    for agent in machine.agents.values():
        agents.read_slot(state, machine, agent, resumes_rest=is_at_rest)
    for tenant_pod in list(machine.tenant_pods.values()):
        if tenant_pod.deleting:
            tenant_pods.schedule_stop(state, machine, tenant_pod)
    effects.resume_evictions(state, name)
    state.machine_changed(machine)


def _digest(machine: StageMachine, view: NodeView) -> str:
    """Return the digest of the loaded driver: the running pod's, or the one of the evidence."""
    pod = machine.drivers.get(machine.admitted)
    if pod is not None:
        return pod.install_digest
    record = view.record
    proof = record.evidence if isinstance(record, NodeRecord) else None
    if proof is not None and view.loaded and proof.driver_version == view.loaded.version:
        return proof.driver_digest
    return f"of {view.loaded.version}" if view.loaded else ""


def _driver(state: StageState, machine: StageMachine, view: NodeView, observed: DriverPod) -> None:
    status = DriverContainerStatus(
        observed.ready, observed.started, observed.restarts, observed.trouble
    )
    pod = machine.drivers[observed.uid] = StageDriverPod(
        uid=observed.uid,
        name=observed.name,
        label=observed.label,
        install_digest=observed.install_digest,
        deleting=observed.deleting,
        on_machine=True,
        status=status,
        reported_status=status,
    )
    waiting = view.gate.waiting_pod_uid if view.gate is not None else ""
    if observed.ready:
        pod.phase = DriverPodPhase.RUNNING
    elif observed.started is not None:
        pod.phase = DriverPodPhase.LOADING
        driver_pods.call_in_run(state, 0.0, driver_pods.continue_loading, machine, pod)
    elif observed.uid == machine.admitted and not (observed.restarts or observed.trouble):
        wait = state.latencies.kubelet
        driver_pods.call_in_run(state, wait, driver_pods.start_container, machine, pod)
    elif observed.uid == machine.admitted:
        pod.phase = DriverPodPhase.CRASHED
        wait = state.latencies.restart_backoff
        driver_pods.call_in_run(state, wait, driver_pods.restart_container, machine, pod)
    elif observed.uid == waiting:
        pod.phase = DriverPodPhase.AT_GATE
    else:
        pod.on_machine = False
        driver_pods.call_later(state, 0.0, driver_pods.start_driver_pod, machine, pod)
    if observed.deleting:
        driver_pods.call_later(state, 0.0, driver_pods.stop_driver_pod, machine, pod)


def _agent(
    state: StageState, machine: StageMachine, view: NodeView, part: str, observed: Component
) -> None:
    silent = observed.is_silent(state.now)
    fields = AgentReports(
        result=observed.result,
        progress=observed.progress,
        refusal=observed.refusal,
        evidence=view.evidence if part == "validator" else None,
        highest_order=observed.highest_order,
    )
    agent = machine.agents[part] = StageAgent(
        component=part,
        capabilities=observed.capabilities,
        alive=not silent,
        silent_at=observed.silent_at if silent else None,
        last_beat=observed.last_beat or 0.0,
        node_uid=view.uid,
        highest_order=observed.highest_order,
        last_result=observed.result,
        pending_reports=fields,
        published_reports=fields,
        holds_devices=part not in agents.WITHOUT_DEVICES and not silent,
    )
    slot = observed.slot
    if slot is None:
        return
    state.slots[view.name, part] = StageSlot(1, slot)
    agent.epoch = slot.epoch
    if observed.result_of(slot.order) is not None:
        body = slot.open()
        agent.slot = slot
        agent.holds_devices = agent.holds_devices and not isinstance(body, Quiesce)
        agent.proven = body.proven if isinstance(body, Idle) else None
    elif observed.progress is not None and observed.progress.order == slot.order:
        agent.current_op = slot
        agent.found_phase = observed.progress.phase
        agent.highest_order = max(slot.order, agent.highest_order)
        agent.holds_devices = False
