"""The parts of a node's view: the Node, its pods, its agents' reports, the scheduler's memory."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from libs.contracts.node import MANAGER, NodeLease, NodeRecord, NodeRequest
from libs.forecast.stage import api
from libs.forecast.stage.field_paths import (
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
from libs.forecast.stage.objects import (
    NodeMemory,
    StageDriverPod,
    StageMachine,
    StageNode,
    StagePool,
    TenantPod,
)
from libs.forecast.stage.state import StageState
from libs.rollout.views.machine import (
    Component,
    DriverPod,
    EvictionExemption,
    PodEviction,
    WorkloadPod,
)
from libs.rollout.views.node import MalformedAnnotation, NodeField

Part = Mapping[str, Any]
"""Fields of a view."""

_FAR = 1e12
"""The time at which a connected component would be silent: every heartbeat postpones it."""

_FIELDS = {
    CORDON: NodeField.CORDON,
    STATE: NodeField.STATE,
    DRIVER: NodeField.DRIVER,
    LEASE: NodeField.LEASE,
    RECORD: NodeField.RECORD,
    INITIALLY_CORDONED: NodeField.INITIALLY_CORDONED,
    REQUEST: NodeField.REQUEST,
    REQUESTED: NodeField.REQUESTED,
    SAFE_LOAD: NodeField.SAFE_LOAD,
}


def node_part(state: StageState, name: str) -> Part | None:
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
        "cordoned": api.is_cordoned(node),
        "cordon_taint": node.taint,
        "gpus": node.gpus,
        "upgrade_last": node.upgrade_last,
        "field_managers": {
            _FIELDS[path]: held.managers for path, held in fields.items() if path in _FIELDS
        },
        "last_managers": {
            _FIELDS[path]: writer
            for path, writer in node.writers.items()
            if path in _FIELDS and writer != MANAGER
        },
    }
    if fields:
        part |= _said(node)
    return part


def _said(node: StageNode) -> Part:
    request = api.value(node, REQUEST)
    return {
        "state": api.value(node, STATE) or "",
        "driver_label": api.driver_label_of(node),
        "lease": _read(NodeLease, api.value(node, LEASE)),
        "record": _read(NodeRecord, api.value(node, RECORD)),
        "initially_cordoned": api.value(node, INITIALLY_CORDONED) == "true",
        "skip": api.value(node, SKIP) == "true",
        "keep_cordoned": api.value(node, KEEP_CORDONED) == "true",
        "request": NodeRequest(request) if request else None,
        "requested": api.value(node, REQUESTED) is not None,
        "safe_load": api.value(node, SAFE_LOAD) is not None,
    }


def _read(kind: type[Any], value: Any) -> Any:
    if value is None or isinstance(value, kind):
        return value
    try:
        return msgspec.json.decode(str(value), type=kind)
    except msgspec.DecodeError as error:
        return MalformedAnnotation(str(error))


def pods_part(state: StageState, name: str) -> Part:
    """Return the driver pods, and other pods while the node is not done."""
    machine, node = state.machines.get(name), state.nodes.get(name)
    if machine is None or node is None:
        return {}
    part: dict[str, Any] = {
        "driver_pods": tuple(_driver_pod(pod) for pod in machine.drivers.values() if pod.in_api)
    }
    if api.value(node, STATE) not in {"upgrade-done", "upgrade-failed"} or api.value(node, LEASE):
        pool = state.pools.get(node.pool)
        part["pods"] = tuple(
            _work_pod(work, pool) for work in machine.tenant_pods.values() if work.in_api
        )
    return part


def _driver_pod(pod: StageDriverPod) -> DriverPod:
    shown = pod.reported_status
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


def _work_pod(work: TenantPod, pool: StagePool | None) -> WorkloadPod:
    tenant, upgrade = work.tenant, pool.upgrade if pool is not None else None
    awaited = upgrade is not None and bool(upgrade.wait_for_completion.pod_selector)
    drains = upgrade is not None and upgrade.drain.enable
    return WorkloadPod(
        namespace=tenant.namespace,
        name=tenant.name,
        uid=work.uid,
        gpu=tenant.gpus > 0,
        job=tenant.job and awaited and not work.deleting,
        drained=drains and tenant.exemption is EvictionExemption.NONE,
        exemption=tenant.exemption,
        bare=tenant.bare,
        empty_dir=tenant.empty_dir,
        deleting=work.deleting,
    )


def reports_part(state: StageState, name: str) -> Part:
    """Return what the bus has of the node for its uid and boot."""
    machine, node = state.machines.get(name), state.nodes.get(name)
    if machine is None or node is None:
        return {}
    part: dict[str, Any] = {
        "components": {agent: _component(state, machine, node, agent) for agent in machine.agents}
    }
    told = state.driver_facts.get(name)
    if told is not None:
        part |= {
            "loaded": told.loaded,
            "modules_reported": True,
            "gate": told.gate,
            "usage": told.usage,
        }
    evidence = machine.agents["validator"].published_reports.evidence
    if evidence is not None and (evidence.node_uid, evidence.boot_id) == (node.uid, node.boot_id):
        part["evidence"] = evidence
    return part


def _component(state: StageState, machine: StageMachine, node: StageNode, part: str) -> Component:
    agent = machine.agents[part]
    said = agent.published_reports
    slot = state.slots.get((machine.name, part))
    return Component(
        last_beat=agent.last_beat or None,
        silent_at=_FAR if agent.silent_at is None else agent.silent_at,
        capabilities=agent.capabilities,
        slot=slot.command if slot is not None else None,
        result=said.result,
        progress=said.progress if node.boot_id == machine.boot_id else None,
        refusal=said.refusal,
        highest_order=said.highest_order,
    )


def memory_part(
    state: StageState, name: str, memory: NodeMemory, seen: Iterable[WorkloadPod]
) -> Part:
    """Return the scheduler's memory; pods that are no longer visible have left."""
    part: dict[str, Any] = {
        "last_wait": memory.waiting,
        "write_pending": memory.writing > 0,
    }
    checked, node = memory.preflight, state.nodes.get(name)
    if checked is not None and node is not None and memory.preflight_boot == node.boot_id:
        part["preflight"] = checked
    leaves = memory.evictions
    if leaves is not None:
        there = {pod.uid for pod in seen}
        part["evictions"] = tuple(
            PodEviction(uid=uid, since=since, refused=leaves.refused.get(uid, ""),
                    by_force=leaves.by_force)
            for uid, since in leaves.pods.items()
            if uid in there
        )  # fmt: skip
    return part
