"""Build the engine's views of a node and its pods, from objects, reports and the leader's state.

Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from libs.contracts import node as keys
from libs.contracts.node import DRAIN_SKIP_LABEL, DRIVER_LABEL, NodeRecord
from libs.contracts.rollout import FINALIZER
from libs.kube.views import ContainerStatus, parse_time
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.owners import DEPLOY_DRIVER, DEPLOY_OPERANDS, DEPLOY_PREFIX
from libs.policy.render.agents import AGENTS, NEVER_PAUSED_LABELS
from libs.policy.render.driver import APP
from libs.policy.render.rendered import INSTALL_ANNOTATION
from libs.policy.selectors import selects
from libs.policy.validation import PRESENT_LABEL
from libs.rollout.views.machine import DriverPod, EvictionExemption, PodEviction, WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import RolloutView
from services.scheduler.node_state import NodeState
from services.scheduler.resources import GPU, Node, Pod, Rollout
from services.scheduler.snapshot.pools import OWN_LABELS, PoolAssignment, PoolMember
from services.scheduler.snapshot.reports import NodeReports

DRIVER_CONTAINER: Final = "nvidia-driver-ctr"
OWN_APPS: Final = frozenset((APP, *(agent.app for agent in AGENTS)))
"""The `app` label of Sluice's pods; their namespace may have other pods too."""

_MIRROR: Final = "kubernetes.io/config.mirror"
_STARTING: Final = frozenset(("ContainerCreating", "PodInitializing", ""))
_OVER: Final = frozenset(("Succeeded", "Failed"))
_GPU_PREFIXES: Final = ("nvidia.com/gpu", "nvidia.com/mig-")


def driver_pod(pod: Pod) -> DriverPod:
    metadata, status = pod.metadata, pod.status
    container = next(
        (each for each in status.container_statuses if each.name == DRIVER_CONTAINER), None
    )
    running = container.state.running if container is not None else None
    return DriverPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        label=metadata.labels.get(DRIVER_LABEL, ""),
        install_digest=metadata.annotations.get(INSTALL_ANNOTATION, ""),
        deleting=bool(metadata.deletion_timestamp),
        ready=any(each.type == "Ready" and each.status == "True" for each in status.conditions),
        started=parse_time(running.started_at) if running and running.started_at else None,
        restarts=container.restart_count if container is not None else 0,
        trouble=_trouble((*status.init_container_statuses, *status.container_statuses)),
    )


def _trouble(containers: Iterable[ContainerStatus]) -> str:
    for container in containers:
        waiting, ended = container.state.waiting, container.state.terminated
        if waiting is not None and waiting.reason not in _STARTING:
            return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
        if ended is not None and ended.exit_code:
            return f"container {container.name} exited with code {ended.exit_code}"
    return ""


def workload_pod(pod: Pod, upgrade: UpgradePolicy | None, *, namespace: str) -> WorkloadPod:
    """Return the view of a pod that is not a driver, under the upgrade policy of its pool."""
    metadata = pod.metadata
    labels = metadata.labels
    exemption = _exemption(pod, namespace)
    deleting = bool(metadata.deletion_timestamp)
    is_job = is_drained = False
    if upgrade is not None:
        job_selector, drain = upgrade.wait_for_completion.pod_selector, upgrade.drain
        is_job = not deleting and bool(job_selector) and selects(job_selector, labels)
        is_drained = (
            exemption is EvictionExemption.NONE
            and drain.enable
            and selects(drain.pod_selector, labels)
        )
    return WorkloadPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        gpu=_uses_gpu(pod),
        job=is_job,
        drained=is_drained,
        exemption=exemption,
        bare=not any(owner.controller for owner in metadata.owner_references),
        empty_dir=any(volume.empty_dir is not None for volume in pod.spec.volumes),
        deleting=deleting,
    )


def is_finished(pod: Pod) -> bool:
    """Return whether all containers have ended, so that the pod holds no devices."""
    return pod.status.phase in _OVER


def is_of_daemon_set(pod: Pod) -> bool:
    """Return whether a DaemonSet would recreate the pod at once."""
    return any(
        owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references
    )


def _uses_gpu(pod: Pod) -> bool:
    return any(
        name.startswith(_GPU_PREFIXES) and amount != "0"
        for container in pod.spec.containers
        for amounts in (container.resources.limits, container.resources.requests)
        for name, amount in amounts.items()
    )


def _exemption(pod: Pod, namespace: str) -> EvictionExemption:
    metadata = pod.metadata
    in_namespace = metadata.namespace == namespace
    if _MIRROR in metadata.annotations:
        return EvictionExemption.MIRROR
    if in_namespace and metadata.labels.get("app") in OWN_APPS:
        return EvictionExemption.SLUICE
    if is_of_daemon_set(pod):
        deploy_labels = (key for key in pod.spec.node_selector if key.startswith(DEPLOY_PREFIX))
        if any(key not in NEVER_PAUSED_LABELS for key in deploy_labels):
            return EvictionExemption.OPERAND
        return EvictionExemption.SLUICE if in_namespace else EvictionExemption.DAEMON_SET
    if in_namespace:
        return EvictionExemption.SLUICE
    if metadata.labels.get(DRAIN_SKIP_LABEL) == "true":
        return EvictionExemption.DRAIN_SKIP
    return EvictionExemption.NONE


CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"

_CONTROL_PLANE: Final = frozenset(
    {
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
    }
)


def is_tracked(node: Node) -> bool:
    """Return whether the node has GPUs or was managed before."""
    labels = node.metadata.labels
    return (
        labels.get(PRESENT_LABEL) == "true"
        or bool(node.field_managers)
        or bool(OWN_LABELS & labels.keys())
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
    driver_pods: tuple[Pod, ...] = ()
    pods: tuple[Pod, ...] | None = None
    runs_control_plane: bool = False
    """Whether NATS or a cluster role of Sluice runs on the node."""
    reports: NodeReports = NodeReports()
    state: NodeState = msgspec.field(default_factory=NodeState)


def node_view(node: Node, context: NodeContext) -> NodeView:
    metadata, reports, state = node.metadata, context.reports, context.state
    labels, facts, info = metadata.labels, context.reports.facts, node.status.node_info
    pods = _workload_pods(context)
    preflight = state.preflight
    unconfirmed = state.unconfirmed
    gpus = node.status.capacity.get(GPU, "0")
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
        gpus=int(gpus) if gpus.isdecimal() else 0,
        upgrade_last=context.runs_control_plane or bool(_CONTROL_PLANE & labels.keys()),
        state=node.label(keys.STATE_LABEL),
        driver_label=node.label(DRIVER_LABEL),
        lease=node.lease,
        record=node.record,
        initially_cordoned=node.annotation(keys.INITIALLY_CORDONED_ANNOTATION) == "true",
        field_managers=node.field_managers,
        last_managers=node.last_managers,
        skip=node.label(keys.SKIP_LABEL) == "true",
        keep_cordoned=node.label(keys.KEEP_CORDONED_LABEL) == "true",
        request=node.request,
        requested=bool(node.annotation(keys.REQUESTED_ANNOTATION)),
        safe_load=bool(node.annotation(keys.SAFE_LOAD_ANNOTATION)),
        components=reports.components,
        driver_pods=tuple(driver_pod(pod) for pod in context.driver_pods),
        loaded=facts.driver if facts is not None else None,
        modules_reported=facts is not None,
        gate=facts.gate if facts is not None else None,
        evidence=reports.evidence,
        usage=reports.usage,
        pods=None
        if pods is None
        else tuple(workload_pod(pod, context.upgrade, namespace=context.namespace) for pod in pods),
        preflight=preflight.view()
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
        pod
        for pod in context.pods
        if not is_finished(pod)
        and pod.metadata.uid not in drivers
        and DRIVER_LABEL not in pod.metadata.labels
    )


def _evictions(state: NodeState, pods: Iterable[Pod] | None) -> tuple[PodEviction, ...]:
    present = None if pods is None else {pod.metadata.uid for pod in pods}
    return tuple(
        PodEviction(
            uid=uid, since=pending.since, refused=pending.refused, by_force=pending.by_force
        )
        for uid, pending in state.evictions.items()
        if present is None or uid in present
    )


def rollout_view(rollout: Rollout, *, writing: bool) -> RolloutView:
    metadata = rollout.metadata
    return RolloutView(
        uid=metadata.uid,
        revision=metadata.resource_version,
        spec=rollout.spec,
        generation=metadata.generation,
        status=rollout.status,
        has_finalizer=FINALIZER in metadata.finalizers,
        write_pending=writing,
    )
