"""Driver pods: the DaemonSet controller that creates them, and the kubelet that runs them.

The gate is answered in `driver_agent`; what runs behind it is in `driver_container`.
"""

from msgspec.structs import replace

from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER
from libs.forecast.stage import api
from libs.forecast.stage.field_paths import DAEMON_SET_CONTROLLER, POD_GC
from libs.forecast.stage.objects import (
    DriverContainerStatus,
    DriverPodPhase,
    StageDriverPod,
    StageMachine,
)
from libs.forecast.stage.state import SCHEDULER, StageState

NAMESPACE = "gpu-operator"
CONTAINER = "driver"
"""The container's name in a world; the workload is the DaemonSet, named by its label."""


# The DaemonSet controller.


def sync_drivers(state: StageState, name: str) -> None:
    """Keep one pod of the DaemonSet that the Node's label names, and of no other."""
    machine = state.machines.get(name)
    if machine is None:
        return
    node = state.nodes.get(name)
    label = api.driver_label_of(node) if node is not None else ""
    pods = [pod for pod in machine.drivers.values() if pod.in_api]
    for pod in pods:
        if pod.label != label and not pod.deleting and node is not None:
            delete(state, machine, pod, user=DAEMON_SET_CONTROLLER)
    if label in state.daemon_sets and not any(pod.label == label for pod in pods):
        _create(state, machine, label)


def _create(state: StageState, machine: StageMachine, label: str) -> None:
    uid = state.new_uid("driver-pod")
    pod = StageDriverPod(
        uid=uid,
        name=f"driver-{machine.name}-{uid}",
        label=label,
        install_digest=state.daemon_sets[label],
    )
    machine.drivers[uid] = pod
    leaves = {"metadata.uid": uid, "metadata.name": pod.name, "spec.nodeName": machine.name}
    _journal(state, pod, (Verb.CREATE, 201), DAEMON_SET_CONTROLLER, leaves)
    state.touch(machine.name)
    state.call_after(state.latencies.kubelet, start_driver_pod, machine.name, machine.boot, uid)


def delete(
    state: StageState, machine: StageMachine, pod: StageDriverPod, *, user: str = SCHEDULER
) -> None:
    """Delete with grace: the object stays until the kubelet confirms the end."""
    pod.deleting = True
    _journal(state, pod, (Verb.DELETE, 200), user)
    state.touch(machine.name)
    if machine.up:
        state.call_after(
            state.latencies.kubelet, stop_driver_pod, machine.name, machine.boot, pod.uid
        )


def force_delete(
    state: StageState, machine: StageMachine, pod: StageDriverPod, *, user: str
) -> None:
    """Delete the object at once, whatever the machine still runs."""
    pod.in_api = False
    pod.deleting = True
    _journal(state, pod, (Verb.DELETE, 200), user, {})
    _forget(machine, pod)
    state.touch(machine.name)
    state.call_after(state.latencies.daemon_set, sync_drivers, machine.name)
    if machine.up and pod.on_machine:
        state.call_after(
            state.latencies.kubelet, stop_driver_pod, machine.name, machine.boot, pod.uid
        )


# The kubelet.


def start_driver_pod(state: StageState, name: str, boot: int, uid: str) -> None:
    """Start a new pod, or one found again after a boot."""
    machine = state.machine(name, boot)
    pod = machine.drivers.get(uid) if machine is not None else None
    if machine is None or pod is None or pod.on_machine or not machine.kubelet_connected:
        return
    if pod.deleting:
        _gone(state, machine, pod)
        return
    pod.on_machine = True
    pod.run += 1
    pod.phase = DriverPodPhase.PULLING
    pull = state.world.pull(name, pod.label, CONTAINER).seconds
    if pull is None:
        pod.phase = DriverPodPhase.STUCK
        update_status(
            state, machine, pod, trouble="ImagePullBackOff: the image of the driver is not there"
        )
    else:
        state.call_after(pull, driver_image_pulled, name, boot, uid, pod.run)


def driver_image_pulled(state: StageState, name: str, boot: int, uid: str, run: int) -> None:
    found = current_run(state, name, boot, uid, run)
    if found is None:
        return
    machine, pod = found
    pod.phase = DriverPodPhase.AT_GATE
    state.touch(name)
    state.machine_changed(machine)


def stop_driver_pod(state: StageState, name: str, boot: int, uid: str) -> None:
    """Stop the containers of a pod that is being deleted."""
    machine = state.machine(name, boot)
    pod = machine.drivers.get(uid) if machine is not None else None
    if (
        machine is None
        or pod is None
        or pod.ending
        or not pod.deleting
        or not machine.kubelet_connected
    ):
        return
    if not pod.on_machine:
        _gone(state, machine, pod)
        return
    pod.ending = True
    stop = state.world.stop(name, pod.label, CONTAINER).seconds
    grace = state.latencies.grace_period
    state.call_after(
        grace if stop is None else min(stop, grace), driver_pod_stopped, name, boot, uid
    )


def driver_pod_stopped(state: StageState, name: str, boot: int, uid: str) -> None:
    machine = state.machine(name, boot)
    pod = machine.drivers.get(uid) if machine is not None else None
    if machine is None or pod is None:
        return
    pod.on_machine = False
    pod.phase = DriverPodPhase.ENDED
    _gone(state, machine, pod)
    state.machine_changed(machine)


def _gone(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    """Confirm the end to the API server, which removes the object."""
    if pod.in_api and machine.kubelet_connected:
        pod.in_api = False
        _journal(state, pod, (Verb.DELETE, 200), "system:node", {})
        state.touch(machine.name)
        state.call_after(state.latencies.daemon_set, sync_drivers, machine.name)
    _forget(machine, pod)


def _forget(machine: StageMachine, pod: StageDriverPod) -> None:
    if not pod.in_api and not pod.on_machine:
        machine.drivers.pop(pod.uid, None)


# What becomes of them with their machine.


def machine_down(machine: StageMachine) -> None:
    """Stop all pods; the API server does not notice."""
    for pod in machine.drivers.values():
        pod.on_machine = pod.ending = False
        pod.run += 1
    for pod in list(machine.drivers.values()):
        _forget(machine, pod)


def resync_kubelet(state: StageState, machine: StageMachine) -> None:
    """Catch up after the kubelet was disconnected or the machine was down."""
    for pod in list(machine.drivers.values()):
        if not pod.on_machine:
            restarts = pod.status.restarts + (pod.status.started is not None)
            pod.status = DriverContainerStatus(restarts=restarts)
            state.call_after(
                state.latencies.kubelet, start_driver_pod, machine.name, machine.boot, pod.uid
            )
        elif pod.deleting:
            state.call_after(
                state.latencies.kubelet, stop_driver_pod, machine.name, machine.boot, pod.uid
            )
        update_status(state, machine, pod)


def delete_orphans(state: StageState, machine: StageMachine) -> None:
    for pod in list(machine.drivers.values()):
        if pod.in_api:
            force_delete(state, machine, pod, user=POD_GC)


def update_status(
    state: StageState, machine: StageMachine, pod: StageDriverPod, **changes: object
) -> None:
    """Change the status; it is posted if the kubelet is connected."""
    if changes:
        pod.status = replace(pod.status, **changes)
    if machine.kubelet_connected and pod.reported_status != pod.status:
        pod.reported_status = pod.status
        state.touch(machine.name)


def current_run(
    state: StageState, name: str, boot: int, uid: str, run: int
) -> tuple[StageMachine, StageDriverPod] | None:
    """Return the pod, if it is on the machine and in this run."""
    machine = state.machine(name, boot)
    pod = machine.drivers.get(uid) if machine is not None else None
    if machine is None or pod is None or not pod.on_machine or pod.ending or pod.run != run:
        return None
    return machine, pod


def _journal(
    state: StageState,
    pod: StageDriverPod,
    what: tuple[Verb, int],
    user: str,
    leaves: dict[str, str] | None = None,
) -> None:
    if state.recorder is not None:
        verb, code = what
        by = api.Requester(verb, user, MANAGER if user == SCHEDULER else "")
        api.journal_pod(state, api.PodId(NAMESPACE, pod.name, pod.uid), by, code, leaves)
    else:
        state.revision += 1
