"""The driver agent: it keeps the gate and swaps drivers (docs/states.md#gate).

`on_machine_changed` may be called at any time and any number of times.
"""

from libs.contracts.commands import Install, Mig, Proven, Swap
from libs.contracts.facts import Gate
from libs.contracts.reports import Outcome, PodUse, Usage
from libs.forecast.stage import agents, driver_pods, gpu_health, mig
from libs.forecast.stage.objects import (
    UNDIVIDED,
    DriverFacts,
    DriverPodPhase,
    GpuCure,
    StageAgent,
    StageDriverPod,
    StageMachine,
)
from libs.forecast.stage.state import StageState


def on_machine_changed(state: StageState, machine: StageMachine) -> None:
    """Continue the op; without one, open the gate for what is proven, or load it again."""
    agent = machine.agents["driver"]
    if not machine.up or not agents.is_live(agent):
        return
    report_facts(state, machine)
    if agent.running and isinstance(agent.body, Swap):
        _swap(state, machine, agent, agent.body)
    elif agent.running and isinstance(agent.body, Install):
        _install(state, machine, agent, agent.body)
    elif agent.running and isinstance(agent.body, Mig):
        mig.divide(state, machine, agent, agent.body)
    elif agent.running or agent.current_op is not None:
        return  # nothing was done that the facts could show
    else:
        _load_by_proof(state, machine, agent)
        if not _open_by_proof(state, machine, agent):
            return
    report_facts(state, machine)


# Outside ops.


def _open_by_proof(state: StageState, machine: StageMachine, agent: StageAgent) -> bool:
    """Admit the pod at the gate if its driver is proven; return whether it was."""
    proven = _proven(agent)
    if proven is None or _admitted(machine) is not None:
        return False
    pod = _at_gate(machine, proven.label)
    if pod is None or not admits(machine, pod, proven):
        return False
    driver_pods.admit(state, machine, pod)
    return True


def _load_by_proof(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    """Load the driver on the host again, once in each boot (docs/states.md#gate-3)."""
    proven = _proven(agent)
    if proven is None or machine.loaded is not None or machine.boot_tried == machine.boot:
        return
    if (machine.installed, machine.kernel) != (proven.install_digest, proven.kernel):
        return
    machine.boot_tried = machine.boot
    end = state.world.load(machine.name, proven.label, machine.attempt(f"load {proven.label}"))
    if end.after is not None:
        ends = (proven.install_digest, end.exit_code)
        agents.call_in_process(state, end.after, _loaded_again, machine, agent, *ends)


def _loaded_again(
    state: StageState, machine: StageMachine, _agent: StageAgent, digest: str, code: int
) -> None:
    if not code and machine.loaded is None and machine.installed == digest:
        state.log(f"{machine.name}: the proven driver is loaded again")
        machine.loaded = driver_pods.kernel_driver(digest, state.now)
        state.machine_changed(machine)


def _proven(agent: StageAgent) -> Proven | None:
    return agent.proven if agent.has_read_slot else proven_on_disk(agent)


def proven_on_disk(agent: StageAgent) -> Proven | None:
    """Return what the disk says of this node, which counts until a slot is read."""
    disk = agent.disk
    return disk.proven if disk is not None and disk.node_uid == agent.node_uid else None


def admits(machine: StageMachine, pod: StageDriverPod, proven: Proven) -> bool:
    """Whether the pod at the gate has the proven driver, on the kernel that runs."""
    wanted = machine.kernel, pod.install_digest
    return wanted == (proven.kernel, proven.install_digest)


# Swapping.


def _swap(state: StageState, machine: StageMachine, agent: StageAgent, body: Swap) -> None:
    admitted = _admitted(machine)
    if admitted is not None:
        if admitted.label == body.label and admitted.uid != body.old_pod_uid:
            _wait_for_driver(state, machine, agent, admitted)
        else:
            detail = f"{admitted.name} is still on the machine"
            agents.progress(state, machine, agent, "old-driver", detail)
        return
    if machine.is_unloading or _must_unload(machine, body):
        _unload(state, machine, agent)
        return
    if not body.label:
        agents.finish(state, machine, agent, Outcome.DONE)
        return
    pod = _at_gate(machine, body.label, other_than=body.old_pod_uid)
    if pod is None:
        agents.progress(state, machine, agent, "gate", "no driver pod waits at the gate")
    elif _is_current(state, machine, agent):
        agents.step(state, machine, agent, f"gate: {pod.uid}")
        driver_pods.admit(state, machine, pod)
        agents.progress(state, machine, agent, "driver-start")


def _must_unload(machine: StageMachine, body: Swap) -> bool:
    loaded = machine.loaded
    return loaded is not None and not (body.keep and loaded.install_digest == body.install_digest)


def _wait_for_driver(
    state: StageState, machine: StageMachine, agent: StageAgent, pod: StageDriverPod
) -> None:
    """End the op once the driver is ready."""
    if pod.phase is DriverPodPhase.RUNNING and pod.status.ready and machine.loaded is not None:
        agents.finish(state, machine, agent, Outcome.DONE)
    else:
        agents.progress(state, machine, agent, "driver-start")


def _is_current(state: StageState, machine: StageMachine, agent: StageAgent) -> bool:
    """Read the slot again before an irreversible step; return whether the op may continue."""
    if not agents.is_connected(state, machine):
        agents.progress(state, machine, agent, agent.phase or "gate", "the slot cannot be read")
        return False
    slot = state.slots.get((machine.name, agent.component))
    if (
        slot is not None
        and agent.current_op is not None
        and slot.command.order == agent.current_op.order
    ):
        return True
    state.call_after(0.0, agents.on_poke, machine.name, agent.component)
    return False


def _unload(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    if machine.is_unloading:
        agents.progress(state, machine, agent, "unload")
    if (
        machine.is_unloading
        or machine.busy_since is not None
        or not _is_current(state, machine, agent)
    ):
        return
    _begin_unload(state, machine, agent)


def _begin_unload(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    agents.progress(state, machine, agent, "unload")
    machine.is_unloading = True
    end = state.world.unload(machine.name, machine.attempt("unload"))
    if end.after is not None:
        state.call_after(end.after, unload_finished, machine.name, machine.boot, end.exit_code)


def unload_finished(state: StageState, name: str, boot: int, code: int) -> None:
    """Apply the kernel's answer: EBUSY as long as a process holds the devices."""
    machine = state.machine(name, boot)
    if machine is None:
        return
    agent = machine.agents["driver"]
    machine.is_unloading = False
    found = holders(machine) or (("an unknown process",) if code else ())
    if found:
        holders_text = ", ".join(found)
        state.log(f"{name}: EBUSY: {holders_text}")
        _retry_later(state, machine, agent, holders_text)
    else:
        agents.step(state, machine, agent, "unload: ok")
        state.log(f"{name}: the modules are unloaded")
        machine.loaded = None
        machine.installed = ""
        machine.layout = UNDIVIDED
        gpu_health.cure(machine, GpuCure.RELOAD)
        machine.busy_since = None
    state.machine_changed(machine)


def _retry_later(
    state: StageState, machine: StageMachine, agent: StageAgent, holders_text: str
) -> None:
    if not agents.is_live(agent) or not isinstance(agent.body, Swap | Install):
        return
    agents.step(state, machine, agent, f"unload: busy, {holders_text}")
    if machine.busy_since is None:
        machine.busy_since = state.now
    if agent.current_op is not None and state.now >= agent.current_op.deadline:
        machine.busy_since = None
        agents.finish(state, machine, agent, Outcome.FAILED, ("busy", holders_text))
        return
    agents.progress(state, machine, agent, "unload", f"in use: {holders_text}")
    agents.call_in_op(state, state.latencies.unload_retry, retry_unload, machine, agent)


def retry_unload(state: StageState, machine: StageMachine, agent: StageAgent) -> None:
    """Try to unload again after EBUSY."""
    if machine.busy_since is None or machine.is_unloading:
        return
    if _is_current(state, machine, agent):
        _begin_unload(state, machine, agent)
    else:
        agents.call_in_op(state, state.latencies.unload_retry, retry_unload, machine, agent)


def holders(machine: StageMachine) -> tuple[str, ...]:
    """Return the components, pods and processes that have the devices open."""
    if machine.loaded is None:
        return ()
    found = [
        f"{agent.component} (ours)" for agent in machine.agents.values() if agent.holds_devices
    ]
    found += [
        f"driver pod {pod.uid}"
        for pod in machine.drivers.values()
        if pod.on_machine and pod.phase in {DriverPodPhase.LOADING, DriverPodPhase.RUNNING}
    ]
    found += [
        f"pod {tenant_pod.tenant.namespace}/{tenant_pod.tenant.name}"
        for tenant_pod in machine.tenant_pods.values()
        if tenant_pod.on_machine and tenant_pod.tenant.gpus
    ]
    if machine.host_processes:
        found.append(f"{machine.host_processes} processes of the host")
    return tuple(found)


# Installing on the host.


def _install(state: StageState, machine: StageMachine, agent: StageAgent, body: Install) -> None:
    loaded = machine.loaded
    if loaded is not None and loaded.install_digest == body.install_digest:
        if not machine.is_unloading:
            agents.finish(state, machine, agent, Outcome.DONE)
    elif loaded is not None or machine.is_unloading:
        _unload(state, machine, agent)
    elif not body.label:
        agents.finish(state, machine, agent, Outcome.DONE)
    elif agent.phase != "driver-start" and _is_current(state, machine, agent):
        agents.progress(state, machine, agent, "driver-start")
        label = body.label
        end = state.world.load(machine.name, label, machine.attempt(f"load {label}"))
        if end.after is not None:
            ends = (body.install_digest, end.exit_code)
            agents.call_in_process(state, end.after, install_finished, machine, agent, *ends)


def install_finished(
    state: StageState, machine: StageMachine, agent: StageAgent, digest: str, code: int
) -> None:
    if not isinstance(agent.body, Install) or agent.body.install_digest != digest:
        return
    if code:
        message = f"the installer of {digest} exited with {code}"
        agents.finish(state, machine, agent, Outcome.FAILED, ("driver-start", message))
    else:
        machine.installed = digest
        machine.loaded = driver_pods.kernel_driver(digest, state.now)
    state.machine_changed(machine)


# The gate, and the reported facts.


def _admitted(machine: StageMachine) -> StageDriverPod | None:
    """Return the admitted pod while it is on the machine, running or not."""
    pod = machine.drivers.get(machine.admitted)
    return pod if pod is not None and pod.on_machine else None


def _at_gate(machine: StageMachine, label: str, other_than: str = "") -> StageDriverPod | None:
    for pod in machine.drivers.values():
        waits = pod.on_machine and pod.phase is DriverPodPhase.AT_GATE and not pod.ending
        if waits and pod.label == label and pod.uid not in {other_than, machine.admitted}:
            return pod
    return None


def report_facts(state: StageState, machine: StageMachine) -> None:
    """Report the loaded driver, the gate, and the users of GPUs."""
    agent = machine.agents["driver"]
    node = state.nodes.get(machine.name)
    if node is None or (node.view.uid, node.view.boot_id) != (agent.node_uid, machine.boot_id):
        return
    if not agents.is_live(agent) or not agents.is_connected(state, machine):
        return
    admitted = _admitted(machine)
    waiting = next(
        (
            pod
            for pod in machine.drivers.values()
            if pod.on_machine and pod.phase is DriverPodPhase.AT_GATE and pod is not admitted
        ),
        None,
    )
    facts = DriverFacts(
        loaded=machine.loaded.driver if machine.loaded is not None else None,
        gate=Gate(
            admitted_pod_uid=admitted.uid if admitted else "",
            admitted_label=admitted.label if admitted else "",
            waiting_pod_uid=waiting.uid if waiting else "",
            waiting_label=waiting.label if waiting else "",
        ),
        usage=Usage(
            pods=tuple(
                PodUse(pod_uid=tenant_pod.uid, gpus=tenant_pod.tenant.gpus, processes=1)
                for tenant_pod in machine.tenant_pods.values()
                if tenant_pod.on_machine and tenant_pod.tenant.gpus
            ),
            host_processes=machine.host_processes,
        ),
    )
    if state.driver_facts.get(machine.name) != facts:
        state.driver_facts[machine.name] = facts
        state.touch(machine.name)
