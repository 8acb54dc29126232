"""Driver pods: the DaemonSet controller that makes them, and the kubelet that has them.

The gate is only asked here; who answers it is in `driving`, and what runs behind it in `loading`.
Nothing here knows of upgrades: a pod is made for a label.
"""

from msgspec.structs import replace

from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER
from libs.forecast.stage import api
from libs.forecast.stage.objects import Driver, Machine, Phase, Status
from libs.forecast.stage.paths import COLLECTOR, DAEMON_SETS, SCHEDULER
from libs.forecast.stage.state import State

NAMESPACE = "gpu-operator"
CONTAINER = "driver"
"""What worlds know it by; the workload is the DaemonSet, which is named by its label here."""


# The DaemonSet controller.


def sync_drivers(state: State, name: str) -> None:
    """One pod of the DaemonSet that the Node's label names, and of no other."""
    machine = state.machines.get(name)
    if machine is None:
        return
    node = state.nodes.get(name)
    label = api.driver_label(node) if node is not None else ""
    there = [pod for pod in machine.drivers.values() if pod.in_api]
    for pod in there:
        if pod.label != label and not pod.deleting and node is not None:
            delete(state, machine, pod, user=DAEMON_SETS)
    if label in state.daemon_sets and not any(pod.label == label for pod in there):
        _make(state, machine, label)


def _make(state: State, machine: Machine, label: str) -> None:
    uid = state.uid("driver-pod")
    pod = Driver(
        uid=uid,
        name=f"driver-{machine.name}-{uid}",
        label=label,
        install_digest=state.daemon_sets[label],
    )
    machine.drivers[uid] = pod
    leaves = {"metadata.uid": uid, "metadata.name": pod.name, "spec.nodeName": machine.name}
    _journal(state, pod, (Verb.CREATE, 201), DAEMON_SETS, leaves)
    state.touch(machine.name)
    state.after(state.pace.kubelet, taken_up, machine.name, machine.boot, uid)


def delete(state: State, machine: Machine, pod: Driver, *, user: str = SCHEDULER) -> None:
    """A deletion with grace: the object stays until the kubelet says that it ended."""
    pod.deleting = True
    _journal(state, pod, (Verb.DELETE, 200), user)
    state.touch(machine.name)
    if machine.up:
        state.after(state.pace.kubelet, heard_of_end, machine.name, machine.boot, pod.uid)


def drop(state: State, machine: Machine, pod: Driver, *, user: str) -> None:
    """The object goes at once, whatever the machine still runs."""
    pod.in_api = False
    pod.deleting = True
    _journal(state, pod, (Verb.DELETE, 200), user, {})
    _forget(machine, pod)
    state.touch(machine.name)
    state.after(state.pace.daemon_set, sync_drivers, machine.name)
    if machine.up and pod.on_machine:
        state.after(state.pace.kubelet, heard_of_end, machine.name, machine.boot, pod.uid)


# The kubelet.


def taken_up(state: State, name: str, boot: int, uid: str) -> None:
    """The kubelet has heard of a new pod, or found one again after a boot."""
    machine = state.machine(name, boot)
    pod = machine.drivers.get(uid) if machine is not None else None
    if machine is None or pod is None or pod.on_machine or not machine.hears:
        return
    if pod.deleting:
        _gone(state, machine, pod)
        return
    pod.on_machine = True
    pod.run += 1
    pod.phase = Phase.PULLING
    pull = state.world.pull(name, pod.label, CONTAINER).seconds
    if pull is None:
        pod.phase = Phase.STUCK
        say(state, machine, pod, trouble="ImagePullBackOff: the image of the driver is not there")
    else:
        state.after(pull, pulled, name, boot, uid, pod.run)


def pulled(state: State, name: str, boot: int, uid: str, run: int) -> None:
    """The image is there; the gate's container asks."""
    found = current(state, name, boot, uid, run)
    if found is None:
        return
    machine, pod = found
    pod.phase = Phase.AT_GATE
    state.touch(name)
    state.stir(machine)


def heard_of_end(state: State, name: str, boot: int, uid: str) -> None:
    """The kubelet has heard of the deletion: it stops what runs."""
    machine = state.machine(name, boot)
    pod = machine.drivers.get(uid) if machine is not None else None
    if machine is None or pod is None or pod.ending or not pod.deleting or not machine.hears:
        return
    if not pod.on_machine:
        _gone(state, machine, pod)
        return
    pod.ending = True
    stop = state.world.stop(name, pod.label, CONTAINER).seconds
    grace = state.pace.grace
    state.after(grace if stop is None else min(stop, grace), ended, name, boot, uid)


def ended(state: State, name: str, boot: int, uid: str) -> None:
    """No container of it is left."""
    machine = state.machine(name, boot)
    pod = machine.drivers.get(uid) if machine is not None else None
    if machine is None or pod is None:
        return
    pod.on_machine = False
    pod.phase = Phase.ENDED
    _gone(state, machine, pod)
    state.stir(machine)


def _gone(state: State, machine: Machine, pod: Driver) -> None:
    """The kubelet confirms the end, on which the object goes."""
    if pod.in_api and machine.hears:
        pod.in_api = False
        _journal(state, pod, (Verb.DELETE, 200), "system:node", {})
        state.touch(machine.name)
        state.after(state.pace.daemon_set, sync_drivers, machine.name)
    _forget(machine, pod)


def _forget(machine: Machine, pod: Driver) -> None:
    if not pod.in_api and not pod.on_machine:
        machine.drivers.pop(pod.uid, None)


# What becomes of them with their machine.


def machine_down(machine: Machine) -> None:
    """Nothing runs any more; their objects know nothing of it."""
    for pod in machine.drivers.values():
        pod.on_machine = pod.ending = False
        pod.run += 1
    for pod in list(machine.drivers.values()):
        _forget(machine, pod)


def kubelet_back(state: State, machine: Machine) -> None:
    """It hears again, or the machine is up again: all that it missed."""
    for pod in list(machine.drivers.values()):
        if not pod.on_machine:
            restarts = pod.status.restarts + (pod.status.started is not None)
            pod.status = Status(restarts=restarts)
            state.after(state.pace.kubelet, taken_up, machine.name, machine.boot, pod.uid)
        elif pod.deleting:
            state.after(state.pace.kubelet, heard_of_end, machine.name, machine.boot, pod.uid)
        say(state, machine, pod)


def collected(state: State, machine: Machine) -> None:
    """Their Node is gone: their objects are too."""
    for pod in list(machine.drivers.values()):
        if pod.in_api:
            drop(state, machine, pod, user=COLLECTOR)


def say(state: State, machine: Machine, pod: Driver, **changes: object) -> None:
    """A new status; the API server has it if the kubelet is connected."""
    if changes:
        pod.status = replace(pod.status, **changes)
    if machine.hears and pod.shown != pod.status:
        pod.shown = pod.status
        state.touch(machine.name)


def current(
    state: State, name: str, boot: int, uid: str, run: int
) -> tuple[Machine, Driver] | None:
    """The pod, if it is on that machine and no other run of it has begun."""
    machine = state.machine(name, boot)
    pod = machine.drivers.get(uid) if machine is not None else None
    if machine is None or pod is None or not pod.on_machine or pod.ending or pod.run != run:
        return None
    return machine, pod


def _journal(
    state: State,
    pod: Driver,
    what: tuple[Verb, int],
    user: str,
    leaves: dict[str, str] | None = None,
) -> None:
    if state.chronicle is not None:
        verb, code = what
        by = api.By(verb, user, MANAGER if user == SCHEDULER else "")
        api.journal_pod(state, api.Pod(NAMESPACE, pod.name, pod.uid), by, code, leaves)
    else:
        state.revision += 1
