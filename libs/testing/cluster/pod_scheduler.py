"""A scheduler: binds each pod to a node where it fits (`pod_fit` decides)."""

from typing import Any

from libs.kube.client import Kube
from libs.kube.errors import NotFound
from libs.kube.views import format_time
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.daemonsets.plan import target_node
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.patches import patch_status
from libs.testing.cluster.pod_fit import Unschedulable, find_node
from libs.testing.cluster.views import PODS, Node, Pod

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
        """By uid: node and pod of bindings that the cache does not show yet."""
        self._loop = ControllerLoop("binder", self._reconcile, clock=clock, workers=1)
        self._unschedulable: dict[str, None] = {}
        """Keys, in order."""

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
