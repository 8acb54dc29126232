"""The scheduler: chooses a node by selector, taints, cordon and devices, and binds the pod."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from libs.kube.client import Kube
from libs.kube.errors import NotFound
from libs.kube.views import Taint, format_time
from libs.runtime.clock import Clock
from libs.testing.apiserver.objects.selectors import node_affinity
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.patches import Plain, patch_status
from libs.testing.cluster.views import PODS, Node, Pod, PodSpec, Toleration

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
PID_PRESSURE = "node.kubernetes.io/pid-pressure"
NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
"""The key of the required terms of a node affinity."""

CORDON = Taint(key=UNSCHEDULABLE, effect=NO_SCHEDULE)
"""The taint of a cordon, counted even before it is written."""


class Unschedulable(msgspec.Struct, frozen=True):
    """The reason why a pod fits on no node, in the words of a real scheduler."""

    message: str


def selects(spec: PodSpec, node: Node) -> bool:
    """Return whether a pod's node selector and required affinity match the node."""
    if not spec.node_selector and not spec.affinity:
        return True
    return node_affinity(
        {"nodeSelector": spec.node_selector, "affinity": spec.affinity},
        {"metadata": {"name": node.metadata.name, "labels": node.metadata.labels}},
    )


def target_node(pod: Pod) -> str:
    """Return the node that a pod is bound to, or pinned to by its affinity."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity: Plain = pod.spec.affinity.get("nodeAffinity") or {}
    required: Plain = affinity.get(REQUIRED) or {}
    terms: list[Plain] = required.get("nodeSelectorTerms") or []
    for term in terms:
        fields: list[Plain] = term.get("matchFields") or []
        for field in fields:
            if field["key"] == "metadata.name":
                return str(field["values"][0])
    return ""


def devices(spec: PodSpec) -> dict[str, int]:
    """Return how many devices of each extended resource a pod needs."""
    needs: dict[str, int] = {}
    for container in spec.containers:
        resources = {**container.resources.limits, **container.resources.requests}
        for name, amount in resources.items():
            if "/" in name:
                needs[name] = needs.get(name, 0) + int(amount)
    return needs


def devices_left(node: Node, pods: Iterable[Pod]) -> dict[str, int]:
    """Return the allocatable devices of a node that none of these pods on it uses."""
    free = {name: int(count) for name, count in node.status.allocatable.items() if "/" in name}
    for pod in pods:
        for name, count in devices(pod.spec).items():
            free[name] = free.get(name, 0) - count
    return free


def find_node(
    pod: Pod, candidates: Iterable[Node], pods_on: Callable[[str], Iterable[Pod]], *, total: int
) -> str | Unschedulable:
    """Choose the candidate with the most devices left; then with the fewest pods; then by name."""
    needs = devices(pod.spec)
    refusals: dict[str, int] = {}
    lowest: tuple[int, int, str] | None = None
    for node in candidates:
        name = node.metadata.name
        refusal = _refusal(pod.spec, node)
        present = [each for each in pods_on(name) if not each.over]
        free = devices_left(node, present)
        missing = next((key for key, count in needs.items() if free.get(key, 0) < count), "")
        refusal = refusal or (f"Insufficient {missing}" if missing else "")
        if refusal:
            refusals[refusal] = refusals.get(refusal, 0) + 1
        else:
            rank = (-sum(free.get(key, 0) for key in needs), len(present), name)
            lowest = rank if lowest is None else min(lowest, rank)
    if lowest is not None:
        return lowest[2]
    others = total - sum(refusals.values())
    if others:
        refusals["node(s) that it is not meant for"] = others
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(refusals.items()))
    return Unschedulable(f"0/{total} nodes are available: {reasons or 'there are none'}.")


def _refusal(spec: PodSpec, node: Node) -> str:
    if not selects(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    if node.spec.unschedulable and untolerated([CORDON], spec.tolerations, effects=[NO_SCHEDULE]):
        return "node(s) were unschedulable"
    taint = untolerated(node.spec.taints, spec.tolerations, effects=(NO_SCHEDULE, NO_EXECUTE))
    if taint is not None:
        return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    return ""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or (
        toleration.key != "" and toleration.value == taint.value
    )


def untolerated(
    taints: Iterable[Taint], tolerations: Sequence[Toleration], *, effects: Sequence[str]
) -> Taint | None:
    """Return the first taint of these effects that no toleration matches."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def tolerated_seconds(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> float | None:
    """Return how long a pod tolerates the NoExecute taints; None means forever."""
    shortest: float | None = None
    for taint in taints:
        if taint.effect != NO_EXECUTE:
            continue
        matching = [each for each in tolerations if tolerates(each, taint)]
        if not matching:
            return 0.0
        limits = [each.toleration_seconds for each in matching]
        for limit in limits:
            if limit is not None and (shortest is None or limit < shortest):
                shortest = max(0.0, float(limit))
    return shortest


USER = "system:kube-scheduler"
MANAGER = "kube-scheduler"

BIND_SECONDS = 0.1
"""Seconds from a pod's creation to its binding."""

RETRY_AFTER = 300.0
"""Seconds after which an unschedulable pod is tried again even if nothing has changed."""


class PodScheduler:
    """Binds one pod at a time, so that each decision counts the bindings before it."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._informers = informers
        self._kube = kube
        self._clock = clock
        self._assumed: dict[str, tuple[str, Pod]] = {}
        """Node and pod of bindings that the cache does not show yet, by uid."""
        self._loop = ControllerLoop("binder", self._reconcile, clock=clock, workers=1)
        self._unschedulable: dict[str, None] = {}
        """Keys of unschedulable pods, in order."""

    async def run(self) -> None:
        await self._loop.run(
            (self._informers.pods, self._pod_changed),
            (self._informers.nodes, self._node_changed),
        )

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if after is not None and _is_pending(after):
            if before is None or before.metadata.uid != after.metadata.uid:
                self._loop.queue.add_after(after.metadata.key, BIND_SECONDS)
            return
        changed = after or before
        if changed is None:
            return
        self._assumed.pop(changed.metadata.uid, None)
        self._unschedulable.pop(changed.metadata.key, None)
        if after is None or after.over:
            self._retry_unschedulable()

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if after is not None and (before is None or _may_fit_more(before, after)):
            self._retry_unschedulable()

    def _retry_unschedulable(self) -> None:
        for key in self._unschedulable:
            self._loop.queue.add_after(key, BIND_SECONDS)

    async def _reconcile(self, key: str) -> float | None:
        pod = self._informers.pods.get(key)
        if pod is None or not _is_pending(pod) or pod.metadata.uid in self._assumed:
            self._unschedulable.pop(key, None)
            return None
        node = self._choose_node(pod)
        if isinstance(node, Unschedulable):
            self._unschedulable[key] = None
            await self._write_unschedulable(pod, node.message)
            return RETRY_AFTER
        # Before the request: the watch may show the binding before the answer arrives.
        self._assumed[pod.metadata.uid] = (node, pod)
        try:
            await self._bind(pod, node)
        except NotFound:
            self._assumed.pop(pod.metadata.uid, None)
        except BaseException:
            self._assumed.pop(pod.metadata.uid, None)
            raise
        self._unschedulable.pop(key, None)
        return None

    def _choose_node(self, pod: Pod) -> str | Unschedulable:
        nodes = self._informers.nodes
        required = target_node(pod)
        found = nodes.get(required)
        candidates = ([] if found is None else [found]) if required else nodes

        def pods_on(name: str) -> list[Pod]:
            assumed = [pod for node, pod in self._assumed.values() if node == name]
            return [*self._informers.pods.by_index("node", name), *assumed]

        return find_node(pod, candidates, pods_on, total=len(nodes))

    async def _bind(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = PODS.path(namespace=meta.namespace, name=meta.name, subresource="binding")
        query = {"fieldManager": self._kube.manager}
        await self._kube.request("POST", path, query=query, body=binding)

    async def _write_unschedulable(self, pod: Pod, message: str) -> None:
        before = pod.condition("PodScheduled")
        if before is not None and before.status == "False" and before.message == message:
            return
        condition: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "observedGeneration": pod.metadata.generation,
            "lastProbeTime": None,
            "lastTransitionTime": before.last_transition_time
            if before is not None and before.status == "False"
            else format_time(self._clock.now()),
        }
        await patch_status(self._kube, PODS, pod, {"conditions": [condition]})


def _is_pending(pod: Pod) -> bool:
    ours = pod.spec.scheduler_name == "default-scheduler"
    return ours and not pod.spec.node_name and not pod.deleting and not pod.over


def _may_fit_more(before: Node, after: Node) -> bool:
    return (
        (before.spec.unschedulable and not after.spec.unschedulable)
        or before.metadata.labels != after.metadata.labels
        or before.status.allocatable != after.status.allocatable
        or any(taint not in after.spec.taints for taint in before.spec.taints)
    )
