"""The driver's container: past the gate it loads its modules, runs, and crashes."""

from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.forecast.stage import api, driver_pods
from libs.forecast.stage.field_paths import SAFE_LOAD
from libs.forecast.stage.objects import DriverPodPhase, KernelDriver, StageDriverPod, StageMachine
from libs.forecast.stage.state import StageState


def admit(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    """Let the pod through the gate."""
    machine.admitted = pod.uid
    state.log(f"{machine.name}: the gate opens to {pod.uid} ({pod.label})")
    pod.run += 1
    state.call_after(
        state.latencies.kubelet,
        start_driver_container,
        machine.name,
        machine.boot,
        pod.uid,
        pod.run,
    )


def start_driver_container(state: StageState, name: str, boot: int, uid: str, run: int) -> None:
    found = driver_pods.current_run(state, name, boot, uid, run)
    if found is None:
        return
    machine, pod = found
    _check_exclusive(state, machine, pod)
    pod.phase = DriverPodPhase.LOADING
    driver_pods.update_status(state, machine, pod, ready=False, started=state.now, trouble="")
    node = state.nodes.get(name)
    if node is not None and api.value(node, SAFE_LOAD) is not None:
        return
    _load(state, machine, pod)


def resume_load(state: StageState, machine: StageMachine) -> None:
    """Load the drivers that waited for the safe-load annotation to go."""
    for pod in machine.drivers.values():
        if pod.on_machine and pod.phase is DriverPodPhase.LOADING:
            _load(state, machine, pod)


def _load(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    pod.run += 1
    end = state.world.load(machine.name, pod.label, machine.attempt(f"load {pod.label}"))
    if end.after is None:
        return
    callback = driver_crashed if end.exit_code else driver_loaded
    state.call_after(end.after, callback, machine.name, machine.boot, pod.uid, pod.run)


def _check_exclusive(state: StageState, machine: StageMachine, pod: StageDriverPod) -> None:
    """Record the violations the gate prevents: two drivers, or one over another's modules."""
    for other in machine.drivers.values():
        running = other.phase in {DriverPodPhase.LOADING, DriverPodPhase.RUNNING}
        if other is not pod and other.on_machine and running:
            state.record_violation(
                machine.name, f"driver {pod.uid} ({pod.label}) started while "
                f"{other.uid} ({other.label}) runs",
            )  # fmt: skip
    loaded = machine.loaded
    if loaded is not None and loaded.install_digest != pod.install_digest:
        state.record_violation(
            machine.name, f"driver {pod.uid} ({pod.install_digest}) started over the modules "
            f"of {loaded.install_digest}",
        )  # fmt: skip


def driver_loaded(state: StageState, name: str, boot: int, uid: str, run: int) -> None:
    found = driver_pods.current_run(state, name, boot, uid, run)
    if found is None:
        return
    machine, pod = found
    if machine.loaded is None:
        machine.loaded = KernelDriver(
            pod.install_digest,
            LoadedDriver(version=version_of(pod.install_digest), loaded_at=state.now),
        )
    pod.phase = DriverPodPhase.RUNNING
    attempt = machine.attempt(f"run {pod.label}")
    ready = state.world.ready(name, pod.label, driver_pods.CONTAINER, attempt).seconds
    if ready is not None:
        state.call_after(ready, driver_ready, name, boot, uid, pod.run)
    ends = state.world.run(name, pod.label, driver_pods.CONTAINER, attempt).after
    if ends is not None:
        state.call_after(ends, driver_crashed, name, boot, uid, pod.run)
    state.machine_changed(machine)


def driver_ready(state: StageState, name: str, boot: int, uid: str, run: int) -> None:
    found = driver_pods.current_run(state, name, boot, uid, run)
    if found is not None:
        machine, pod = found
        driver_pods.update_status(state, machine, pod, ready=True, trouble="")
        state.machine_changed(machine)


def driver_crashed(state: StageState, name: str, boot: int, uid: str, run: int) -> None:
    """End the container; it restarts in place, without passing the gate."""
    found = driver_pods.current_run(state, name, boot, uid, run)
    if found is None:
        return
    machine, pod = found
    pod.run += 1
    pod.phase = DriverPodPhase.CRASHED
    restarts = pod.status.restarts
    wait = min(state.latencies.restart_backoff * 2**restarts, state.latencies.restart_backoff_max)
    trouble = f"CrashLoopBackOff: the driver of {pod.label} ended"
    driver_pods.update_status(state, machine, pod, ready=False, started=None, trouble=trouble)
    state.call_after(wait, restart_driver_container, name, boot, uid, pod.run)
    state.machine_changed(machine)


def restart_driver_container(state: StageState, name: str, boot: int, uid: str, run: int) -> None:
    found = driver_pods.current_run(state, name, boot, uid, run)
    if found is not None:
        _, pod = found
        pod.status = replace(pod.status, restarts=pod.status.restarts + 1)
        start_driver_container(state, name, boot, uid, run)


def version_of(install_digest: str) -> str:
    """Return the version that a machine with this driver reports."""
    return f"580.{sum(map(ord, install_digest)) % 1000}"
