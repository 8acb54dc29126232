"""Build the engine's views of a node and its pods, from objects, reports and the leader's state.

Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from libs.contracts import node as keys
from libs.contracts.identities import Writer
from libs.contracts.node import DRIVER_LABEL, NodeRecord
from libs.contracts.numbers import parse_count
from libs.contracts.reports import outdated_diagnoses
from libs.contracts.rollout import FINALIZER
from libs.contracts.words import excerpt
from libs.kube.views import parse_time
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.owners import DEPLOY_DRIVER, DEPLOY_OPERANDS
from libs.policy.validation import PRESENT_LABEL
from libs.rollout.decision import NodeTaint
from libs.rollout.views.machine import PodEviction, WantedMig
from libs.rollout.views.node import NodeView, lease_and_claim
from libs.rollout.views.pool import RolloutView
from services.scheduler.node_state import NodeState
from services.scheduler.resources import GPU, Node, Pod, Rollout
from services.scheduler.snapshot.claims import ClaimOf
from services.scheduler.snapshot.pod_view import (
    driver_pod,
    image_pull,
    is_workload,
    no_claims,
    workload_pod,
)
from services.scheduler.snapshot.pools import OWN_LABELS, PoolAssignment, PoolMember
from services.scheduler.snapshot.reports import NodeReports

_MAX_REASON: Final = 400
"""Characters of a reason that an agent gives."""
CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"

_CONTROL_PLANE: Final = frozenset(
    {
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
    }
)


_SIGNS: Final = frozenset({keys.STATE_LABEL, DRIVER_LABEL})
"""Labels of a node that was managed before, by Sluice or the GPU Operator."""


def is_tracked(node: Node) -> bool:
    """Return whether the node has GPUs or was managed before."""
    labels = node.metadata.labels
    return (
        labels.get(PRESENT_LABEL) == "true"
        or bool(node.field_managers)
        or bool(_SIGNS & labels.keys())
        or bool(node.metadata.annotations)
    )


def selectable_labels(node: Node) -> Mapping[str, str]:
    """Return the labels by which policies select nodes."""
    labels = node.metadata.labels
    return {key: value for key, value in labels.items() if key not in OWN_LABELS}


def pool_member(node: Node) -> PoolMember:
    record = node.record
    valid = record if isinstance(record, NodeRecord) else None
    return PoolMember(
        name=node.metadata.name,
        labels=selectable_labels(node),
        label=node.label(DRIVER_LABEL),
        record_pool="" if valid is None else valid.pool,
        record_label="" if valid is None else valid.label,
    )


class NodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the view of a node needs beside its Node."""

    assignment: PoolAssignment = PoolAssignment()
    upgrade: UpgradePolicy | None = None
    """Decides which pods are jobs and which are drained."""
    namespace: str = ""
    absent_agents: frozenset[Writer] = frozenset()
    """The agents that the policies switch off."""
    driver_pods: tuple[Pod, ...] = ()
    image_pods: tuple[Pod, ...] = ()
    """Those that bring a driver's image."""
    pods: tuple[Pod, ...] | None = None
    claim_of: ClaimOf = no_claims
    runs_control_plane: bool = False
    """Whether NATS or a cluster role of Sluice runs on the node."""
    reports: NodeReports = NodeReports()
    chooses_plugin_config: bool = False
    """Whether its label names a configuration of the device plugin."""
    mig: WantedMig | None = None
    """How its label asks for its GPUs to be divided."""
    state: NodeState = msgspec.field(default_factory=NodeState)


def node_view(node: Node, context: NodeContext) -> NodeView:
    metadata, reports, state = node.metadata, context.reports, context.state
    labels, facts, info = metadata.labels, context.reports.facts, node.status.node_info
    pods = _workload_pods(context)
    preflight = state.preflight
    unconfirmed = state.unconfirmed
    lease, claim = lease_and_claim(node.lease, node.lease_claim, metadata.uid)
    runtime = facts.container_runtime if facts is not None else None
    return NodeView(
        name=metadata.name,
        uid=metadata.uid,
        revision=metadata.resource_version,
        boot_id=info.boot_id,
        kernel=info.kernel_version,
        created=parse_time(metadata.creation_timestamp) if metadata.creation_timestamp else 0.0,
        pool=context.assignment.pool,
        variant=context.assignment.variant,
        excluded="false" in (labels.get(DEPLOY_DRIVER), labels.get(DEPLOY_OPERANDS)),
        ready=any(
            each.type == "Ready" and each.status == "True" for each in node.status.conditions
        ),
        cordoned=node.spec.unschedulable,
        cordon_taint=any(taint.key == CORDON_TAINT for taint in node.spec.taints),
        taints=tuple(
            NodeTaint(
                key=taint.key,
                effect=taint.effect,
                value=taint.value,
                time_added=taint.time_added,
            )
            for taint in node.spec.taints
        ),
        gpus=parse_count(node.status.capacity.get(GPU, "")) or 0,
        allocatable={
            name: parse_count(count) or 0 for name, count in node.status.allocatable.items()
        },
        upgrade_last=context.runs_control_plane or bool(_CONTROL_PLANE & labels.keys()),
        mig=context.mig,
        plugin_config=labels.get(keys.PLUGIN_CONFIG_LABEL, "")
        if context.chooses_plugin_config
        else "",
        state=node.label(keys.STATE_LABEL),
        driver_label=node.label(DRIVER_LABEL),
        lease=lease,
        claim=claim,
        record=node.record,
        mig_state=node.label(keys.MIG_STATE_LABEL),
        initially_cordoned=node.annotation(keys.INITIALLY_CORDONED_ANNOTATION) == "true",
        field_managers=node.field_managers,
        last_managers=node.last_managers,
        skip=node.label(keys.SKIP_LABEL) == "true",
        keep_cordoned=node.label(keys.KEEP_CORDONED_LABEL) == "true",
        request=node.request,
        requested=bool(node.annotation(keys.REQUESTED_ANNOTATION)),
        safe_load=bool(node.annotation(keys.SAFE_LOAD_ANNOTATION)),
        validation_pod=node.validation_pod,
        components=reports.components,
        driver_pods=tuple(
            driver_pod(pod, deleted_uid=state.deleted_pod_uid) for pod in context.driver_pods
        ),
        image_pull=image_pull(context.image_pods),
        loaded=facts.driver if facts is not None else None,
        modules_reported=facts is not None,
        obstacle=facts.obstacle if facts is not None else None,
        outdated_diagnoses=outdated_diagnoses(facts) if facts is not None else frozenset(),
        gate=facts.gate if facts is not None else None,
        no_gpus=excerpt(facts.cdi.why, _MAX_REASON) if facts and facts.cdi else "",
        runtime_problem=excerpt(runtime.why, _MAX_REASON) if runtime is not None else "",
        next_kernel=reports.described.next_kernel if reports.described is not None else None,
        runtime_digest=facts.cdi.digest if facts and facts.cdi else "",
        evidence=reports.evidence,
        usage=reports.usage,
        gpu_verdict=reports.gpu_verdict,
        pods=None
        if pods is None
        else tuple(
            workload_pod(
                pod,
                context.upgrade,
                namespace=context.namespace,
                claim_of=context.claim_of,
                absent_agents=context.absent_agents,
            )
            for pod in pods
        ),
        preflight=preflight.query
        if preflight is not None and preflight.boot_id == info.boot_id
        else None,
        evictions=_evictions(state, pods),
        write_pending=state.writing,
        unconfirmed_write_at=unconfirmed.at
        if unconfirmed is not None and unconfirmed.revision == metadata.resource_version
        else None,
        last_wait=state.waiting,
    )


def _workload_pods(context: NodeContext) -> tuple[Pod, ...] | None:
    if context.pods is None:
        return None
    drivers = {pod.metadata.uid for pod in context.driver_pods}
    return tuple(
        pod for pod in context.pods if is_workload(pod) and pod.metadata.uid not in drivers
    )


def _evictions(state: NodeState, pods: Iterable[Pod] | None) -> tuple[PodEviction, ...]:
    present = None if pods is None else {pod.metadata.uid for pod in pods}
    return tuple(
        PodEviction(
            uid=uid,
            since=pending.since,
            refused=pending.refused,
            failed=pending.failed,
            by_force=pending.by_force,
        )
        for uid, pending in state.evictions.items()
        if present is None or uid in present
    )


def rollout_view(rollout: Rollout, *, writing: bool) -> RolloutView:
    metadata, author = rollout.metadata, rollout.brake_author
    return RolloutView(
        uid=metadata.uid,
        revision=metadata.resource_version,
        spec=rollout.spec,
        brake_set_by="" if author is None else author.name,
        brake_reason="" if author is None else author.reason,
        generation=metadata.generation,
        status=rollout.status,
        has_finalizer=FINALIZER in metadata.finalizers,
        write_pending=writing,
    )
