"""The driver's container: let in by the gate, it loads its modules, runs, and crashes.

Who is let in is decided in `driving`. Nothing here knows of upgrades: a container runs what its pod
was made for.
"""

from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.forecast.stage import api, drivers
from libs.forecast.stage.objects import Driver, Loaded, Machine, Phase
from libs.forecast.stage.paths import SAFE_LOAD
from libs.forecast.stage.state import State


def admit(state: State, machine: Machine, pod: Driver) -> None:
    """The gate answered this pod: it is a running driver from now on."""
    machine.admitted = pod.uid
    state.tell(f"{machine.name}: the gate opens to {pod.uid} ({pod.label})")
    pod.run += 1
    state.after(state.pace.kubelet, begin, machine.name, machine.boot, pod.uid, pod.run)


def begin(state: State, name: str, boot: int, uid: str, run: int) -> None:
    """The driver container starts: it loads its modules."""
    found = drivers.current(state, name, boot, uid, run)
    if found is None:
        return
    machine, pod = found
    _look_for_others(state, machine, pod)
    pod.phase = Phase.LOADING
    drivers.say(state, machine, pod, ready=False, started=state.now, trouble="")
    node = state.nodes.get(name)
    if node is not None and api.value(node, SAFE_LOAD) is not None:
        return
    _load(state, machine, pod)


def safe_to_load(state: State, machine: Machine) -> None:
    """Nobody asks the driver to wait any more: it loads."""
    for pod in machine.drivers.values():
        if pod.on_machine and pod.phase is Phase.LOADING:
            _load(state, machine, pod)


def _load(state: State, machine: Machine, pod: Driver) -> None:
    pod.run += 1
    end = state.world.load(machine.name, pod.label, machine.attempt(f"load {pod.label}"))
    if end.after is None:
        return
    what = crashed if end.exit_code else loaded
    state.after(end.after, what, machine.name, machine.boot, pod.uid, pod.run)


def _look_for_others(state: State, machine: Machine, pod: Driver) -> None:
    """What the gate is for: two drivers on one machine, or one over the modules of another."""
    for other in machine.drivers.values():
        running = other.phase in {Phase.LOADING, Phase.RUNNING}
        if other is not pod and other.on_machine and running:
            state.note_violation(
                machine.name, f"driver {pod.uid} ({pod.label}) started while "
                f"{other.uid} ({other.label}) runs",
            )  # fmt: skip
    there = machine.loaded
    if there is not None and there.install_digest != pod.install_digest:
        state.note_violation(
            machine.name, f"driver {pod.uid} ({pod.install_digest}) started over the modules "
            f"of {there.install_digest}",
        )  # fmt: skip


def loaded(state: State, name: str, boot: int, uid: str, run: int) -> None:
    """Its modules are in the kernel."""
    found = drivers.current(state, name, boot, uid, run)
    if found is None:
        return
    machine, pod = found
    if machine.loaded is None:
        machine.loaded = Loaded(
            pod.install_digest,
            LoadedDriver(version=version_of(pod.install_digest), loaded_at=state.now),
        )
    pod.phase = Phase.RUNNING
    attempt = machine.attempt(f"run {pod.label}")
    ready = state.world.ready(name, pod.label, drivers.CONTAINER, attempt).seconds
    if ready is not None:
        state.after(ready, is_ready, name, boot, uid, pod.run)
    ends = state.world.run(name, pod.label, drivers.CONTAINER, attempt).after
    if ends is not None:
        state.after(ends, crashed, name, boot, uid, pod.run)
    state.stir(machine)


def is_ready(state: State, name: str, boot: int, uid: str, run: int) -> None:
    """Its probe is content."""
    found = drivers.current(state, name, boot, uid, run)
    if found is not None:
        machine, pod = found
        drivers.say(state, machine, pod, ready=True, trouble="")
        state.stir(machine)


def crashed(state: State, name: str, boot: int, uid: str, run: int) -> None:
    """Its container ended; it will be started again in place, without passing the gate."""
    found = drivers.current(state, name, boot, uid, run)
    if found is None:
        return
    machine, pod = found
    pod.run += 1
    pod.phase = Phase.CRASHED
    restarts = pod.status.restarts
    wait = min(state.pace.restart * 2**restarts, state.pace.restart_most)
    trouble = f"CrashLoopBackOff: the driver of {pod.label} ended"
    drivers.say(state, machine, pod, ready=False, started=None, trouble=trouble)
    state.after(wait, restarted, name, boot, uid, pod.run)
    state.stir(machine)


def restarted(state: State, name: str, boot: int, uid: str, run: int) -> None:
    """Again, in place."""
    found = drivers.current(state, name, boot, uid, run)
    if found is not None:
        _, pod = found
        pod.status = replace(pod.status, restarts=pod.status.restarts + 1)
        begin(state, name, boot, uid, run)


def version_of(install_digest: str) -> str:
    """What a machine that runs it reports."""
    return f"580.{sum(map(ord, install_digest)) % 1000}"
