"""Nodes and their machines: controllers that follow a Node's fields, shutdowns, boots and joins."""

from libs.contracts.facts import LoadedDriver
from libs.contracts.journal import Verb
from libs.forecast.stage import agent_processes, api, driver_container, driver_pods, tenant_pods
from libs.forecast.stage.field_paths import CORDON, DRIVER, NODE_CONTROLLER, RECORD, SAFE_LOAD, UID
from libs.forecast.stage.objects import KernelDriver, StageMachine, StageNode
from libs.forecast.stage.state import StageState
from libs.testing.stage.faults import KUBELET

_CONTROLLER = api.Requester(Verb.PATCH, NODE_CONTROLLER, "kube-controller-manager")
_KUBELET = api.Requester(Verb.PATCH, KUBELET, "kubelet")


def on_node_changed(state: StageState, name: str, paths: frozenset[str]) -> None:
    node = state.nodes.get(name)
    uid = node.uid if node is not None else ""
    if UID in paths and node is None:
        state.call_after(state.latencies.pod_gc, collect_pods, name)
    if CORDON in paths:
        state.call_after(state.latencies.taint, sync_cordon_taint, name, uid)
    if DRIVER in paths or UID in paths:
        state.call_after(state.latencies.daemon_set, driver_pods.sync_drivers, name)
    if RECORD in paths:
        state.call_after(state.latencies.taint, tenant_pods.set_operand_pause, name, uid)
    if SAFE_LOAD in paths and node is not None and api.value(node, SAFE_LOAD) is None:
        machine = state.machines.get(name)
        if machine is not None and machine.up:
            driver_container.resume_load(state, machine)


def sync_cordon_taint(state: StageState, name: str, uid: str) -> None:
    node = state.nodes.get(name)
    if node is None or node.uid != uid or node.taint == api.is_cordoned(node):
        return
    node.taint = not node.taint
    api.stored(state, node, _CONTROLLER)
    if not node.taint:
        tenant_pods.schedule_refill(state, name)


def collect_pods(state: StageState, name: str) -> None:
    machine = state.machines.get(name)
    if machine is not None and name not in state.nodes:
        driver_pods.delete_orphans(state, machine)
        tenant_pods.delete_orphans(state, machine)


def mark_not_ready(state: StageState, name: str) -> None:
    node, machine = state.nodes.get(name), state.machines.get(name)
    if node is None or machine is None or not node.ready:
        return
    if not machine.up or not machine.kubelet_connected:
        node.ready = False
        api.stored(state, node, _CONTROLLER)


def disconnect_kubelet(state: StageState, name: str, seconds: float | None) -> None:
    """Cut the kubelet off the API server; None: for good."""
    machine = state.machines[name]
    if not machine.up or not machine.kubelet_connected:
        return
    machine.kubelet_connected = False
    state.call_after(state.latencies.not_ready_after, mark_not_ready, name)
    if seconds is not None:
        state.call_after(seconds, reconnect_kubelet, name, machine.boot)


def reconnect_kubelet(state: StageState, name: str, boot: int) -> None:
    machine = state.machine(name, boot)
    if machine is not None:
        machine.kubelet_connected = True
        _post_status(state, machine)


def power_off(state: StageState, name: str) -> None:
    machine = state.machines[name]
    machine.up = False
    machine.loaded = None
    machine.is_unloading = False
    machine.admitted = ""
    machine.busy_since = None
    driver_pods.machine_down(machine)
    tenant_pods.machine_down(machine)
    agent_processes.stop_agents(state, machine)
    state.call_after(state.latencies.not_ready_after, mark_not_ready, name)


def reboot(state: StageState, name: str, kernel: str = "", variant: str = "") -> None:
    """Shut down and boot again if the world lets it, possibly with another kernel."""
    machine = state.machines[name]
    if machine.up:
        power_off(state, name)
    down = state.world.boot(name, machine.attempt("boot")).seconds
    if down is not None:
        state.call_after(down, power_on, name, machine.boot, kernel, variant)


def power_on(state: StageState, name: str, boot: int, kernel: str = "", variant: str = "") -> None:
    """Begin another boot: /run is empty, and no module is loaded."""
    machine = state.machines[name]
    if machine.up or machine.boot != boot:
        return
    machine.up = machine.kubelet_connected = True
    machine.boot += 1
    machine.boot_id = f"{name}-boot-{machine.boot}"
    machine.kernel = kernel or machine.kernel
    machine.variant = variant or machine.variant
    if machine.preinstalled is not None:
        preinstall_driver(state, machine, machine.preinstalled.install_digest)
    state.log(f"{name} is up again: boot {machine.boot}, kernel {machine.kernel}")
    _post_status(state, machine)
    agent_processes.start_agents(state, machine)


def preinstall_driver(state: StageState, machine: StageMachine, install_digest: str) -> None:
    """Load a driver that the machine's owner installed, now and at each boot."""
    version = driver_container.version_of(install_digest)
    driver = LoadedDriver(version=version, loaded_at=state.now, preinstalled=True)
    machine.loaded = machine.preinstalled = KernelDriver(install_digest, driver)
    state.machine_changed(machine)


def _post_status(state: StageState, machine: StageMachine) -> None:
    """Post the node's status and resync the kubelet's pods."""
    node = state.nodes.get(machine.name)
    if node is not None:
        status = (True, machine.boot_id, machine.kernel, machine.variant)
        if (node.ready, node.boot_id, node.kernel, node.variant) != status:
            if node.boot_id != machine.boot_id:
                state.driver_facts.pop(machine.name, None)
            node.ready, node.boot_id, node.kernel, node.variant = status
            api.stored(state, node, _KUBELET)
            agent_processes.bind_to_node(state, machine)
            tenant_pods.schedule_refill(state, machine.name)
    driver_pods.resync_kubelet(state, machine)
    tenant_pods.resync_kubelet(state, machine)


def register(state: StageState, machine: StageMachine, *, pool: str) -> None:
    node = StageNode(
        name=machine.name,
        uid=state.new_uid("node"),
        revision=0,
        created=state.now,
        boot_id=machine.boot_id,
        kernel=machine.kernel,
        pool=pool,
        variant=machine.variant,
        gpus=8,
    )
    api.create_node(state, node)
    agent_processes.bind_to_node(state, machine)
