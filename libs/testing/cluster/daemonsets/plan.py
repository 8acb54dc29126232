"""On which nodes a DaemonSet's pods belong, and which pods to create and delete there. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from libs.testing.cluster.pod_fit import selects
from libs.testing.cluster.taints import (
    DISK_PRESSURE,
    MEMORY_PRESSURE,
    NETWORK_UNAVAILABLE,
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY,
    PID_PRESSURE,
    UNREACHABLE,
    UNSCHEDULABLE,
    untolerated,
)
from libs.testing.cluster.templates import Plain, owned_by, pod_of
from libs.testing.cluster.views import DaemonSet, Node, Pod, PodSpec, Template, Toleration

HASH_LABEL = "controller-revision-hash"
GENERATION_LABEL = "pod-template-generation"
GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"

_BORNE = (
    (NOT_READY, NO_EXECUTE),
    (UNREACHABLE, NO_EXECUTE),
    (DISK_PRESSURE, NO_SCHEDULE),
    (MEMORY_PRESSURE, NO_SCHEDULE),
    (PID_PRESSURE, NO_SCHEDULE),
    (UNSCHEDULABLE, NO_SCHEDULE),
)
"""What every pod of every DaemonSet bears."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

PodsByNode = Mapping[str, Sequence[Pod]]


class NodeEligibility(msgspec.Struct, frozen=True):
    """What a DaemonSet wants of a node."""

    should_run: bool
    """A pod should be there."""
    should_continue: bool
    """A pod that is there may stay."""


class DaemonPodPlan(msgspec.Struct, frozen=True):
    """What to do now."""

    create: tuple[str, ...]
    """Names of nodes."""
    delete: tuple[Pod, ...]
    failed: tuple[Pod, ...] = ()
    """Of those to delete, the ones that failed by themselves: not again and again at full speed."""


class DaemonTemplate:
    """A DaemonSet's template, read once for all nodes."""

    def __init__(self, daemon_set: DaemonSet) -> None:
        template = msgspec.convert(daemon_set.spec.template, Template)
        self.spec: PodSpec = template.spec
        self._tolerations = (*self.spec.tolerations, *_borne(self.spec))

    def eligibility(self, node: Node) -> NodeEligibility:
        """What it wants there."""
        if self.spec.node_name not in ("", node.metadata.name) or not selects(self.spec, node):
            return NodeEligibility(should_run=False, should_continue=False)
        bad = (NO_SCHEDULE, NO_EXECUTE)
        taints = node.spec.taints
        runs = untolerated(taints, self._tolerations, effects=bad) is None
        stays = runs or untolerated(taints, self._tolerations, effects=(NO_EXECUTE,)) is None
        return NodeEligibility(should_run=runs, should_continue=stays)


def _borne(spec: PodSpec) -> tuple[Toleration, ...]:
    borne = [*_BORNE, (NETWORK_UNAVAILABLE, NO_SCHEDULE)] if spec.host_network else _BORNE
    return tuple(Toleration(key=key, operator="Exists", effect=effect) for key, effect in borne)


def by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Also those that the scheduler has not bound yet, by the node that they are for."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        found.setdefault(target_node(pod), []).append(pod)
    return found


def target_node(pod: Pod) -> str:
    """The node a pod is on, or is meant for."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity: Plain = pod.spec.affinity.get("nodeAffinity") or {}
    required: Plain = affinity.get(_REQUIRED) or {}
    terms: list[Plain] = required.get("nodeSelectorTerms") or []
    for term in terms:
        fields: list[Plain] = term.get("matchFields") or []
        for field in fields:
            if field["key"] == "metadata.name":
                return str(field["values"][0])
    return ""


def plan_pods(wanted: DaemonTemplate, nodes: Mapping[str, Node], pods: PodsByNode) -> DaemonPodPlan:
    """One live pod where there should be one; a pod that is on its way out is waited for."""
    create: list[str] = []
    delete: list[Pod] = []
    failed: list[Pod] = []
    for name, node in nodes.items():
        wish = wanted.eligibility(node)
        here = pods.get(name, ())
        live = [pod for pod in here if not pod.deleting]
        if wish.should_run and not here:
            create.append(name)
        elif wish.should_continue:
            failed += [pod for pod in live if pod.status.phase == "Failed"]
            delete += [pod for pod in live if pod.status.phase == "Succeeded"]
            delete += sorted((pod for pod in live if not pod.over), key=sort_key)[1:]
        else:
            delete += live
    for name, here in pods.items():
        if name not in nodes:
            delete += [pod for pod in here if not pod.deleting and pod.spec.node_name]
    return DaemonPodPlan(tuple(create), tuple(delete), tuple(failed))


def sort_key(pod: Pod) -> tuple[bool, str, str]:
    """Bound ones first, then older ones, then by name."""
    return (not pod.spec.node_name, pod.metadata.creation_timestamp, pod.metadata.name)


def pod_for(daemon_set: DaemonSet, node: str, *, revision: str) -> Plain:
    """The pod to create for a node, meant for it by an affinity to its name."""
    meta = daemon_set.metadata
    labels = {HASH_LABEL: revision}
    generation = meta.annotations.get(GENERATION_ANNOTATION)
    if generation:
        labels[GENERATION_LABEL] = generation
    owner = owned_by("DaemonSet", meta)
    pod = pod_of(daemon_set.spec.template, meta, owner=owner, labels=labels)
    spec: Plain = pod["spec"]
    borne = _borne(DaemonTemplate(daemon_set).spec)
    spec["affinity"] = _only(spec.get("affinity") or {}, node)
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *map(_plain, borne)]
    return pod


def _plain(toleration: Toleration) -> dict[str, str]:
    return {"key": toleration.key, "operator": "Exists", "effect": toleration.effect}


def _only(affinity: Mapping[str, Any], node: str) -> dict[str, Any]:
    """The same affinity, but this node alone is required."""
    by_name = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [by_name]}]}
    of_nodes: Mapping[str, Any] = affinity.get("nodeAffinity") or {}
    return {
        **affinity,
        "nodeAffinity": {
            **of_nodes,
            _REQUIRED: required,
        },
    }
