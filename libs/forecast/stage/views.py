"""The views of a stage, as a scheduler would have them.

A view of a node has four parts: the Node, its pods, its agents' reports, the scheduler's memory.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from libs.contracts.paths import LEASE
from libs.forecast.stage import api, mig
from libs.forecast.stage.driver_pods import NAMESPACE
from libs.forecast.stage.images import image_pull
from libs.forecast.stage.objects import (
    NodeMemory,
    StageDriverPod,
    StageMachine,
    StageNode,
    TenantPod,
)
from libs.forecast.stage.state import StageState
from libs.rollout.views.fleet import Instant, SourceState, Visibility
from libs.rollout.views.machine import (
    Component,
    DriverPod,
    EvictionExemption,
    WorkloadPod,
)
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView, RolloutView

_AT_REST = frozenset({"upgrade-done", "upgrade-failed"})
SOURCES = ("nodes", "pods", "rollouts", "policies", "daemonsets")

Part = Mapping[str, Any]
"""Fields of a view."""

_FAR = 1e12
"""The time at which a connected component would be silent: every heartbeat postpones it."""

_NO_MEMORY = NodeMemory()


def node_view(state: StageState, name: str) -> NodeView | None:
    """Return the view; None: there is no such Node."""
    node = state.nodes.get(name)
    if node is None:
        return None
    return join_parts(state, node.view, pods_part(state, name), reports_part(state, name))


def join_parts(state: StageState, node: NodeView, pods: Part, reports: Part) -> NodeView:
    own = memory_part(state, node.name, pods.get("pods"))
    return replace(node, **pods, **reports, **own)


def with_memory(state: StageState, view: NodeView) -> NodeView:
    """Return the view with the scheduler's wait and unanswered requests updated."""
    memory = state.memory[view.name]
    return replace(view, last_wait=memory.waiting, write_pending=memory.writing > 0)


def node_part(state: StageState, name: str) -> NodeView | None:
    node = state.nodes.get(name)
    return None if node is None else node.view


def pods_part(state: StageState, name: str) -> Part:
    """Return the driver pods, and other pods while the node is not done or is to be removed."""
    machine, node = state.machines.get(name), state.nodes.get(name)
    if machine is None or node is None:
        return {}
    is_listed = (
        node.view.state not in _AT_REST or api.value(node, LEASE) or _asks_for_removal(state, name)
    )
    pool = state.pools.get(node.view.pool)
    return {
        "driver_pods": tuple(_driver_pod(pod) for pod in machine.drivers.values() if pod.in_api),
        "image_pull": image_pull(machine),
        "pods": tuple(
            _workload_pod(tenant_pod, pool)
            for tenant_pod in machine.tenant_pods.values()
            if tenant_pod.in_api
        )
        if is_listed
        else None,
    }


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


def _workload_pod(tenant_pod: TenantPod, pool: PoolView | None) -> WorkloadPod:
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
    facts, view = state.driver_facts.get(name), node.view
    evidence = machine.agents["validator"].published_reports.evidence
    if evidence is not None:
        is_of_node = (evidence.node_uid, evidence.boot_id) == (view.uid, view.boot_id)
        evidence = evidence if is_of_node else None
    uid, verdict = machine.shown_verdict or ("", None)
    return {
        "components": {agent: _component(state, machine, node, agent) for agent in machine.agents},
        "loaded": facts and facts.loaded,
        "modules_reported": facts is not None,
        "gate": facts and facts.gate,
        "usage": facts and facts.usage,
        "mig": view.mig and mig.with_facts(view.mig, machine, node),
        "gpu_verdict": verdict if uid == view.uid else None,
        "evidence": evidence,
    }


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
        progress=reports.progress if node.view.boot_id == machine.boot_id else None,
        refusal=reports.refusal,
        highest_order=reports.highest_order,
    )


def memory_part(state: StageState, name: str, pods: Iterable[WorkloadPod] | None) -> Part:
    """Return the scheduler's memory; pods that are no longer visible have left."""
    memory, node = state.memory.get(name, _NO_MEMORY), state.nodes.get(name)
    is_of_boot = node is not None and memory.preflight_boot == node.view.boot_id
    visible = {pod.uid for pod in pods or ()} if memory.evictions else ()
    return {
        "last_wait": memory.waiting,
        "write_pending": memory.writing > 0,
        "preflight": memory.preflight if is_of_boot else None,
        "evictions": tuple(each for each in memory.evictions.values() if each.uid in visible),
    }


# Pools and the present moment.


def rollout_view(state: StageState, key: str) -> RolloutView | None:
    rollout = state.pools[key].rollout
    return rollout and replace(rollout, write_pending=key in state.writing_rollouts)


def instant(state: StageState) -> Instant:
    """Return the present moment, at which all sources are current."""
    current = SourceState(proved=state.now, revision=str(state.revision))
    visibility = Visibility(
        sources=dict.fromkeys(SOURCES, current), foreign_operator=state.foreign_operator
    )
    return Instant(at=state.now, epoch=state.epoch, visibility=visibility)
