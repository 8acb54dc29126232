"""The plan for a DaemonSet: pods to create, delete and replace, and its status. Pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from libs.kube.views import parse_time
from libs.testing.cluster.patches import Plain, labels_of, owned_by, pod_of
from libs.testing.cluster.pod_scheduler import (
    DISK_PRESSURE,
    MEMORY_PRESSURE,
    NETWORK_UNAVAILABLE,
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY,
    PID_PRESSURE,
    REQUIRED,
    UNREACHABLE,
    UNSCHEDULABLE,
    selects,
    target_node,
    untolerated,
)
from libs.testing.cluster.views import (
    ControllerRevision,
    DaemonSet,
    DaemonSetStatus,
    Node,
    Pod,
    PodSpec,
    Template,
    Toleration,
)

HASH_LABEL = "controller-revision-hash"
GENERATION_LABEL = "pod-template-generation"
GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"

_TOLERATED = (
    (NOT_READY, NO_EXECUTE),
    (UNREACHABLE, NO_EXECUTE),
    (DISK_PRESSURE, NO_SCHEDULE),
    (MEMORY_PRESSURE, NO_SCHEDULE),
    (PID_PRESSURE, NO_SCHEDULE),
    (UNSCHEDULABLE, NO_SCHEDULE),
)
"""Taints that every DaemonSet pod tolerates, with their effects."""

PodsByNode = Mapping[str, Sequence[Pod]]


class NodeEligibility(msgspec.Struct, frozen=True):
    should_run: bool
    """A pod should be created here."""
    should_continue: bool
    """An existing pod may stay."""


class DaemonPodPlan(msgspec.Struct, frozen=True):
    create: tuple[str, ...]
    """Names of nodes."""
    delete: tuple[Pod, ...]
    failed: tuple[Pod, ...] = ()
    """Pods to delete that failed by themselves, so with back-off."""


class DaemonTemplate:
    """A DaemonSet's template, decoded once for all nodes."""

    def __init__(self, daemon_set: DaemonSet) -> None:
        template = msgspec.convert(daemon_set.spec.template, Template)
        self.spec: PodSpec = template.spec
        self._tolerations = (*self.spec.tolerations, *_default_tolerations(self.spec))

    def eligibility(self, node: Node) -> NodeEligibility:
        if self.spec.node_name not in ("", node.metadata.name) or not selects(self.spec, node):
            return NodeEligibility(should_run=False, should_continue=False)
        effects = (NO_SCHEDULE, NO_EXECUTE)
        taints = node.spec.taints
        runs = untolerated(taints, self._tolerations, effects=effects) is None
        stays = runs or untolerated(taints, self._tolerations, effects=(NO_EXECUTE,)) is None
        return NodeEligibility(should_run=runs, should_continue=stays)


def _default_tolerations(spec: PodSpec) -> tuple[Toleration, ...]:
    tolerated = (
        [*_TOLERATED, (NETWORK_UNAVAILABLE, NO_SCHEDULE)] if spec.host_network else _TOLERATED
    )
    return tuple(Toleration(key=key, operator="Exists", effect=effect) for key, effect in tolerated)


def by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Group pods by the node that each is bound to, or pinned to by its affinity."""
    pods_by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        pods_by_node.setdefault(target_node(pod), []).append(pod)
    return pods_by_node


def plan_pods(
    template: DaemonTemplate, nodes: Mapping[str, Node], pods: PodsByNode
) -> DaemonPodPlan:
    """Plan one live pod per eligible node; a terminating pod is awaited before it is replaced."""
    create: list[str] = []
    delete: list[Pod] = []
    failed: list[Pod] = []
    for name, node in nodes.items():
        eligibility = template.eligibility(node)
        present = pods.get(name, ())
        live = [pod for pod in present if not pod.deleting]
        if eligibility.should_run and not present:
            create.append(name)
        elif eligibility.should_continue:
            failed += [pod for pod in live if pod.status.phase == "Failed"]
            delete += [pod for pod in live if pod.status.phase == "Succeeded"]
            delete += sorted((pod for pod in live if not pod.over), key=sort_key)[1:]
        else:
            delete += live
    for name, present in pods.items():
        if name not in nodes:
            delete += [pod for pod in present if not pod.deleting and pod.spec.node_name]
    return DaemonPodPlan(tuple(create), tuple(delete), tuple(failed))


def sort_key(pod: Pod) -> tuple[bool, str, str]:
    """Bound pods first, then older ones, then by name."""
    return (not pod.spec.node_name, pod.metadata.creation_timestamp, pod.metadata.name)


def pod_for(daemon_set: DaemonSet, node: str, *, revision: str) -> Plain:
    """Return the pod to create for a node, tied to the node by an affinity to its name."""
    meta = daemon_set.metadata
    labels = {HASH_LABEL: revision}
    generation = meta.annotations.get(GENERATION_ANNOTATION)
    if generation:
        labels[GENERATION_LABEL] = generation
    owner = owned_by("DaemonSet", meta)
    pod = pod_of(daemon_set.spec.template, meta, owner=owner, labels=labels)
    spec: Plain = pod["spec"]
    tolerated = _default_tolerations(DaemonTemplate(daemon_set).spec)
    spec["affinity"] = _pinned_to(spec.get("affinity") or {}, node)
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *map(_as_json, tolerated)]
    return pod


def _as_json(toleration: Toleration) -> dict[str, str]:
    return {"key": toleration.key, "operator": "Exists", "effect": toleration.effect}


def _pinned_to(affinity: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return the affinity, which now requires this node."""
    by_name = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [by_name]}]}
    node_affinity: Mapping[str, Any] = affinity.get("nodeAffinity") or {}
    return {
        **affinity,
        "nodeAffinity": {
            **node_affinity,
            REQUIRED: required,
        },
    }


def resolve_percentage(value: int | str, total: int) -> int:
    """Return a number, or a percentage of the total rounded up."""
    if isinstance(value, int):
        return value
    return -(-int(value.removesuffix("%")) * total // 100)


def available(pod: Pod, *, min_ready: int, now: float) -> bool:
    """Whether the pod has been ready for at least `min_ready` seconds."""
    condition = pod.condition("Ready")
    if condition is None or condition.status != "True":
        return False
    since = condition.last_transition_time
    return not min_ready or bool(since and parse_time(since) + min_ready <= now)


def replaceable(
    daemon_set: DaemonSet,
    nodes: Mapping[str, Node],
    pods: PodsByNode,
    *,
    revision: str,
    now: float,
) -> list[Pod]:
    """Return outdated pods to delete: broken ones, and as many others as maxUnavailable leaves."""
    spec = daemon_set.spec
    template = DaemonTemplate(daemon_set)
    desired = sum(template.eligibility(node).should_run for node in nodes.values())
    limit = resolve_percentage(spec.update_strategy.rolling_update.max_unavailable, desired)
    unavailable = 0
    broken: list[Pod] = []
    candidates: list[Pod] = []
    for name, node in nodes.items():
        present = pods.get(name, ())
        if not present and not template.eligibility(node).should_run:
            continue
        new, old = _split(present, revision)
        if len(new) > 1 or len(old) > 1 or bool(new) == bool(old):
            unavailable += 1
        elif new:
            unavailable += not available(new[0], min_ready=spec.min_ready_seconds, now=now)
        elif available(old[0], min_ready=spec.min_ready_seconds, now=now):
            candidates.append(old[0])
        else:
            broken.append(old[0])
    return [*broken, *candidates[: max(0, limit - unavailable)]]


def _split(pods: Sequence[Pod], revision: str) -> tuple[list[Pod], list[Pod]]:
    live = [pod for pod in pods if not pod.deleting]
    new = [pod for pod in live if pod.metadata.labels.get(HASH_LABEL) == revision]
    old = [pod for pod in live if pod.metadata.labels.get(HASH_LABEL) != revision]
    return new, old


def status(
    daemon_set: DaemonSet,
    nodes: Mapping[str, Node],
    pods: PodsByNode,
    *,
    revision: str,
    now: float,
) -> DaemonSetStatus:
    template = DaemonTemplate(daemon_set)
    desired = current = misscheduled = ready = updated = available_count = 0
    for name, node in nodes.items():
        present = sorted(pods.get(name, ()), key=sort_key)
        if not template.eligibility(node).should_run:
            misscheduled += bool(present)
            continue
        desired += 1
        if not present:
            continue
        pod = present[0]
        current += 1
        ready += pod.ready
        available_count += available(pod, min_ready=daemon_set.spec.min_ready_seconds, now=now)
        updated += pod.metadata.labels.get(HASH_LABEL) == revision
    return DaemonSetStatus(
        observed_generation=daemon_set.metadata.generation,
        desired_number_scheduled=desired,
        current_number_scheduled=current,
        number_misscheduled=misscheduled,
        number_ready=ready,
        updated_number_scheduled=updated,
        number_available=available_count,
        number_unavailable=desired - available_count,
    )


_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""Letters and digits that form no words."""


class MissingRevision(msgspec.Struct, frozen=True):
    """No revision has the current template: create this one."""

    wanted: dict[str, Any]
    hash: str


class OutdatedRevision(msgspec.Struct, frozen=True):
    """The template's revision is not the newest (a rollback): renumber it."""

    revision: ControllerRevision
    number: int


class CurrentRevision(msgspec.Struct, frozen=True):
    revision: ControllerRevision


RevisionState = MissingRevision | OutdatedRevision | CurrentRevision


def template_hash(template: Mapping[str, Any]) -> str:
    """Return ten characters, equal for equal templates, valid in names and labels."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_SAFE[byte % len(_SAFE)] for byte in digest[:10])


def find_revision(daemon_set: DaemonSet, history: Sequence[ControllerRevision]) -> RevisionState:
    """Find the revision of the current template."""
    data = _revision_data(daemon_set)
    newest = max((each.revision for each in history), default=0)
    same = [each for each in history if each.data == data]
    if not same:
        return _missing_revision(daemon_set, number=newest + 1)
    current = max(same, key=lambda each: each.revision)
    if current.revision < newest:
        return OutdatedRevision(current, newest + 1)
    return CurrentRevision(current)


def hash_of(revision: ControllerRevision) -> str:
    return revision.metadata.labels.get(HASH_LABEL, "")


def forgettable(
    daemon_set: DaemonSet,
    history: Sequence[ControllerRevision],
    pods: Sequence[Pod],
    *,
    current: str,
) -> list[ControllerRevision]:
    """Return the oldest revisions beyond the history limit that no pod uses."""
    live = {pod.metadata.labels.get(HASH_LABEL, "") for pod in pods} | {current}
    old = [each for each in history if hash_of(each) not in live]
    excess = len(old) - daemon_set.spec.revision_history_limit
    return sorted(old, key=lambda each: each.revision)[: max(0, excess)]


def _revision_data(daemon_set: DaemonSet) -> dict[str, Any]:
    return {"spec": {"template": {**daemon_set.spec.template, "$patch": "replace"}}}


def _missing_revision(daemon_set: DaemonSet, *, number: int) -> MissingRevision:
    meta = daemon_set.metadata
    template = daemon_set.spec.template
    found = template_hash(template)
    wanted: Plain = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{meta.name}-{found}",
            "namespace": meta.namespace,
            "labels": {**labels_of(template), HASH_LABEL: found},
            "annotations": meta.annotations,
            "ownerReferences": [owned_by("DaemonSet", meta)],
        },
        "data": _revision_data(daemon_set),
        "revision": number,
    }
    return MissingRevision(wanted, found)
