"""How a stage is furnished by views: the cluster that a snapshot shows, as far as it shows it.

What no view can say (when a job ends, whether a budget will refuse) is asked of the world, once.
What is under way on a machine begins again.
"""

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.node import Lease, Record
from libs.forecast.stage import agents, drivers, loading, works
from libs.forecast.stage.fields import Held
from libs.forecast.stage.objects import (
    Agent,
    Driver,
    Known,
    Leaves,
    Loaded,
    Machine,
    Node,
    Phase,
    Reported,
    Said,
    Slot,
    Status,
    Tenant,
    Work,
)
from libs.forecast.stage.paths import (
    CORDON,
    DRIVER,
    INITIALLY_CORDONED,
    KEEP_CORDONED,
    LEASE,
    RECORD,
    REQUEST,
    REQUESTED,
    SAFE_LOAD,
    SKIP,
    STATE,
)
from libs.forecast.stage.setting import furnish_pool
from libs.forecast.stage.state import State
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.machine import Component, DriverPod, WorkPod
from libs.rollout.views.node import Field, Garbled, NodeView

_GRACE = 30.0
"""Seconds that a pod is taken to have for its end."""


def furnish_from(state: State, fleet: Fleet) -> None:
    """All of it."""
    for pool in fleet.pools.values():
        furnish_pool(state, pool)
    for view in fleet.nodes.values():
        _node(state, view)
    for view in fleet.nodes.values():
        _machine(state, view)


def _node(state: State, view: NodeView) -> None:
    state.revision += 1
    state.nodes[view.name] = Node(
        name=view.name,
        uid=view.uid,
        revision=state.revision,
        created=view.created,
        boot_id=view.boot_id,
        kernel=view.kernel,
        pool=view.pool,
        variant=view.variant,
        excluded=view.excluded,
        last=view.last,
        gpus=view.gpus,
        ready=view.ready,
        taint=view.cordon_taint,
        operands_paused=isinstance(view.record, Record) and view.record.paused,
        fields=dict(_fields(view)),
    )
    known = Known(waiting=view.waiting, preflight=view.preflight, preflight_boot=view.boot_id)
    if view.leaving:
        known.leaves = Leaves(
            pods={each.uid: each.since for each in view.leaving},
            by_force=view.leaving[0].by_force,
            refused={each.uid: each.refused for each in view.leaving if each.refused},
        )
    state.known[view.name] = known
    state.touch(view.name)


def _fields(view: NodeView) -> dict[str, Held]:
    said: dict[str, tuple[Field | None, object]] = {
        CORDON: (Field.CORDON, True if view.cordoned else None),
        STATE: (Field.STATE, view.state or None),
        DRIVER: (Field.DRIVER, view.driver_label or None),
        LEASE: (Field.LEASE, _written(view.lease)),
        RECORD: (Field.RECORD, _written(view.record)),
        INITIALLY_CORDONED: (Field.INITIALLY_CORDONED, view.initially_cordoned and "true"),
        REQUEST: (Field.REQUEST, view.request and view.request.value),
        REQUESTED: (Field.REQUESTED, view.requested and "true"),
        SAFE_LOAD: (Field.SAFE_LOAD, view.safe_load and "true"),
        SKIP: (None, view.skip and "true"),
        KEEP_CORDONED: (None, view.keep_cordoned and "true"),
    }
    return {
        path: Held(value, (view.owners.get(field, ()) if field else ()) or ("somebody",))
        for path, (field, value) in said.items()
        if value
    }


def _written(value: Lease | Record | Garbled | None) -> object:
    return "cannot be read" if isinstance(value, Garbled) else value


def _machine(state: State, view: NodeView) -> None:
    machine = state.machines[view.name] = Machine(
        name=view.name,
        boot_id=view.boot_id,
        kernel=view.kernel,
        variant=view.variant,
        hears=view.ready,
        admitted=view.gate.admitted_pod_uid if view.gate is not None else "",
        host_processes=view.usage.host_processes if view.usage is not None else 0,
    )
    for pod in view.driver_pods:
        _driver(state, machine, view, pod)
    if view.loaded is not None:
        machine.loaded = Loaded(_digest(machine, view), view.loaded)
    for part, component in view.components.items():
        _agent(state, machine, view, part, component)
    _tenants(state, machine, view)
    if view.seen_by_agent:
        state.reported[view.name] = Reported(loaded=view.loaded, gate=view.gate, usage=view.usage)
    state.after(0.0, _wakes, view.name)


def _wakes(state: State, name: str) -> None:
    """What was under way goes on."""
    machine = state.machines[name]
    drivers.sync_drivers(state, name)
    for agent in machine.agents.values():
        agents.read(state, machine, agent)
    for work in list(machine.works.values()):
        if work.deleting and work.tenant.stops is not None:
            state.after(work.tenant.stops, works.stopped, name, machine.boot, work.uid)
    state.stir(machine)


def _digest(machine: Machine, view: NodeView) -> str:
    """Of what is loaded: what the driver that runs was made for, or what was proven of it."""
    pod = machine.drivers.get(machine.admitted)
    if pod is not None:
        return pod.install_digest
    record = view.record
    proof = record.evidence if isinstance(record, Record) else None
    if proof is not None and view.loaded and proof.driver_version == view.loaded.version:
        return proof.driver_digest
    return f"of {view.loaded.version}" if view.loaded else ""


def _driver(state: State, machine: Machine, view: NodeView, seen: DriverPod) -> None:
    status = Status(seen.ready, seen.started, seen.restarts, seen.trouble)
    pod = machine.drivers[seen.uid] = Driver(
        uid=seen.uid,
        name=seen.name,
        label=seen.label,
        install_digest=seen.install_digest,
        deleting=seen.deleting,
        on_machine=True,
        status=status,
        shown=status,
    )
    values = (machine.name, machine.boot, seen.uid)
    waiting = view.gate.waiting_pod_uid if view.gate is not None else ""
    if seen.ready:
        pod.phase = Phase.RUNNING
    elif seen.started is not None:
        pod.phase = Phase.LOADING
        state.after(0.0, loading.begin, *values, pod.run)
    elif seen.uid == machine.admitted:
        pod.phase = Phase.CRASHED
        state.after(state.pace.restart, loading.restarted, *values, pod.run)
    elif seen.uid == waiting:
        pod.phase = Phase.AT_GATE
    else:
        pod.on_machine = False
        state.after(0.0, drivers.taken_up, *values)
    if seen.deleting:
        state.after(0.0, drivers.heard_of_end, *values)


def _agent(state: State, machine: Machine, view: NodeView, part: str, seen: Component) -> None:
    silent = seen.silent(state.now)
    said = Said(
        result=seen.result,
        progress=seen.progress,
        refusal=seen.refusal,
        evidence=view.evidence if part == "validator" else None,
        highest=seen.highest,
    )
    agent = machine.agents[part] = Agent(
        part=part,
        knows=seen.knows,
        alive=not silent,
        silent_at=seen.silent_at if silent else None,
        heard=seen.heard or 0.0,
        node_uid=view.uid,
        highest=seen.highest,
        ended=seen.result,
        says=said,
        said=said,
        holds=part not in agents.QUIET and not silent,
    )
    slot = seen.slot
    if slot is None:
        return
    state.slots[view.name, part] = Slot(1, slot)
    agent.epoch = slot.epoch
    if seen.ended(slot.order) is not None:
        body = slot.open()
        agent.slot = slot
        agent.holds = agent.holds and not isinstance(body, Quiesce)
        agent.proven = body.proven if isinstance(body, Idle) else None
    elif seen.progress is not None and seen.progress.order == slot.order:
        agent.begun = slot
        agent.highest = max(slot.order, agent.highest)
        agent.holds = False


def _tenants(state: State, machine: Machine, view: NodeView) -> None:
    used = {use.pod_uid: use.gpus for use in view.usage.pods} if view.usage is not None else {}
    tenants: list[Tenant] = []
    for pod in view.pods or ():
        tenant = _tenant(state, pod, used.get(pod.uid, 1))
        tenants.append(tenant)
        machine.works[pod.uid] = Work(uid=pod.uid, tenant=tenant, deleting=pod.deleting)
        if tenant.remaining is not None:
            state.after(tenant.remaining, works.completed, machine.name, machine.boot, pod.uid)
    if view.pods is None:
        for uid, gpus in used.items():
            tenant = _unseen(state, uid, gpus)
            tenants.append(tenant)
            machine.works[uid] = Work(uid=uid, tenant=tenant)
    machine.tenants = tuple(tenants)


def _tenant(state: State, pod: WorkPod, gpus: int) -> Tenant:
    world = state.world
    return Tenant(
        name=pod.name,
        namespace=pod.namespace,
        gpus=gpus if pod.gpu else 0,
        job=pod.job,
        remaining=world.remainder(pod.uid, 0.0).seconds if pod.job else None,
        guarded=world.refusal(pod.uid).seconds,
        stops=world.eviction(pod.uid, _GRACE).seconds,
        comes_back=not pod.bare and not pod.job,
        shelter=pod.shelter,
        bare=pod.bare,
        empty_dir=pod.empty_dir,
    )


def _unseen(state: State, uid: str, gpus: int) -> Tenant:
    """Only the driver agent has spoken of it: somebody's pod that has GPUs."""
    world = state.world
    return Tenant(
        name=uid,
        gpus=gpus,
        guarded=world.refusal(uid).seconds,
        stops=world.eviction(uid, _GRACE).seconds,
    )
