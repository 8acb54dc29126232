"""The driver agent: it keeps the gate, and swaps drivers (docs/states.md#gate).

`look` is called whenever something happened on the machine, and does what can be done now. It may
be called at any time and any number of times.
"""

from libs.contracts.commands import Install, Swap
from libs.contracts.facts import Gate, LoadedDriver
from libs.contracts.reports import Outcome, PodUse, Usage
from libs.forecast.stage import agents, loading
from libs.forecast.stage.objects import Agent, Driver, Loaded, Machine, Phase, Reported
from libs.forecast.stage.state import State


def look(state: State, machine: Machine) -> None:
    """One op at a time; without any, the gate opens to what is proven."""
    agent = machine.agents["driver"]
    if not machine.up or not agents.lives(agent):
        return
    tell_facts(state, machine)
    if agent.running and isinstance(agent.body, Swap):
        _swap(state, machine, agent, agent.body)
    elif agent.running and isinstance(agent.body, Install):
        _install(state, machine, agent, agent.body)
    elif not agent.running and agent.begun is None:
        _open_by_proof(state, machine, agent)
    tell_facts(state, machine)


# Outside ops.


def _open_by_proof(state: State, machine: Machine, agent: Agent) -> None:
    proven = agent.proven
    if proven is None or proven.kernel != machine.kernel or _admitted(machine) is not None:
        return
    pod = _at_gate(machine, proven.label)
    if pod is not None:
        loading.admit(state, machine, pod)


# Swapping.


def _swap(state: State, machine: Machine, agent: Agent, body: Swap) -> None:
    admitted = _admitted(machine)
    if admitted is not None:
        if admitted.label == body.label and admitted.uid != body.old_pod_uid:
            _wait_for_driver(state, machine, agent, admitted)
        else:
            detail = f"{admitted.name} is still on the machine"
            agents.progress(state, machine, agent, "old-driver", detail)
        return
    if machine.calling or _must_unload(machine, body):
        _unload(state, machine, agent)
        return
    if not body.label:
        agents.finish(state, machine, agent, Outcome.DONE)
        return
    pod = _at_gate(machine, body.label, other_than=body.old_pod_uid)
    if pod is None:
        agents.progress(state, machine, agent, "gate", "no driver pod asks")
    elif _is_current(state, machine, agent):
        agents.step(state, machine, agent, f"gate: {pod.uid}")
        loading.admit(state, machine, pod)
        agents.progress(state, machine, agent, "driver-start")


def _must_unload(machine: Machine, body: Swap) -> bool:
    there = machine.loaded
    return there is not None and not (body.keep and there.install_digest == body.install_digest)


def _wait_for_driver(state: State, machine: Machine, agent: Agent, pod: Driver) -> None:
    """The op comes to its end with a driver that works."""
    if pod.phase is Phase.RUNNING and pod.status.ready and machine.loaded is not None:
        agents.finish(state, machine, agent, Outcome.DONE)
    else:
        agents.progress(state, machine, agent, "driver-start")


def _is_current(state: State, machine: Machine, agent: Agent) -> bool:
    """Before what cannot be taken back the slot is read again; without it nothing goes on."""
    if not agents.connected(state, machine):
        agents.progress(state, machine, agent, agent.phase or "gate", "the slot cannot be read")
        return False
    slot = state.slots.get((machine.name, agent.part))
    if slot is not None and agent.begun is not None and slot.command.order == agent.begun.order:
        return True
    state.after(0.0, agents.poked, machine.name, agent.part)
    return False


def _unload(state: State, machine: Machine, agent: Agent) -> None:
    if machine.calling:
        agents.progress(state, machine, agent, "unload")
    if machine.calling or machine.busy_since is not None or not _is_current(state, machine, agent):
        return
    _call(state, machine, agent)


def _call(state: State, machine: Machine, agent: Agent) -> None:
    agents.progress(state, machine, agent, "unload")
    machine.calling = True
    end = state.world.unload(machine.name, machine.attempt("unload"))
    if end.after is not None:
        state.after(end.after, called, machine.name, machine.boot, end.exit_code)


def called(state: State, name: str, boot: int, code: int) -> None:
    """The kernel's verdict: EBUSY as long as anything holds the devices."""
    machine = state.machine(name, boot)
    if machine is None:
        return
    agent = machine.agents["driver"]
    machine.calling = False
    who = holders(machine) or (("a process that nobody knows",) if code else ())
    if who:
        busy = ", ".join(who)
        state.tell(f"{name}: EBUSY: {busy}")
        _is_busy(state, machine, agent, busy)
    else:
        agents.step(state, machine, agent, "unload: ok")
        state.tell(f"{name}: the modules are out")
        machine.loaded = None
        machine.busy_since = None
    state.stir(machine)


def _is_busy(state: State, machine: Machine, agent: Agent, busy: str) -> None:
    if not agents.lives(agent) or not isinstance(agent.body, Swap | Install):
        return
    agents.step(state, machine, agent, f"unload: busy, {busy}")
    if machine.busy_since is None:
        machine.busy_since = state.now
    if agent.begun is not None and state.now >= agent.begun.deadline:
        machine.busy_since = None
        agents.finish(state, machine, agent, Outcome.FAILED, ("busy", busy))
        return
    agents.progress(state, machine, agent, "unload", f"in use: {busy}")
    order = agent.begun.order if agent.begun else None
    state.after(state.pace.busy_retry, try_again, machine.name, machine.boot, agent.life, order)


def try_again(state: State, name: str, boot: int, life: int, order: tuple[int, int]) -> None:
    """The holders may have let go."""
    machine = state.machine(name, boot)
    agent = machine.agents["driver"] if machine is not None else None
    if machine is None or agent is None or agent.life != life or agent.begun is None:
        return
    if agent.begun.order == order and machine.busy_since is not None and not machine.calling:
        if _is_current(state, machine, agent):
            _call(state, machine, agent)
        else:
            values = (name, boot, life, order)
            state.after(state.pace.busy_retry, try_again, *values)


def holders(machine: Machine) -> tuple[str, ...]:
    """Who has the devices open, as far as there are any."""
    if machine.loaded is None:
        return ()
    found = [f"{agent.part} (ours)" for agent in machine.agents.values() if agent.holds]
    found += [
        f"driver pod {pod.uid}"
        for pod in machine.drivers.values()
        if pod.on_machine and pod.phase in {Phase.LOADING, Phase.RUNNING}
    ]
    found += [
        f"pod {work.tenant.namespace}/{work.tenant.name}"
        for work in machine.works.values()
        if work.on_machine and work.tenant.gpus
    ]
    if machine.host_processes:
        found.append(f"{machine.host_processes} processes of the host")
    return tuple(found)


# Installing on the host.


def _install(state: State, machine: Machine, agent: Agent, body: Install) -> None:
    there = machine.loaded
    if there is not None and there.install_digest == body.install_digest:
        if not machine.calling:
            agents.finish(state, machine, agent, Outcome.DONE)
    elif there is not None or machine.calling:
        _unload(state, machine, agent)
    elif not body.label:
        agents.finish(state, machine, agent, Outcome.DONE)
    elif agent.phase != "driver-start" and _is_current(state, machine, agent):
        agents.progress(state, machine, agent, "driver-start")
        label = body.label
        end = state.world.load(machine.name, label, machine.attempt(f"load {label}"))
        if end.after is not None:
            ends = (agent.life, body.install_digest, end.exit_code)
            state.after(end.after, installed, machine.name, machine.boot, ends)


def installed(state: State, name: str, boot: int, ends: tuple[int, str, int]) -> None:
    """The installer has ended."""
    life, digest, code = ends
    machine = state.machine(name, boot)
    agent = machine.agents["driver"] if machine is not None else None
    if machine is None or agent is None or agent.life != life:
        return
    if not isinstance(agent.body, Install) or agent.body.install_digest != digest:
        return
    if code:
        why = f"the installer of {digest} ended with {code}"
        agents.finish(state, machine, agent, Outcome.FAILED, ("driver-start", why))
    else:
        version = loading.version_of(digest)
        machine.loaded = Loaded(digest, LoadedDriver(version=version, loaded_at=state.now))
    state.stir(machine)


# The gate, and what is said of it.


def _admitted(machine: Machine) -> Driver | None:
    """Who was let in and is still there, whatever its container does."""
    pod = machine.drivers.get(machine.admitted)
    return pod if pod is not None and pod.on_machine else None


def _at_gate(machine: Machine, label: str, other_than: str = "") -> Driver | None:
    for pod in machine.drivers.values():
        waits = pod.on_machine and pod.phase is Phase.AT_GATE and not pod.ending
        if waits and pod.label == label and pod.uid not in {other_than, machine.admitted}:
            return pod
    return None


def tell_facts(state: State, machine: Machine) -> None:
    """What is in the kernel, where the gate stands, and who computes."""
    agent = machine.agents["driver"]
    node = state.nodes.get(machine.name)
    if node is None or (node.uid, node.boot_id) != (agent.node_uid, machine.boot_id):
        return
    if not agents.lives(agent) or not agents.connected(state, machine):
        return
    admitted = _admitted(machine)
    waiting = next(
        (pod for pod in machine.drivers.values() if pod.on_machine and pod.phase is Phase.AT_GATE
         and pod is not admitted), None,
    )  # fmt: skip
    said = Reported(
        loaded=machine.loaded.driver if machine.loaded is not None else None,
        gate=Gate(
            admitted_pod_uid=admitted.uid if admitted else "",
            admitted_label=admitted.label if admitted else "",
            waiting_pod_uid=waiting.uid if waiting else "",
            waiting_label=waiting.label if waiting else "",
        ),
        usage=Usage(
            pods=tuple(
                PodUse(pod_uid=work.uid, gpus=work.tenant.gpus, processes=1)
                for work in machine.works.values()
                if work.on_machine and work.tenant.gpus
            ),
            host_processes=machine.host_processes,
        ),
    )
    if state.reported.get(machine.name) != said:
        state.reported[machine.name] = said
        state.touch(machine.name)
