"""The views of a stage: what a scheduler would see of it, and with what sight.

A view has three parts, by where they come from: the Node, the pods, and the reports of agents. Each
part can be held back, so that it shows what was, while the others go on. Pure reading.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sluice.contracts.node import Lease, Record, Request
from sluice.rollout.stage import api
from sluice.rollout.stage.objects import Driver, Known, Machine, Node, Pool, Work
from sluice.rollout.stage.paths import (
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
from sluice.rollout.stage.state import SOURCES, State
from sluice.rollout.views.fleet import Instant, Sight, Source
from sluice.rollout.views.machine import Component, DriverPod, Leaving, Shelter, WorkPod
from sluice.rollout.views.node import Field, Garbled, NodeView
from sluice.rollout.views.pool import PoolView, RolloutView

Part = Mapping[str, Any]
"""Fields of a view."""

NODES, PODS, REPORTS, ROLLOUTS = "nodes", "pods", "reports", "rollouts"
_FAR = 1e12
"""When a component that beats would count as silent: each beat puts it off."""

_FIELDS = {
    CORDON: Field.CORDON,
    STATE: Field.STATE,
    DRIVER: Field.DRIVER,
    LEASE: Field.LEASE,
    RECORD: Field.RECORD,
    INITIALLY_CORDONED: Field.INITIALLY_CORDONED,
    REQUEST: Field.REQUEST,
    REQUESTED: Field.REQUESTED,
    SAFE_LOAD: Field.SAFE_LOAD,
}
_OURS = "sluice-scheduler"


# Nodes.


def node_view(state: State, name: str) -> NodeView | None:
    """The node as it is seen; None: it is not."""
    said = _part(state, NODES, name, node_part)
    if said is None:
        return None
    pods = _part(state, PODS, name, pods_part) or {}
    reports = _part(state, REPORTS, name, reports_part) or {}
    known = state.known.get(name)
    return NodeView(**said, **pods, **reports, **(_known(state, name, known) if known else {}))


def _part(
    state: State, part: str, name: str, make: Callable[[State, str], Part | None]
) -> Part | None:
    if part in state.blind:
        return state.frozen_parts[part].get(name)
    return make(state, name)


def hold(state: State, part: str) -> None:
    """From now on that part shows what it shows now."""
    if part in state.blind:
        return
    if part == ROLLOUTS:
        state.frozen_parts[part] = {key: rollout_view(state, key) for key in state.pools}
    else:
        make = {NODES: node_part, PODS: pods_part, REPORTS: reports_part}[part]
        shown = ((name, make(state, name)) for name in state.machines)
        state.frozen_parts[part] = {name: said for name, said in shown if said is not None}
    state.blind.add(part)
    if part in SOURCES:
        state.sources[part] = Source(proved=state.now, revision=str(state.revision))


def show(state: State, part: str) -> None:
    """It is current again."""
    if part in state.blind:
        state.blind.discard(part)
        state.frozen_parts.pop(part, None)
        state.sources.pop(part, None)
        state.touch_all(state.machines)
        for key in state.pools:
            state.touch_pool(key)


def refresh_node(state: State, name: str) -> None:
    """Whoever wrote a Node has it in the answer; after a conflict he looks again, at that one."""
    if NODES in state.blind and (said := node_part(state, name)) is not None:
        state.frozen_parts[NODES] = {**state.frozen_parts[NODES], name: said}
        state.restale.add(name)


def refresh_rollout(state: State, key: str) -> None:
    """So has whoever wrote a Rollout."""
    if ROLLOUTS in state.blind:
        seen = {**state.frozen_parts[ROLLOUTS], key: rollout_view(state, key)}
        state.frozen_parts[ROLLOUTS] = seen
        state.restale_pools.add(key)


def refresh_slot(state: State, name: str, part: str) -> None:
    """So has whoever wrote a slot."""
    shown = state.frozen_parts.get(REPORTS, {}).get(name)
    if shown and part in shown["components"]:
        slot = state.slots[name, part].command
        parts = {**shown["components"]}
        parts[part] = msgspec.structs.replace(parts[part], slot=slot)
        said = {**shown, "components": parts}
        state.frozen_parts[REPORTS] = {**state.frozen_parts[REPORTS], name: said}


def quiet(state: State, source: str) -> None:
    """It is current, but will not show that by itself."""
    if source not in state.sources:
        state.sources[source] = Source(proved=state.now, revision=str(state.revision))


def node_part(state: State, name: str) -> Part | None:
    """What the Node says."""
    node = state.nodes.get(name)
    if node is None:
        return None
    fields = node.fields
    part: dict[str, Any] = {
        "name": name,
        "uid": node.uid,
        "revision": str(node.revision),
        "boot_id": node.boot_id,
        "kernel": node.kernel,
        "created": node.created,
        "pool": node.pool,
        "variant": node.variant,
        "excluded": node.excluded,
        "ready": node.ready,
        "cordoned": api.cordoned(node),
        "cordon_taint": node.taint,
        "gpus": node.gpus,
        "last": node.last,
        "owners": {
            _FIELDS[path]: held.managers for path, held in fields.items() if path in _FIELDS
        },
        "writers": {
            _FIELDS[path]: writer
            for path, writer in node.writers.items()
            if path in _FIELDS and writer != _OURS
        },
    }
    if fields:
        part |= _said(node)
    return part


def _said(node: Node) -> Part:
    request = api.value(node, REQUEST)
    return {
        "state": api.value(node, STATE) or "",
        "driver_label": api.driver_label(node),
        "lease": _read(Lease, api.value(node, LEASE)),
        "record": _read(Record, api.value(node, RECORD)),
        "initially_cordoned": api.value(node, INITIALLY_CORDONED) == "true",
        "skip": api.value(node, SKIP) == "true",
        "keep_cordoned": api.value(node, KEEP_CORDONED) == "true",
        "request": Request(request) if request else None,
        "requested": api.value(node, REQUESTED) is not None,
        "safe_load": api.value(node, SAFE_LOAD) is not None,
    }


def _read(kind: type[Any], value: Any) -> Any:
    if value is None or isinstance(value, kind):
        return value
    try:
        return msgspec.json.decode(str(value), type=kind)
    except msgspec.DecodeError as error:
        return Garbled(str(error))


# Pods.


def pods_part(state: State, name: str) -> Part:
    """Driver pods always, others where somebody looks: at what is not done."""
    machine, node = state.machines.get(name), state.nodes.get(name)
    if machine is None or node is None:
        return {}
    part: dict[str, Any] = {
        "driver_pods": tuple(_driver_pod(pod) for pod in machine.drivers.values() if pod.in_api)
    }
    if api.value(node, STATE) not in {"upgrade-done", "upgrade-failed"} or api.value(node, LEASE):
        pool = state.pools.get(node.pool)
        part["pods"] = tuple(
            _work_pod(work, pool) for work in machine.works.values() if work.in_api
        )
    return part


def _driver_pod(pod: Driver) -> DriverPod:
    shown = pod.shown
    return DriverPod(
        namespace="gpu-operator",
        name=pod.name,
        uid=pod.uid,
        label=pod.label,
        install_digest=pod.install_digest,
        deleting=pod.deleting,
        ready=shown.ready,
        started=shown.started,
        restarts=shown.restarts,
        trouble=shown.trouble,
    )


def _work_pod(work: Work, pool: Pool | None) -> WorkPod:
    tenant, upgrade = work.tenant, pool.upgrade if pool is not None else None
    awaited = upgrade is not None and bool(upgrade.wait_for_completion.pod_selector)
    drains = upgrade is not None and upgrade.drain.enable
    return WorkPod(
        namespace=tenant.namespace,
        name=tenant.name,
        uid=work.uid,
        gpu=tenant.gpus > 0,
        job=tenant.job and awaited and not work.deleting,
        drained=drains and tenant.shelter is Shelter.NONE,
        shelter=tenant.shelter,
        bare=tenant.bare,
        empty_dir=tenant.empty_dir,
        deleting=work.deleting,
    )


# Reports.


def reports_part(state: State, name: str) -> Part:
    """What the bus has of the node, as far as it is of this node uid and boot."""
    machine, node = state.machines.get(name), state.nodes.get(name)
    if machine is None or node is None:
        return {}
    part: dict[str, Any] = {
        "components": {agent: _component(state, machine, node, agent) for agent in machine.agents}
    }
    told = state.reported.get(name)
    if told is not None:
        part |= {
            "loaded": told.loaded,
            "seen_by_agent": True,
            "gate": told.gate,
            "usage": told.usage,
        }
    evidence = machine.agents["validator"].said.evidence
    if evidence is not None and (evidence.node_uid, evidence.boot_id) == (node.uid, node.boot_id):
        part["evidence"] = evidence
    return part


def _component(state: State, machine: Machine, node: Node, part: str) -> Component:
    agent = machine.agents[part]
    said = agent.said
    slot = state.slots.get((machine.name, part))
    return Component(
        heard=agent.heard or None,
        silent_at=_FAR if agent.silent_at is None else agent.silent_at,
        knows=agent.knows,
        slot=slot.command if slot is not None else None,
        result=said.result,
        progress=said.progress if node.boot_id == machine.boot_id else None,
        refusal=said.refusal,
        highest=said.highest,
    )


def _known(state: State, name: str, known: Known) -> Part:
    part: dict[str, Any] = {"waiting": known.waiting, "writing": known.writing > 0}
    checked, node = known.preflight, state.nodes.get(name)
    if checked is not None and node is not None and known.preflight_boot == node.boot_id:
        part["preflight"] = checked
    leaves = known.leaves
    machine = state.machines.get(name)
    if leaves is not None and machine is not None:
        part["leaving"] = tuple(
            Leaving(uid=uid, since=since, refused=leaves.refused.get(uid, ""),
                    by_force=leaves.by_force)
            for uid, since in leaves.pods.items()
            if uid in machine.works and machine.works[uid].in_api
        )  # fmt: skip
    return part


# Pools.


def pool_view(state: State, key: str) -> PoolView:
    """The policy as it is, and its Rollout as it is seen."""
    pool = state.pools[key]
    if ROLLOUTS in state.blind:
        rollout = state.frozen_parts[ROLLOUTS].get(key)
        if rollout is not None:
            writing = key in state.writing_rollouts
            rollout = msgspec.structs.replace(rollout, writing=writing)
    else:
        rollout = rollout_view(state, key)
    return PoolView(
        key=key,
        uid=pool.uid,
        target=pool.target,
        method=pool.method,
        builds=pool.builds,
        upgrade=pool.upgrade,
        strategy=pool.strategy,
        held=pool.held,
        gone=pool.gone,
        rollout=rollout,
    )


def rollout_view(state: State, key: str) -> RolloutView | None:
    """The pool's Rollout, if there is one."""
    rollout = state.pools[key].rollout
    if rollout is None:
        return None
    return RolloutView(
        uid=rollout.uid,
        revision=str(rollout.revision),
        spec=rollout.spec,
        generation=rollout.generation,
        status=rollout.status,
        finalized=rollout.finalized,
        writing=key in state.writing_rollouts,
    )


def instant(state: State, epoch: int) -> Instant:
    """Now, with what is known of how current everything is."""
    fresh = Source(proved=state.now, revision=str(state.revision))
    sources = {name: state.sources.get(name, fresh) for name in SOURCES}
    sight = Sight(
        sources=sources,
        away_since=state.away_since,
        away=state.away,
        foreign_operator=state.foreign_operator,
    )
    return Instant(at=state.now, epoch=epoch, sight=sight)
