"""Nodes and their machines: who follows a Node's fields, and how machines go down, come back, join.

Must not know of upgrades.
"""

from libs.contracts.facts import LoadedDriver
from libs.contracts.journal import Verb
from libs.forecast.stage import api, drivers, loading, processes, works
from libs.forecast.stage.objects import Loaded, Machine, Node
from libs.forecast.stage.paths import (
    CORDON,
    DRIVER,
    KUBELET,
    LIFECYCLE,
    RECORD,
    SAFE_LOAD,
    UID,
)
from libs.forecast.stage.state import State

_FOLLOWS = api.By(Verb.PATCH, LIFECYCLE, "kube-controller-manager")
_SPEAKS = api.By(Verb.PATCH, KUBELET, "kubelet")


def watch(state: State, name: str, paths: frozenset[str]) -> None:
    """What a change of a Node sets in motion."""
    node = state.nodes.get(name)
    uid = node.uid if node is not None else ""
    if UID in paths and node is None:
        state.after(state.pace.collected, collect, name)
    if CORDON in paths:
        state.after(state.pace.taint, follow_cordon, name, uid)
    if DRIVER in paths or UID in paths:
        state.after(state.pace.daemon_set, drivers.sync_drivers, name)
    if RECORD in paths:
        state.after(state.pace.taint, works.pause_operands, name, uid)
    if SAFE_LOAD in paths and node is not None and api.value(node, SAFE_LOAD) is None:
        machine = state.machines.get(name)
        if machine is not None and machine.up:
            loading.safe_to_load(state, machine)


def follow_cordon(state: State, name: str, uid: str) -> None:
    """The node lifecycle controller: a taint for a cordon."""
    node = state.nodes.get(name)
    if node is None or node.uid != uid or node.taint == api.cordoned(node):
        return
    node.taint = not node.taint
    api.stored(state, node, _FOLLOWS)
    if not node.taint:
        works.has_room(state, name)


def collect(state: State, name: str) -> None:
    """Pods of a Node that is gone are deleted."""
    machine = state.machines.get(name)
    if machine is not None and name not in state.nodes:
        drivers.collected(state, machine)
        works.collected(state, machine)


def unheard(state: State, name: str) -> None:
    """A kubelet has not spoken for too long."""
    node, machine = state.nodes.get(name), state.machines.get(name)
    if node is None or machine is None or not node.ready:
        return
    if not machine.up or not machine.hears:
        node.ready = False
        api.stored(state, node, _FOLLOWS)


def cut_off(state: State, name: str, seconds: float | None) -> None:
    """The kubelet loses the API server; None: for ever."""
    machine = state.machines[name]
    if not machine.up or not machine.hears:
        return
    machine.hears = False
    state.after(state.pace.unready, unheard, name)
    if seconds is not None:
        state.after(seconds, joined_again, name, machine.boot)


def joined_again(state: State, name: str, boot: int) -> None:
    """It has it again."""
    machine = state.machine(name, boot)
    if machine is not None:
        machine.hears = True
        _speaks(state, machine)


def power_off(state: State, name: str) -> None:
    """The machine is down; whether it ever comes back is another matter."""
    machine = state.machines[name]
    machine.up = False
    machine.loaded = None
    machine.calling = False
    machine.admitted = ""
    machine.busy_since = None
    drivers.machine_down(machine)
    works.machine_down(machine)
    processes.machine_down(state, machine)
    state.after(state.pace.unready, unheard, name)


def reboot(state: State, name: str, kernel: str = "", variant: str = "") -> None:
    """Down, and up again if the world lets it; perhaps with another kernel."""
    machine = state.machines[name]
    if machine.up:
        power_off(state, name)
    down = state.world.boot(name, machine.attempt("boot")).seconds
    if down is not None:
        state.after(down, power_on, name, machine.boot, kernel, variant)


def power_on(state: State, name: str, boot: int, kernel: str = "", variant: str = "") -> None:
    """Another boot: /run is empty, and no module is loaded."""
    machine = state.machines[name]
    if machine.up or machine.boot != boot:
        return
    machine.up = machine.hears = True
    machine.boot += 1
    machine.boot_id = f"{name}-boot-{machine.boot}"
    machine.kernel = kernel or machine.kernel
    machine.variant = variant or machine.variant
    if machine.preinstalled is not None:
        install(state, machine, machine.preinstalled.install_digest)
    state.tell(f"{name} is up again: boot {machine.boot}, kernel {machine.kernel}")
    _speaks(state, machine)
    processes.machine_up(state, machine)


def install(state: State, machine: Machine, install_digest: str) -> None:
    """A driver that its owner put there is loaded, now and at each start."""
    version = loading.version_of(install_digest)
    driver = LoadedDriver(version=version, loaded_at=state.now, preinstalled=True)
    machine.loaded = machine.preinstalled = Loaded(install_digest, driver)
    state.stir(machine)


def _speaks(state: State, machine: Machine) -> None:
    """The kubelet posts what is so, and looks after its pods."""
    node = state.nodes.get(machine.name)
    if node is not None:
        said = (True, machine.boot_id, machine.kernel, machine.variant)
        if (node.ready, node.boot_id, node.kernel, node.variant) != said:
            if node.boot_id != machine.boot_id:
                state.reported.pop(machine.name, None)
            node.ready, node.boot_id, node.kernel, node.variant = said
            api.stored(state, node, _SPEAKS)
            processes.node_is(state, machine)
            works.has_room(state, machine.name)
    drivers.kubelet_back(state, machine)
    works.kubelet_back(state, machine)


def register(state: State, machine: Machine, *, pool: str) -> None:
    """A Node object for a machine that has none."""
    node = Node(
        name=machine.name,
        uid=state.uid("node"),
        revision=0,
        created=state.now,
        boot_id=machine.boot_id,
        kernel=machine.kernel,
        pool=pool,
        variant=machine.variant,
        gpus=8,
    )
    api.create_node(state, node)
    processes.node_is(state, machine)
