"""Populate a stage from views, as far as they show the cluster.

The world supplies, once, the facts that no view shows: when a job ends, whether a disruption budget
will refuse. Operations in progress on a machine begin again.
"""

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.reports import Evidence
from libs.forecast.stage import (
    agents,
    driver_pods,
    effects,
    gpu_health,
    images,
    preflights,
    tenant_pods,
)
from libs.forecast.stage.fields import fields_of
from libs.forecast.stage.objects import (
    UNDIVIDED,
    AgentReports,
    DriverContainerStatus,
    DriverFacts,
    DriverPodPhase,
    KernelDriver,
    NodeMemory,
    StageAgent,
    StageDriverPod,
    StageMachine,
    StageNode,
    StageSlot,
)
from libs.forecast.stage.state import StageState
from libs.forecast.stage.tenants_of_fleet import populate_tenants
from libs.policy.wanted import InstallMethod
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.machine import Component, DriverPod, WantedMig
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView, Readiness

_NOT_PLAYED_OF_NODES: Final[dict[str, Any]] = {
    "allocatable": {},
    "validation_pod": None,
    "obstacle": None,
    "outdated_diagnoses": frozenset(),
    "no_gpus": "",
    "runtime_problem": "",
    "next_kernel": None,
    "runtime_digest": "",
    "unconfirmed_write_at": None,
}
"""What changes with the driver, the machine or a write, but is not followed by a stage: kept as it
was seen, it would be wrong once something is done to the node."""
_NOT_PLAYED_OF_POOLS: Final[dict[str, Any]] = {
    "version": "",
    "auto_upgrade_off_by": "",
    "validation_pod": False,
}
"""On a stage no pod confirms a validation, and nobody reads who did what."""
_NOT_PLAYED_OF_PODS: Final[dict[str, Any]] = {
    "container_id": "",
    "last_exit": "",
    "latest_exit": "",
    "pulled": None,
}
"""A container of a stage has no id and tells no exit; what an earlier pull took counts no more."""
_TOLD_OF_ROLLOUTS: Final[dict[str, Any]] = {"brake_set_by": "", "brake_reason": ""}


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
    rollout = view.rollout
    if rollout is not None:
        state.revision += 1
        state.epoch = max(state.epoch, rollout.status.epoch)
        revision = str(state.revision)
        rollout = replace(rollout, revision=revision, write_pending=False, **_TOLD_OF_ROLLOUTS)
    state.pools[view.key] = replace(view, rollout=rollout, **_NOT_PLAYED_OF_POOLS)
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
    played = _played_mig(view)
    played_view = replace(
        view,
        revision=str(state.revision),
        mig=played,
        mig_state=view.mig_state if played is not None else "",
        **_NOT_PLAYED_OF_NODES,
    )
    node = state.nodes[view.name] = StageNode(
        view=played_view, operands_paused=isinstance(view.record, NodeRecord) and view.record.paused
    )
    node.store(fields_of(played_view))
    state.memory[view.name] = NodeMemory(
        waiting=view.last_wait,
        preflight=view.preflight,
        preflight_boot=view.boot_id,
        evictions={each.uid: replace(each, failed="") for each in view.evictions},
    )
    state.touch(view.name)


def _played_mig(view: NodeView) -> WantedMig | None:
    """Return how the GPUs are to be divided; None: that is not known, or they stay undivided."""
    wanted = view.mig
    if wanted is None or not (wanted.error or wanted.digest):
        return None
    return None if wanted.applied and wanted.digest == UNDIVIDED else wanted


def _machine(state: StageState, view: NodeView) -> None:
    machine = state.machines[view.name] = StageMachine(
        name=view.name,
        boot_id=view.boot_id,
        kernel=view.kernel,
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
        return pod.view.install_digest
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
        view=replace(observed, **_NOT_PLAYED_OF_PODS), on_machine=True, status=status
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


def _played_evidence(view: NodeView) -> Evidence | None:
    """Return the validator's evidence without what the kubelet can give to pods.

    A Node of a stage lists no devices. A node that had just been validated would wait for them in
    vain, and the plan would have it fail.
    """
    return view.evidence and replace(view.evidence, allocatable=())


def _agent(
    state: StageState, machine: StageMachine, view: NodeView, part: str, observed: Component
) -> None:
    silent = observed.is_silent(state.now)
    fields = AgentReports(
        result=observed.result,
        progress=observed.progress,
        refusal=observed.refusal,
        evidence=_played_evidence(view) if part == "validator" else None,
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
