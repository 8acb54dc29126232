"""Plan the wanted objects and statuses from a snapshot of the cluster. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from libs.contracts.diagnoses import Diagnosis
from libs.contracts.facts import NextKernel
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import DRIVER_LABEL, SKIP_LABEL, STATE_LABEL, NodeRecord, UpgradeState
from libs.kube.views import ContainerStatus, Pod
from libs.policy.artefacts import CONFIG_MAP, NO_ARTEFACTS, Artefacts, parse_artefacts
from libs.policy.digest import target_digest
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY
from libs.policy.manifests import parse_object
from libs.policy.owners import DEPLOY_OPERANDS, DEPLOY_PLUGIN, NodeLabels
from libs.policy.pool import Pools
from libs.policy.pools import assemble_pools
from libs.policy.readiness import Observation, ObservedDaemonSet, ObservedNode, PodProblem
from libs.policy.render.operands import render_operands, runtime_classes
from libs.policy.render.rendered import (
    MONITOR_GROUP,
    MONITOR_KIND,
    RenderedObject,
    RenderSettings,
)
from libs.policy.status import PolicyStatus, StatusCondition, policy_statuses
from libs.policy.validation import PRESENT_LABEL
from libs.policy.variants import assign_variants
from libs.policy.wanted import operands_of
from services.driver.cluster.diagnosed import diagnosed_condition
from services.driver.cluster.next_kernels import next_kernel_condition, next_kernel_problems
from services.driver.cluster.plugin_configs import PLUGIN_CONFIG, plugin_config_condition
from services.driver.cluster.remaining_claims import (
    CLAIMS_REMAIN,
    claims_end,
    claims_remain_condition,
)
from services.driver.cluster.resources import DaemonSet, Node, PolicyObject, Rollout

_FEATURES: Final = "feature.node.kubernetes.io/"


class ObjectKey(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    policies: Mapping[str, Collection[PolicyObject]]
    """By kind."""
    nodes: Collection[Node]
    gpu_clusters: Collection[str]
    """By name."""
    config_maps: Mapping[str, Collection[str]]
    """The keys of each, by its name."""
    config_texts: Mapping[str, Mapping[str, str]] = {}
    """The short texts in each, by its name and key."""
    daemon_sets: Collection[DaemonSet]
    """Only ours."""
    rollouts: Collection[Rollout] = ()
    foreign_operands: Collection[str] = ()
    """DaemonSets of a GPU Operator in our namespace, by name."""
    reported_handlers: Mapping[str, Collection[str]] = {}
    """By the uid of nodes: the handlers that their driver agents report."""
    diagnoses: Mapping[tuple[str, str], Sequence[Diagnosis]] = {}
    """By the uid and boot of nodes."""
    next_kernels: Mapping[tuple[str, str], NextKernel] = {}
    """By the uid and boot of nodes: the kernel that boots next."""
    claimed_nodes: Collection[str] | None = None
    """The nodes with GPUs by claims, while that is followed; None: not known."""
    has_monitors: bool = False
    """Whether the server has the kind ServiceMonitor."""
    pod_problems: tuple[PodProblem, ...] = ()
    refused: Mapping[str, str] = {}
    """By kind and name, `DaemonSet/a`: why the API server refused it."""


class OperandPlan(msgspec.Struct, frozen=True, kw_only=True):
    pools: Pools
    objects: Mapping[ObjectKey, RenderedObject]
    statuses: Mapping[ObjectKey, PolicyStatus]
    targets: Mapping[str, str]
    """By the key of each pool that is not held: the target of its nodes."""
    gpu_nodes: int = 0
    has_features: bool = False
    """Some node has labels of node feature discovery."""
    decides: bool = False
    """A policy determines the operands of the cluster: others may be deleted."""
    runtime_classes: frozenset[str] = frozenset()
    """Those that the policy wants, also where no node knows the handler at present."""
    lacks_monitors: bool = False
    """A ServiceMonitor is wanted, and the server does not have the kind."""
    without_next_driver: int = 0
    """Nodes that may have no driver after their next boot."""
    claims_end: bool = False
    """Pods have GPUs by claims, which the policy gives no more."""


def make_plan(snapshot: ClusterSnapshot, settings: RenderSettings) -> OperandPlan:
    parsed = [
        parse_object(kind, metadata=policy.metadata, spec=policy.spec)
        for kind, policies in snapshot.policies.items()
        for policy in policies
    ]
    nodes = [
        NodeLabels(name=node.metadata.name, uid=node.metadata.uid, labels=node.metadata.labels)
        for node in snapshot.nodes
    ]
    pools = assemble_pools(parsed, nodes, gpu_clusters=tuple(snapshot.gpu_clusters))
    placement = assign_variants(pools, nodes)
    handlers = {
        handler
        for node in snapshot.nodes
        if node.metadata.labels.get(PRESENT_LABEL) == "true"
        for handler in (
            *node.handlers,
            *snapshot.reported_handlers.get(node.metadata.uid, ()),
        )
    }
    daemon_sets = {each.metadata.name for each in snapshot.daemon_sets}
    ends = claims_end(pools.cluster, daemon_sets=daemon_sets, claimed_nodes=snapshot.claimed_nodes)
    rendering = render_operands(
        pools,
        placement,
        settings,
        config_maps=dict(snapshot.config_maps),
        handlers=handlers,
        claims_end=ends,
    )
    observation = _observe(snapshot, pools)
    objects = {ObjectKey(each.kind, each.name): each for each in rendering.objects}
    monitors = [] if snapshot.has_monitors else [key for key in objects if key.kind == MONITOR_KIND]
    for key in monitors:
        del objects[key]
    diagnoses = {
        node.metadata.name: snapshot.diagnoses.get((node.metadata.uid, node.boot_id), ())
        for node in snapshot.nodes
    }
    problems = next_kernel_problems(pools, snapshot.nodes, snapshot.next_kernels, daemon_sets)
    of_cluster = (
        foreign_operands_condition(snapshot.foreign_operands),
        missing_definition_condition() if monitors else None,
        plugin_config_condition(
            pools.cluster,
            namespace=settings.namespace,
            config_maps=snapshot.config_maps,
            texts=snapshot.config_texts,
            nodes=snapshot.nodes,
        ),
        claims_remain_condition(
            snapshot.claimed_nodes, offers=operands_of(pools.cluster).device_plugin
        )
        if ends
        else None,
    )
    statuses = [
        status.with_conditions(
            *(of_cluster if _is_of_cluster(status, pools) else ()),
            diagnosed_condition(status, pools, diagnoses),
            next_kernel_condition(status, pools, problems),
        )
        for status in policy_statuses(pools, placement, rendering, observation)
    ]
    return OperandPlan(
        pools=pools,
        objects=objects,
        statuses={ObjectKey(status.kind, status.name): status for status in statuses},
        targets={
            pool.key: target_digest(pool.driver, observation.artefacts)
            for pool in pools.pools
            if not pool.held
        },
        gpu_nodes=sum(node.labels.get(PRESENT_LABEL) == "true" for node in nodes),
        has_features=observation.feature_labels,
        decides=pools.cluster is not None and not rendering.cluster_operands_held,
        runtime_classes=runtime_classes(pools.cluster),
        lacks_monitors=bool(monitors),
        without_next_driver=len(problems),
        claims_end=ends,
    )


def _observe(snapshot: ClusterSnapshot, pools: Pools) -> Observation:
    has_plugin = operands_of(pools.cluster).device_plugin
    return Observation(
        daemon_sets={
            each.metadata.name: _observe_daemon_set(each) for each in snapshot.daemon_sets
        },
        nodes={
            node.metadata.name: _observe_node(node, has_plugin=has_plugin)
            for node in snapshot.nodes
            if node.metadata.name in pools.owners
        },
        pod_problems=snapshot.pod_problems,
        refused=snapshot.refused,
        artefacts=_artefacts(snapshot),
        rollouts={
            each.metadata.name: observed
            for each in snapshot.rollouts
            if (observed := each.observed) is not None
        },
        feature_labels=any(
            key.startswith(_FEATURES) for node in snapshot.nodes for key in node.metadata.labels
        ),
    )


def _artefacts(snapshot: ClusterSnapshot) -> Artefacts:
    """Return what the ConfigMap says of the artefacts of host drivers."""
    texts = snapshot.config_texts.get(CONFIG_MAP)
    return NO_ARTEFACTS if texts is None else parse_artefacts(texts)


def _observe_daemon_set(daemon_set: DaemonSet) -> ObservedDaemonSet:
    status = daemon_set.status
    return ObservedDaemonSet(
        generation=daemon_set.metadata.generation,
        observed_generation=status.observed_generation,
        desired=status.desired_number_scheduled,
        updated=status.updated_number_scheduled,
        available=status.number_available,
    )


def _observe_node(node: Node, *, has_plugin: bool) -> ObservedNode:
    labels = node.metadata.labels
    # A person may leave the device plugin out on a node, by a value of the label's own.
    is_wanted = has_plugin and labels.get(DEPLOY_OPERANDS) != "false"
    is_wanted = is_wanted and labels.get(DEPLOY_PLUGIN) in (None, "", "true")
    state = labels.get(STATE_LABEL, "")
    return ObservedNode(
        state=state,
        label=labels.get(DRIVER_LABEL, ""),
        cause=_failure_cause(node.record) if state == UpgradeState.UPGRADE_FAILED else "",
        skipped=labels.get(SKIP_LABEL) == "true",
        lacks_gpus=is_wanted and not node.offers_gpus,
    )


def _failure_cause(record: str) -> str:
    if not record:
        return ""
    try:
        return decode(NodeRecord, record.encode()).cause
    except MalformedMessage as error:
        return f"the node record is malformed: {error}"


FOREIGN_OPERANDS: Final = "ForeignOperands"


def foreign_operands_condition(daemon_sets: Collection[str]) -> StatusCondition | None:
    """Name the DaemonSets that a GPU Operator left."""
    if not daemon_sets:
        return None
    message = (
        "these DaemonSets of a GPU Operator run beside Sluice's own, which does not change them:"
        f" {', '.join(sorted(daemon_sets))}: delete them"
    )
    return StatusCondition(
        type=FOREIGN_OPERANDS, status=True, reason="NotCreatedBySluice", message=message
    )


MISSING_DEFINITION: Final = "MissingDefinition"
OF_CLUSTER: Final = (FOREIGN_OPERANDS, MISSING_DEFINITION, PLUGIN_CONFIG, CLAIMS_REMAIN)
"""The conditions about the cluster's objects and kinds."""


def missing_definition_condition() -> StatusCondition:
    """Say that a ServiceMonitor cannot be created."""
    message = (
        "spec.dcgmExporter.serviceMonitor is enabled, but this cluster does not have the"
        f" CustomResourceDefinition servicemonitors.{MONITOR_GROUP}, so Prometheus is not told to"
        " scrape the telemetry agents: install the Prometheus Operator or its definitions, or set"
        " enabled to false"
    )
    return StatusCondition(
        type=MISSING_DEFINITION, status=True, reason="NotInstalled", message=message
    )


def _is_of_cluster(status: PolicyStatus, pools: Pools) -> bool:
    """Report whether the status is that of the cluster-wide policy."""
    if pools.cluster is None or status.kind not in (CLUSTER_POLICY.name, GPU_CLUSTER_POLICY.name):
        return False
    metadata = pools.cluster.metadata
    return (status.name, status.uid) == (metadata.name, metadata.uid)


_TRANSIENT: Final = frozenset(("ContainerCreating", "PodInitializing", ""))
"""Reasons to wait that end by themselves."""


def find_pod_problems(daemon_set: str, uid: str, pods: Iterable[Pod]) -> Iterator[PodProblem]:
    """Yield the problems of pods that the DaemonSet with this uid owns."""
    for pod in pods:
        owned = any(owner.uid == uid for owner in pod.metadata.owner_references)
        cause = _pod_cause(pod) if owned and not pod.metadata.deletion_timestamp else ""
        if cause:
            yield PodProblem(daemon_set=daemon_set, node=pod.spec.node_name, cause=cause)


def _pod_cause(pod: Pod) -> str:
    status = pod.status
    for container in (*status.init_container_statuses, *status.container_statuses):
        if cause := _waiting_cause(container):
            return f"{container.name}: {cause}"
    for condition in status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message or condition.reason
    if status.phase == "Failed":
        return status.reason or "the pod failed"
    return ""


def _waiting_cause(container: ContainerStatus) -> str:
    waiting = container.state.waiting
    if waiting is None or waiting.reason in _TRANSIENT:
        return ""
    return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
