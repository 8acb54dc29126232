"""The views of a stage, as a scheduler would have them.

A view of a node has four parts: the Node, its pods, its agents' reports, the scheduler's memory.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from libs.contracts.node import MANAGER, NodeLease, NodeRecord, NodeRequest
from libs.contracts.paths import (
    CORDON,
    DRIVER,
    INITIALLY_CORDONED,
    KEEP_CORDONED,
    LEASE,
    LEASE_CLAIM,
    MIG_STATE,
    RECORD,
    REQUEST,
    REQUESTED,
    SAFE_LOAD,
    SKIP,
    STATE,
    TAINTS,
)
from libs.forecast.stage import api, mig
from libs.forecast.stage.driver_pods import NAMESPACE
from libs.forecast.stage.images import image_pull
from libs.forecast.stage.objects import (
    NodeMemory,
    StageDriverPod,
    StageMachine,
    StageNode,
    StagePool,
    TenantPod,
)
from libs.forecast.stage.state import StageState
from libs.rollout.views.fleet import Instant, SourceState, Visibility
from libs.rollout.views.machine import (
    Component,
    DriverPod,
    EvictionExemption,
    PodEviction,
    WorkloadPod,
)
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView, lease_and_claim
from libs.rollout.views.pool import PoolView, RolloutView

SOURCES = ("nodes", "pods", "rollouts", "policies", "daemonsets")

Part = Mapping[str, Any]
"""Fields of a view."""

_FAR = 1e12
"""The time at which a connected component would be silent: every heartbeat postpones it."""

_FIELDS = {
    CORDON: NodeField.CORDON,
    STATE: NodeField.STATE,
    MIG_STATE: NodeField.MIG_STATE,
    DRIVER: NodeField.DRIVER,
    LEASE: NodeField.LEASE,
    RECORD: NodeField.RECORD,
    INITIALLY_CORDONED: NodeField.INITIALLY_CORDONED,
    REQUEST: NodeField.REQUEST,
    REQUESTED: NodeField.REQUESTED,
    SAFE_LOAD: NodeField.SAFE_LOAD,
    TAINTS: NodeField.TAINTS,
}


def node_view(state: StageState, name: str) -> NodeView | None:
    """Return the view; None: there is no such Node."""
    content = node_part(state, name)
    if content is None:
        return None
    return join_parts(state, name, content, pods_part(state, name), reports_part(state, name))


def join_parts(state: StageState, name: str, node: Part, pods: Part, reports: Part) -> NodeView:
    memory = state.memory.get(name)
    own: Part = memory_part(state, name, memory, pods.get("pods", ())) if memory else {}
    return NodeView(**node, **pods, **reports, **own)


def with_memory(state: StageState, view: NodeView) -> NodeView:
    """Return the view with the scheduler's wait and unanswered requests updated."""
    memory = state.memory[view.name]
    return msgspec.structs.replace(view, last_wait=memory.waiting, write_pending=memory.writing > 0)


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
        "plugin_config": node.plugin_config,
        "ready": node.ready,
        "cordoned": api.is_cordoned(node),
        "cordon_taint": node.taint,
        "taints": node.taints,
        "gpus": node.gpus,
        "upgrade_last": node.upgrade_last,
        "field_managers": {
            _FIELDS[path]: field.managers for path, field in fields.items() if path in _FIELDS
        },
        "last_managers": {
            _FIELDS[path]: writer
            for path, writer in node.writers.items()
            if path in _FIELDS and path != TAINTS and writer != MANAGER
        },
    }
    if fields:
        part |= _field_values(node)
    return part


def _field_values(node: StageNode) -> Part:
    request = api.value(node, REQUEST)
    lease, claim = lease_and_claim(
        _decode(NodeLease, api.value(node, LEASE)),
        _decode(NodeLease, api.value(node, LEASE_CLAIM)),
        node.uid,
    )
    return {
        "state": api.value(node, STATE) or "",
        "mig_state": api.value(node, MIG_STATE) or "",
        "driver_label": api.driver_label_of(node),
        "lease": lease,
        "claim": claim,
        "record": _decode(NodeRecord, api.value(node, RECORD)),
        "initially_cordoned": api.value(node, INITIALLY_CORDONED) == "true",
        "skip": api.value(node, SKIP) == "true",
        "keep_cordoned": api.value(node, KEEP_CORDONED) == "true",
        "request": NodeRequest(request) if request else None,
        "requested": api.value(node, REQUESTED) is not None,
        "safe_load": api.value(node, SAFE_LOAD) is not None,
    }


def _decode(kind: type[Any], value: Any) -> Any:
    if value is None or isinstance(value, kind):
        return value
    try:
        return msgspec.json.decode(str(value), type=kind)
    except msgspec.DecodeError as error:
        return MalformedAnnotation(str(error))


def pods_part(state: StageState, name: str) -> Part:
    """Return the driver pods, and other pods while the node is not done or is to be removed."""
    machine, node = state.machines.get(name), state.nodes.get(name)
    if machine is None or node is None:
        return {}
    part: dict[str, Any] = {
        "driver_pods": tuple(_driver_pod(pod) for pod in machine.drivers.values() if pod.in_api),
        "image_pull": image_pull(machine),
    }
    at_rest = api.value(node, STATE) in {"upgrade-done", "upgrade-failed"}
    if not at_rest or api.value(node, LEASE) or _asks_for_removal(state, name):
        pool = state.pools.get(node.pool)
        part["pods"] = tuple(
            _workload_pod(tenant_pod, pool)
            for tenant_pod in machine.tenant_pods.values()
            if tenant_pod.in_api
        )
    return part


def _asks_for_removal(state: StageState, name: str) -> bool:
    """Whether the last preflight check is about the removal of the driver."""
    memory = state.memory.get(name)
    return memory is not None and memory.preflight is not None and not memory.preflight.label


def _driver_pod(pod: StageDriverPod) -> DriverPod:
    status = pod.reported_status
    return DriverPod(
        namespace=NAMESPACE,
        name=pod.name,
        uid=pod.uid,
        label=pod.label,
        install_digest=pod.install_digest,
        deleting=pod.deleting,
        ready=status.ready,
        started=status.started,
        restarts=status.restarts,
        trouble=status.trouble,
        pulled=pod.pulled,
    )


def _workload_pod(tenant_pod: TenantPod, pool: StagePool | None) -> WorkloadPod:
    tenant, upgrade = tenant_pod.tenant, pool.upgrade if pool is not None else None
    awaited = upgrade is not None and bool(upgrade.wait_for_completion.pod_selector)
    drains = upgrade is not None and upgrade.drain.enable
    return WorkloadPod(
        namespace=tenant.namespace,
        name=tenant.name,
        uid=tenant_pod.uid,
        gpu=tenant.gpus > 0,
        job=tenant.job and awaited and not tenant_pod.deleting,
        drained=drains and tenant.exemption is EvictionExemption.NONE,
        exemption=tenant.exemption,
        bare=tenant.bare,
        empty_dir=tenant.empty_dir,
        deleting=tenant_pod.deleting,
    )


def reports_part(state: StageState, name: str) -> Part:
    """Return the reports on the bus for the uid and boot of the node."""
    machine, node = state.machines.get(name), state.nodes.get(name)
    if machine is None or node is None:
        return {}
    part: dict[str, Any] = {
        "components": {agent: _component(state, machine, node, agent) for agent in machine.agents}
    }
    facts = state.driver_facts.get(name)
    if facts is not None:
        part |= {
            "loaded": facts.loaded,
            "modules_reported": True,
            "gate": facts.gate,
            "usage": facts.usage,
        }
    if node.mig is not None:
        part["mig"] = mig.with_facts(node.mig, machine, node)
    if machine.shown_verdict is not None and machine.shown_verdict[0] == node.uid:
        part["gpu_verdict"] = machine.shown_verdict[1]
    evidence = machine.agents["validator"].published_reports.evidence
    if evidence is not None and (evidence.node_uid, evidence.boot_id) == (node.uid, node.boot_id):
        part["evidence"] = evidence
    return part


def _component(state: StageState, machine: StageMachine, node: StageNode, part: str) -> Component:
    agent = machine.agents[part]
    reports = agent.published_reports
    slot = state.slots.get((machine.name, part))
    return Component(
        last_beat=agent.last_beat or None,
        silent_at=_FAR if agent.silent_at is None else agent.silent_at,
        capabilities=agent.capabilities,
        slot=slot.command if slot is not None else None,
        result=reports.result,
        progress=reports.progress if node.boot_id == machine.boot_id else None,
        refusal=reports.refusal,
        highest_order=reports.highest_order,
    )


def memory_part(
    state: StageState, name: str, memory: NodeMemory, visible_pods: Iterable[WorkloadPod]
) -> Part:
    """Return the scheduler's memory; pods that are no longer visible have left."""
    part: dict[str, Any] = {
        "last_wait": memory.waiting,
        "write_pending": memory.writing > 0,
    }
    preflight, node = memory.preflight, state.nodes.get(name)
    if preflight is not None and node is not None and memory.preflight_boot == node.boot_id:
        part["preflight"] = preflight
    pending = memory.evictions
    if pending is not None:
        visible = {pod.uid for pod in visible_pods}
        part["evictions"] = tuple(
            PodEviction(uid=uid, since=since, refused=pending.refused.get(uid, ""),
                    by_force=pending.by_force)
            for uid, since in pending.pods.items()
            if uid in visible
        )  # fmt: skip
    return part


# Pools and the present moment.


def pool_view(state: StageState, key: str, rollout: RolloutView | None) -> PoolView:
    """Return the current policy with its Rollout as visible."""
    fields: dict[str, Any] = msgspec.structs.asdict(state.pools[key])
    fields["rollout"] = rollout
    return PoolView(**fields)


def rollout_view(state: StageState, key: str) -> RolloutView | None:
    rollout = state.pools[key].rollout
    if rollout is None:
        return None
    return RolloutView(
        uid=rollout.uid,
        revision=str(rollout.revision),
        spec=rollout.spec,
        generation=rollout.generation,
        status=rollout.status,
        has_finalizer=rollout.finalized,
        write_pending=key in state.writing_rollouts,
    )


def instant(state: StageState) -> Instant:
    """Return the present moment, at which all sources are current."""
    current = SourceState(proved=state.now, revision=str(state.revision))
    visibility = Visibility(
        sources=dict.fromkeys(SOURCES, current), foreign_operator=state.foreign_operator
    )
    return Instant(at=state.now, epoch=state.epoch, visibility=visibility)
