"""Faults of machines, agents, sources and leaders."""

from typing import cast

from msgspec.structs import replace

from libs.contracts.commands import Order, Proven
from libs.contracts.journal import Verb
from libs.contracts.paths import UID
from libs.contracts.records import LostJournal
from libs.forecast.stage import agents, api, driver_pods, gpu_health, tenant_pods
from libs.forecast.stage.api import NODE_CONTROLLER
from libs.forecast.stage.driver_pods import KUBELET, call_later, kernel_driver
from libs.forecast.stage.objects import (
    UNDIVIDED,
    AgentReports,
    DriverContainerStatus,
    GpuCure,
    ProofOnDisk,
    StageAgent,
    StageDriverPod,
    StageMachine,
)
from libs.forecast.stage.state import Requester, StageState
from libs.testing.stage.state import SimulatedState
from libs.testing.stage.worlds import MachineModel

POD_GC = "system:serviceaccount:kube-system:pod-garbage-collector"


class StageFaults:
    """Each fault as one method."""

    def __init__(self, state: SimulatedState) -> None:
        self._state = state

    # Machines.

    def reboot(self, node: str, *, kernel: str = "", variant: str = "") -> None:
        """Shut the machine down; it comes back if the world lets it, even with another kernel."""
        state, machine = self._state, self._state.machines[node]
        state.log(f"{node}: reboots")
        if machine.up:
            _power_off(state, machine)
        down = cast(MachineModel, state.world).boot(node, machine.attempt("boot")).seconds
        if down is not None:
            state.call_after(down, power_on, node, machine.boot, kernel, variant)

    def power_off(self, node: str) -> None:
        machine = self._state.machines[node]
        if machine.up:
            self._state.log(f"{node}: loses power")
            _power_off(self._state, machine)

    def power_on(self, node: str) -> None:
        power_on(self._state, node, self._state.machines[node].boot)

    def fail_gpu(self, node: str, index: int, cure: GpuCure) -> None:
        """Let the GPU fail until its cure."""
        state, machine = self._state, self._state.machines[node]
        failed = gpu_health.failure(index, cure)
        if failed.gpu not in [each.gpu for each in machine.failed_gpus]:
            state.log(f"{node}: GPU {index} fails until a {cure}")
            machine.failed_gpus = (*machine.failed_gpus, failed)
            state.machine_changed(machine)

    def repair_gpus(self, node: str) -> None:
        machine = self._state.machines[node]
        gpu_health.cure(machine, *GpuCure)
        self._state.machine_changed(machine)

    def disconnect_kubelet(self, node: str, seconds: float | None) -> None:
        """Cut the kubelet off from the API server, for good if `seconds` is None."""
        state, machine = self._state, self._state.machines[node]
        state.log(f"{node}: its kubelet is cut off for {seconds} s")
        if not machine.up or not machine.kubelet_connected:
            return
        machine.kubelet_connected = False
        state.call_after(state.latencies.not_ready_after, mark_not_ready, node)
        if seconds is not None:
            state.call_after(seconds, reconnect_kubelet, node, machine.boot)

    def reconnect_kubelet(self, node: str) -> None:
        reconnect_kubelet(self._state, node, self._state.machines[node].boot)

    # Agents.

    def stop_agent(self, node: str, part: str, *, hung: bool = False) -> None:
        """Stop the agent until it is restarted."""
        machine = self._state.machines[node]
        self._state.log(f"{node}: {part} {'hangs' if hung else 'dies'}")
        _stop_agent(self._state, machine, machine.agents[part], hung=hung)

    def restart_agent(self, node: str, part: str, *, loses_journal: bool = False) -> None:
        """Kill and start the agent; without its journal only its last published result remains."""
        state, machine = self._state, self._state.machines[node]
        without = " without its journal" if loses_journal else ""
        state.log(f"{node}: {part} starts again{without}")
        agent = machine.agents[part]
        _stop_agent(state, machine, agent)
        if loses_journal:
            agent.epoch = 0
            agent.highest_order = Order(0, 0)
            agent.current_op = agent.body = None
            agent.last_result = agent.published_reports.result
            if state.recorder is not None:
                lost = LostJournal(
                    node_uid=agent.node_uid, component=agent.component, time=state.now
                )
                state.recorder.lost_journals.append(lost)
        _schedule_start(state, machine, agent)

    def swap_disk(self, node: str) -> None:
        """Give the machine a disk on which another node proved the driver of this one's label."""
        state, machine = self._state, self._state.machines[node]
        label = state.nodes[node].view.driver_label if node in state.nodes else ""
        digest = state.daemon_sets.get(label, "")
        proven = Proven(label=label, kernel=machine.kernel, install_digest=digest)
        machine.agents["driver"].disk = ProofOnDisk("another-node", proven)

    def disconnect_agents(self, node: str) -> None:
        state, machine = self._state, self._state.machines[node]
        state.log(f"{node}: its agents are cut off")
        machine.connected = False
        for agent in machine.agents.values():
            if agent.silent_at is None:
                agent.silent_at = state.now + state.latencies.silent_after
        state.touch(node)

    def reconnect_agents(self, node: str) -> None:
        """Connect a machine to the bus: its agents read their slots and publish pending reports."""
        state, machine = self._state, self._state.machines[node]
        machine.connected = True
        for agent in machine.agents.values():
            if agents.is_live(agent) and machine.up:
                _beat(state, machine, agent)
                agents.read_slot(state, machine, agent)
                agents.report(state, machine, agent)
        state.machine_changed(machine)

    # The bus and the sources of views.

    def miss_pokes(self, node: str, *parts: str) -> None:
        """Let these components miss their pokes."""
        self._state.missed_pokes[node] = parts

    def set_bus_up(self, up: bool) -> None:
        state = self._state
        if state.bus_up == up:
            return
        state.bus_up = up
        state.log(f"NATS is {'back' if up else 'away'}")
        if not up:
            state.bus_down_since = state.now
        elif state.bus_down_since is not None:
            state.bus_outages = (*state.bus_outages, (state.bus_down_since, state.now))
            state.bus_down_since = None
            for name, machine in state.machines.items():
                if machine.up and machine.connected:
                    self.reconnect_agents(name)
        state.touch_pools()

    def freeze(self, part: str) -> None:
        """Freeze a part of all views; `state` has their names."""
        self._state.log(f"what is seen of {part} stands still")
        self._state.freeze(part)

    def unfreeze(self, part: str) -> None:
        if part in self._state.frozen_parts:
            self._state.log(f"what is seen of {part} is current again")
        self._state.unfreeze(part)

    def mute_source(self, source: str) -> None:
        """Make a source current but silent until it is probed."""
        self._state.mute(source)

    def foreign_operator(self, name: str) -> None:
        """Set the name of a GPU Operator that runs here too; empty: none."""
        if name == self._state.foreign_operator:
            return
        self._state.log(f"the GPU Operator {'is running: ' + name if name else 'is gone'}")
        self._state.foreign_operator = name
        self._state.touch_pools()


def elect(state: SimulatedState) -> int:
    """Elect another leader, without memory; requests of the previous one may still arrive."""
    epochs = [pool.rollout.status.epoch for pool in state.pools.values() if pool.rollout]
    epochs += [slot.command.epoch for slot in state.slots.values()]
    state.leader += 1
    state.epoch = 1 + max(epochs, default=0)
    state.memory.clear()
    state.writing_rollouts.clear()
    state.touch_all(state.machines)
    state.touch_pools()
    state.log(f"another leader, of epoch {state.epoch}")
    return state.epoch


# Nodes and their machines.


def on_node_created_or_deleted(state: StageState, name: str, paths: frozenset[str]) -> None:
    if UID not in paths:
        return
    if name not in state.nodes:
        state.call_after(state.latencies.pod_gc, collect_pods, name)
    state.call_after(state.latencies.daemon_set, driver_pods.sync_drivers, name)


def collect_pods(state: StageState, name: str) -> None:
    """Delete the pods of a deleted Node."""
    machine = state.machines.get(name)
    if machine is None or name in state.nodes:
        return
    for pod in list(machine.drivers.values()):
        if pod.in_api:
            force_delete(state, machine, pod, user=POD_GC)
    for tenant_pod in list(machine.tenant_pods.values()):
        tenant_pods.delete(state, machine, tenant_pod, user=POD_GC)


def force_delete(
    state: StageState, machine: StageMachine, pod: StageDriverPod, *, user: str
) -> None:
    """Delete the object at once, whatever the machine still runs."""
    pod.in_api = False
    pod.deleting = True
    driver_pods.journal(state, pod, (Verb.DELETE, user), api.OK, {})
    driver_pods.forget(machine, pod)
    state.touch(machine.name)
    state.call_after(state.latencies.daemon_set, driver_pods.sync_drivers, machine.name)
    if machine.up and pod.on_machine:
        call_later(state, state.latencies.kubelet, driver_pods.stop_driver_pod, machine, pod)


def mark_not_ready(state: StageState, name: str) -> None:
    node, machine = state.nodes.get(name), state.machines.get(name)
    if node is None or machine is None or not node.view.ready:
        return
    if not machine.up or not machine.kubelet_connected:
        api.node_stored(state, node, NODE_CONTROLLER, ready=False)


def reconnect_kubelet(state: StageState, name: str, boot: int) -> None:
    machine = state.machine(name, boot)
    if machine is not None:
        machine.kubelet_connected = True
        _post_status(state, machine)


def _power_off(state: StageState, machine: StageMachine) -> None:
    """Stop everything on the machine; the API server does not notice."""
    machine.up = False
    machine.loaded = None
    machine.layout, machine.pending_layout = machine.pending_layout or UNDIVIDED, ""
    gpu_health.cure(machine, GpuCure.RELOAD, GpuCure.REBOOT)
    machine.is_unloading = False
    machine.admitted = ""
    machine.busy_since = None
    for pod in list(machine.drivers.values()):
        pod.on_machine = pod.ending = False
        pod.run += 1
        driver_pods.forget(machine, pod)
    for tenant_pod in machine.tenant_pods.values():
        tenant_pod.on_machine = False
    for agent in machine.agents.values():
        _stop_agent(state, machine, agent)
    state.call_after(state.latencies.not_ready_after, mark_not_ready, machine.name)


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
    for agent in machine.agents.values():
        agent.pending_reports = replace(agent.pending_reports, progress=None)
        agent.published_reports = replace(agent.published_reports, progress=None)
        _schedule_start(state, machine, agent)


def preinstall_driver(state: StageState, machine: StageMachine, install_digest: str) -> None:
    """Load a driver that the machine's owner installed, now and at each boot."""
    driver = kernel_driver(install_digest, state.now, preinstalled=True)
    machine.loaded = machine.preinstalled = driver
    state.machine_changed(machine)


def _post_status(state: StageState, machine: StageMachine) -> None:
    """Post the node's status and resync the kubelet's pods."""
    node = state.nodes.get(machine.name)
    if node is not None:
        status = {
            "ready": True,
            "boot_id": machine.boot_id,
            "kernel": machine.kernel,
            "variant": machine.variant,
        }
        if any(getattr(node.view, name) != value for name, value in status.items()):
            if node.view.boot_id != machine.boot_id:
                state.driver_facts.pop(machine.name, None)
            api.node_stored(state, node, Requester(Verb.PATCH, KUBELET, "kubelet"), **status)
            bind_to_node(state, machine)
            tenant_pods.schedule_refill(state, machine.name)
    _resync_driver_pods(state, machine)
    _resync_tenant_pods(state, machine)


def _resync_driver_pods(state: StageState, machine: StageMachine) -> None:
    soon = state.latencies.kubelet
    for pod in list(machine.drivers.values()):
        if not pod.on_machine:
            restarts = pod.status.restarts + (pod.status.started is not None)
            pod.status = DriverContainerStatus(restarts=restarts)
            call_later(state, soon, driver_pods.start_driver_pod, machine, pod)
        elif pod.deleting:
            call_later(state, soon, driver_pods.stop_driver_pod, machine, pod)
        driver_pods.update_status(state, machine, pod)


def _resync_tenant_pods(state: StageState, machine: StageMachine) -> None:
    """Restart what should run and remove the rest."""
    for pod in list(machine.tenant_pods.values()):
        if pod.deleting or not pod.in_api:
            if not pod.on_machine or pod.tenant.stop_seconds is not None:
                tenant_pods.remove(state, machine, pod)
        elif not pod.on_machine:
            pod.on_machine = True
            tenant_pods.schedule_completion(state, machine, pod)
    state.touch(machine.name)


# The processes of agents.


def _stop_agent(
    state: StageState, machine: StageMachine, agent: StageAgent, *, hung: bool = False
) -> None:
    """Kill the process, which loses its devices and memory; or let it hang and keep them."""
    if hung:
        agent.hung = True
    else:
        agent.alive = agent.hung = agent.holds_devices = False
    agent.process_number += 1
    agent.running = False
    agent.slot = agent.proven = None
    agent.has_read_slot = False
    if agent.silent_at is None:
        agent.silent_at = state.now + state.latencies.silent_after
    state.touch(machine.name)
    state.machine_changed(machine)


def _schedule_start(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    agents.call_in_process(state, state.latencies.agent_start, start_agent, machine, agent)


def start_agent(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    """Start a process, which reads its slot first."""
    agent.alive, agent.hung = True, False
    agent.process_number += 1
    _beat(state, machine, agent)
    agents.read_slot(state, machine, agent)
    state.machine_changed(machine)


def _beat(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    if agents.is_connected(state, machine):
        agent.silent_at = None
        agent.last_beat = state.now
        agents.report(state, machine, agent)
        state.touch(machine.name)


def bind_to_node(state: StageState, machine: StageMachine) -> None:
    """Bind the agents to the machine's Node; for another uid they start from scratch."""
    node = state.nodes[machine.name]
    for agent in machine.agents.values():
        if agent.node_uid == node.view.uid:
            continue
        agent.node_uid = node.view.uid
        agent.epoch = 0
        agent.highest_order = Order(0, 0)
        agent.current_op = agent.body = agent.last_result = agent.slot = agent.proven = None
        agent.running = agent.has_read_slot = False
        agent.process_number += 1
        agent.pending_reports = agent.published_reports = AgentReports()
        agent.holds_devices = agent.component not in agents.WITHOUT_DEVICES and agent.alive
    state.machine_changed(machine)
