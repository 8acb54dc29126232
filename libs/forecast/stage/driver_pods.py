"""Driver pods: the DaemonSet controller that creates them, and the kubelet that runs them.

The gate between a pod and its container is in `driver_agent`.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.contracts.journal import Verb
from libs.contracts.paths import DRIVER, DRIVER_STARTED, GRACE, POD_NODE, READY, SAFE_LOAD, UID
from libs.forecast.stage import api
from libs.forecast.stage.objects import DriverPodPhase, KernelDriver, StageDriverPod, StageMachine
from libs.forecast.stage.state import SCHEDULER, ObjectRef, StageState
from libs.forecast.world import ProcessEnd

DAEMON_SET_CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"
KUBELET = "system:node"
NAMESPACE = "gpu-operator"
CONTAINER = "driver"
"""The container's name in a world; the workload is the DaemonSet, named by its label."""

_MOST_DOUBLINGS = 10
"""Of the back-off, which has a limit that is lower."""

PodCallback = Callable[[StageState, StageMachine, StageDriverPod], None]


class PodRun(NamedTuple):
    """A pod in a boot of its machine, and in one of its runs; None: in any run."""

    machine: str
    boot: int
    uid: str
    run: int | None = None


# The DaemonSet controller.


def sync_drivers(state: StageState, name: str) -> None:
    """Keep one pod of the DaemonSet that the Node's label names, and delete all others."""
    machine = state.machines.get(name)
    if machine is None:
        return
    node = state.nodes.get(name)
    label = node.view.driver_label if node is not None else ""
    pods = [pod for pod in machine.drivers.values() if pod.in_api]
    for pod in pods:
        if pod.label != label and not pod.deleting and node is not None:
            delete(state, machine, pod, user=DAEMON_SET_CONTROLLER)
    if label in state.daemon_sets and not any(pod.label == label for pod in pods):
        _create(state, machine, label)


def _create(state: StageState, machine: StageMachine, label: str) -> None:
    uid = state.new_uid("driver-pod")
    pod = machine.drivers[uid] = StageDriverPod(
        uid=uid,
        name=f"driver-{machine.name}-{uid}",
        label=label,
        install_digest=state.daemon_sets[label],
    )
    journal(state, pod, (Verb.CREATE, DAEMON_SET_CONTROLLER), 201, pod_leaves(machine, pod))
    state.touch(machine.name)
    call_later(state, state.latencies.kubelet, start_driver_pod, machine, pod)


def delete(
    state: StageState, machine: StageMachine, pod: StageDriverPod, *, user: str = SCHEDULER
) -> None:
    """Delete with grace: the object stays until the kubelet confirms the end."""
    pod.deleting = True
    journal(state, pod, (Verb.DELETE, user), 200, pod_leaves(machine, pod))
    state.touch(machine.name)
    if machine.up:
        call_later(state, state.latencies.kubelet, stop_driver_pod, machine, pod)


def journal(
    state: StageState,
    pod: StageDriverPod,
    by: tuple[Verb, str],
    code: int,
    after: Mapping[str, Any] | None = None,
) -> None:
    api.journal_pod(state, ObjectRef("Pod", pod.name, pod.uid, NAMESPACE), by, code, after)


def pod_leaves(machine: StageMachine, pod: StageDriverPod) -> dict[str, Any]:
    """Return the Pod by path, as the API server has it."""
    status = pod.reported_status
    by_path: dict[str, Any] = {
        UID: pod.uid,
        "metadata.name": pod.name,
        DRIVER: pod.label,
        POD_NODE: machine.name,
        READY: str(status.ready),
    }
    if pod.deleting:
        by_path[GRACE] = 30
    if status.started is not None:
        by_path[DRIVER_STARTED] = datetime.fromtimestamp(status.started, UTC).isoformat()
    return by_path


# Timers of a pod.


def call_later(
    state: StageState,
    seconds: float,
    callback: PodCallback,
    machine: StageMachine,
    pod: StageDriverPod,
) -> None:
    """Call back in this boot of the machine, if the pod is still known there."""
    state.call_after(seconds, pod_is_due, callback, PodRun(machine.name, machine.boot, pod.uid))


def call_in_run(
    state: StageState,
    seconds: float,
    callback: PodCallback,
    machine: StageMachine,
    pod: StageDriverPod,
) -> None:
    """Call back during this run of the pod; the end of the run voids the call."""
    run = PodRun(machine.name, machine.boot, pod.uid, pod.run)
    state.call_after(seconds, pod_is_due, callback, run)


def pod_is_due(state: StageState, callback: PodCallback, due: PodRun) -> None:
    machine = state.machine(due.machine, due.boot)
    pod = machine.drivers.get(due.uid) if machine is not None else None
    if machine is None or pod is None:
        return
    if due.run is None or (pod.run == due.run and pod.on_machine and not pod.ending):
        callback(state, machine, pod)


# The kubelet.


def start_driver_pod(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    """Start a new pod, or one found again after a boot."""
    if pod.on_machine or not machine.kubelet_connected:
        return
    if pod.deleting:
        _confirm_end(state, machine, pod)
        return
    pod.on_machine = True
    pod.run += 1
    pod.phase = DriverPodPhase.PULLING
    is_here = pod.label in machine.images
    pull = 0.0 if is_here else state.world.pull(machine.name, pod.label, CONTAINER).seconds
    if pull is None:
        pod.phase = DriverPodPhase.STUCK
        trouble = "ImagePullBackOff: the image of the driver does not exist"
        update_status(state, machine, pod, trouble=trouble)
    else:
        pod.pulled = pull
        call_in_run(state, pull, driver_image_pulled, machine, pod)


def driver_image_pulled(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    pod.phase = DriverPodPhase.AT_GATE
    machine.images |= {pod.label}
    state.touch(machine.name)
    state.machine_changed(machine)


def stop_driver_pod(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    """Stop the containers of a pod that is being deleted."""
    if pod.ending or not pod.deleting or not machine.kubelet_connected:
        return
    if not pod.on_machine:
        _confirm_end(state, machine, pod)
        return
    pod.ending = True
    stop, grace = state.world.stop(machine.name, pod.label, CONTAINER), state.latencies.grace_period
    seconds = grace if stop.seconds is None else min(stop.seconds, grace)
    call_later(state, seconds, driver_pod_stopped, machine, pod)


def driver_pod_stopped(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    pod.on_machine = False
    pod.phase = DriverPodPhase.ENDED
    _confirm_end(state, machine, pod)
    state.machine_changed(machine)


def _confirm_end(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    """Confirm the end to the API server, which removes the object."""
    if pod.in_api and machine.kubelet_connected:
        pod.in_api = False
        journal(state, pod, (Verb.DELETE, KUBELET), 200, {})
        state.touch(machine.name)
        state.call_after(state.latencies.daemon_set, sync_drivers, machine.name)
    forget(machine, pod)


def forget(machine: StageMachine, pod: StageDriverPod) -> None:
    """Drop the pod once it is gone from the API and from the machine."""
    if not pod.in_api and not pod.on_machine:
        machine.drivers.pop(pod.uid, None)


def update_status(
    state: StageState, machine: StageMachine, pod: StageDriverPod, **changes: object
) -> None:
    """Change the status; it is posted if the kubelet is connected."""
    if changes:
        pod.status = replace(pod.status, **changes)
    if machine.kubelet_connected and pod.reported_status != pod.status:
        pod.reported_status = pod.status
        if pod.in_api:
            journal(state, pod, (Verb.PATCH, KUBELET), 200, pod_leaves(machine, pod))
        state.touch(machine.name)


# The container after the gate: it loads its modules, runs, and crashes.


def admit(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    """Let the pod through the gate."""
    machine.admitted = pod.uid
    state.on_gate_opened(machine, pod)
    state.log(f"{machine.name}: the gate opens to {pod.uid} ({pod.label})")
    pod.run += 1
    call_in_run(state, state.latencies.kubelet, start_container, machine, pod)


def start_container(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    state.on_driver_start(machine, pod)
    pod.phase = DriverPodPhase.LOADING
    update_status(state, machine, pod, ready=False, started=state.now, trouble="")
    node = state.nodes.get(machine.name)
    if node is None or api.value(node, SAFE_LOAD) is None:
        _load(state, machine, pod)


def continue_loading(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    """Let a container go on that was found while it loads its modules."""
    node = state.nodes.get(machine.name)
    if node is None or api.value(node, SAFE_LOAD) is None:
        _load(state, machine, pod, since=pod.status.started)


def resume_load(state: StageState, machine: StageMachine) -> None:
    """Load the drivers that waited for the removal of the safe-load annotation."""
    for pod in machine.drivers.values():
        if pod.on_machine and pod.phase is DriverPodPhase.LOADING:
            _load(state, machine, pod)


def _load(
    state: StageState, machine: StageMachine, pod: StageDriverPod, *, since: float | None = None
) -> None:
    """Load the modules, which began at `since`; None: now.

    What lasts longer than it should ends now, and has not failed.
    """
    pod.run += 1
    end = state.world.load(machine.name, pod.label, machine.attempt(f"load {pod.label}"))
    if pod.never_loads and end.after is not None:
        end = ProcessEnd(end.after, end.exit_code or 1)
    if end.after is not None and since is not None:
        left = end.after - (state.now - since)
        end = ProcessEnd(left, end.exit_code) if left > 0 else ProcessEnd(0.0)
    if end.after is not None:
        callback = driver_crashed if end.exit_code else driver_loaded
        call_in_run(state, end.after, callback, machine, pod)


def driver_loaded(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    if machine.loaded is None:
        machine.loaded = kernel_driver(pod.install_digest, state.now)
    pod.phase = DriverPodPhase.RUNNING
    attempt = machine.attempt(f"run {pod.label}")
    ready = state.world.ready(machine.name, pod.label, CONTAINER, attempt).seconds
    if ready is not None:
        call_in_run(state, ready, driver_ready, machine, pod)
    crash = state.world.run(machine.name, pod.label, CONTAINER, attempt).after
    if crash is not None:
        call_in_run(state, crash, driver_crashed, machine, pod)
    state.machine_changed(machine)


def driver_ready(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    update_status(state, machine, pod, ready=True, trouble="")
    state.machine_changed(machine)


def driver_crashed(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    """End the container; it restarts in place, without passing the gate."""
    pod.run += 1
    pod.phase = DriverPodPhase.CRASHED
    backoff = state.latencies.restart_backoff * 2 ** min(pod.status.restarts, _MOST_DOUBLINGS)
    trouble = f"CrashLoopBackOff: the driver of {pod.label} ended"
    update_status(state, machine, pod, ready=False, started=None, trouble=trouble)
    wait = min(backoff, state.latencies.restart_backoff_max)
    call_in_run(state, wait, restart_container, machine, pod)
    state.machine_changed(machine)


def restart_container(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    pod.status = replace(pod.status, restarts=pod.status.restarts + 1)
    start_container(state, machine, pod)


def kernel_driver(
    install_digest: str, loaded_at: float, *, preinstalled: bool = False
) -> KernelDriver:
    """Return a loaded driver, with the version that a machine reports of it."""
    version = version_of(install_digest)
    driver = LoadedDriver(version=version, loaded_at=loaded_at, preinstalled=preinstalled)
    return KernelDriver(install_digest, driver)


def version_of(install_digest: str) -> str:
    """Return the version that a machine with this driver reports."""
    return f"580.{sum(map(ord, install_digest)) % 1000}"
