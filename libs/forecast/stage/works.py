"""Pods that compute on nodes: how they come, end, are asked to leave, and leave.

Nothing here knows why anybody asks. A pod whose object is gone may still run: the machine decides
who has the devices open.
"""

from libs.contracts.journal import Verb
from libs.contracts.node import MANAGER
from libs.forecast.stage import api
from libs.forecast.stage.objects import Machine, Work
from libs.forecast.stage.paths import COLLECTOR, SCHEDULER
from libs.forecast.stage.state import State
from libs.rollout.views.machine import Shelter

TOO_MANY = 429
_LINGERS = 2.0
"""Seconds that a process lives on when its pod was deleted by force."""


def place(state: State, machine: Machine, tenant_at: int, uid: str) -> Work:
    """A pod of this tenant begins to run."""
    tenant = machine.tenants[tenant_at]
    work = machine.works[uid] = Work(uid=uid, tenant=tenant)
    if tenant.remaining is not None:
        state.after(tenant.remaining, completed, machine.name, machine.boot, uid)
    state.touch(machine.name)
    return work


def completed(state: State, name: str, boot: int, uid: str) -> None:
    """It came to its end by itself."""
    machine = state.machine(name, boot)
    work = machine.works.get(uid) if machine is not None else None
    if machine is not None and work is not None:
        _off(state, machine, work)


def refill(state: State, name: str, uid: str) -> None:
    """The Kubernetes scheduler places what has room again."""
    machine, node = state.machines.get(name), state.nodes.get(name)
    if machine is None or node is None or node.uid != uid or not machine.up or not machine.hears:
        return
    if api.cordoned(node) or not node.ready or node.taint:
        return
    present = {work.tenant.name for work in machine.works.values() if work.in_api}
    for number, tenant in enumerate(machine.tenants):
        if tenant.name in present or not tenant.comes_back or tenant.shelter is Shelter.OPERAND:
            continue
        if tenant.gpus and not _allocatable(machine):
            continue
        place(state, machine, number, state.uid("pod"))


def has_room(state: State, name: str) -> None:
    """It may be filled again: soon somebody looks."""
    node = state.nodes.get(name)
    if node is not None:
        state.after(state.pace.placed, refill, name, node.uid)


def evict(state: State, machine: Machine, work: Work) -> str:
    """Through the eviction API, by uid; an answer in words where a disruption budget refuses."""
    guarded = work.tenant.guarded
    if work.deleting:
        return ""
    first = state.now if work.first_refused is None else work.first_refused
    if guarded is None or state.now < first + guarded:
        work.first_refused = first
        _journal(state, work, (Verb.EVICT, TOO_MANY), SCHEDULER)
        return f"Cannot evict pod as it would violate the pod's disruption budget {_named(work)}."
    work.deleting = True
    _journal(state, work, (Verb.EVICT, 201), SCHEDULER)
    state.touch(machine.name)
    _stop(state, machine, work)
    return ""


def delete(state: State, machine: Machine, work: Work, *, user: str = SCHEDULER) -> None:
    """Without grace: the object goes at once, the process a little later, or not at all."""
    if not work.in_api:
        return
    work.in_api, work.deleting = False, True
    _journal(state, work, (Verb.DELETE, 200), user, {})
    state.touch(machine.name)
    if not work.on_machine:
        machine.works.pop(work.uid, None)
    elif work.tenant.stops is not None:
        state.after(_LINGERS, stopped, machine.name, machine.boot, work.uid)
    state.stir(machine)


def stopped(state: State, name: str, boot: int, uid: str) -> None:
    """Its processes have ended, and the kubelet says so."""
    machine = state.machine(name, boot)
    work = machine.works.get(uid) if machine is not None else None
    if machine is not None and work is not None:
        _off(state, machine, work)


def end(state: State, machine: Machine, work: Work) -> None:
    """Its owner ends it: object and processes."""
    _off(state, machine, work)


def pause_operands(state: State, name: str, uid: str) -> None:
    """Discovery writes its values for what is not ours, as the record says."""
    node, machine = state.nodes.get(name), state.machines.get(name)
    if node is None or node.uid != uid or machine is None:
        return
    record = api.record_of(node)
    paused = record is not None and record.paused
    operands = [each for each in machine.tenants if each.shelter is Shelter.OPERAND]
    if not operands or node.operands_paused == paused:
        return
    node.operands_paused = paused
    by = api.By(Verb.PATCH, "system:serviceaccount:sluice:sluice-discovery", "sluice-discovery")
    api.stored(state, node, by)
    state.after(state.pace.operands, follow_pause, name)


def follow_pause(state: State, name: str) -> None:
    """The operands' DaemonSets follow those values."""
    node, machine = state.nodes.get(name), state.machines.get(name)
    if node is None or machine is None or not machine.up:
        return
    for number, tenant in enumerate(machine.tenants):
        if tenant.shelter is not Shelter.OPERAND:
            continue
        there = [each for each in machine.works.values() if each.tenant is tenant]
        if node.operands_paused:
            for work in there:
                if not work.deleting:
                    work.deleting = True
                    state.touch(name)
                    _stop(state, machine, work)
        elif not there:
            place(state, machine, number, state.uid("pod"))


def machine_down(machine: Machine) -> None:
    """Nothing runs; what was to go is gone with the next word of the kubelet."""
    for work in machine.works.values():
        work.on_machine = False


def kubelet_back(state: State, machine: Machine) -> None:
    """What is to run runs again; the rest is gone."""
    for work in list(machine.works.values()):
        if work.deleting or not work.in_api:
            if not work.on_machine or work.tenant.stops is not None:
                _off(state, machine, work)
        elif not work.on_machine:
            work.on_machine = True
            if work.tenant.remaining is not None:
                state.after(work.tenant.remaining, completed, machine.name, machine.boot, work.uid)
    state.touch(machine.name)


def collected(state: State, machine: Machine) -> None:
    """Their Node is gone: so are their objects, and the kubelet ends them."""
    for work in list(machine.works.values()):
        delete(state, machine, work, user=COLLECTOR)


def _stop(state: State, machine: Machine, work: Work) -> None:
    if not machine.up:
        return
    stops = work.tenant.stops
    if stops is not None:
        state.after(stops, stopped, machine.name, machine.boot, work.uid)


def _off(state: State, machine: Machine, work: Work) -> None:
    work.on_machine = False
    if work.in_api and not machine.hears:
        work.deleting = True
        return
    if work.in_api:
        work.in_api = False
        _journal(state, work, (Verb.DELETE, 200), "system:node", {})
    machine.works.pop(work.uid, None)
    state.touch(machine.name)
    has_room(state, machine.name)
    state.stir(machine)


def _allocatable(machine: Machine) -> bool:
    """The plugin offers GPUs."""
    plugin = machine.agents.get("plugin")
    return machine.loaded is not None and plugin is not None and plugin.holds


def _named(work: Work) -> str:
    return f"{work.tenant.namespace}/{work.tenant.name}"


def _journal(
    state: State,
    work: Work,
    what: tuple[Verb, int],
    user: str,
    leaves: dict[str, str] | None = None,
) -> None:
    verb, code = what
    if code >= 300 and state.chronicle is None:
        return
    by = api.By(verb, user, MANAGER if user == SCHEDULER else "")
    pod = api.Pod(work.tenant.namespace, work.tenant.name, work.uid)
    api.journal_pod(state, pod, by, code, leaves)
