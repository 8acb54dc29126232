"""Who must leave a node: pods that do not bear its taints, and pods of nodes that are gone.

Each is deleted by uid, so that what comes after it under the same name is not touched.
"""

from collections.abc import Iterator
from contextlib import ExitStack

from libs.kube.client import Kube
from libs.kube.errors import Conflict, KubeError, NotFound
from libs.kube.times import format_time
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.patches import patch_status
from libs.testing.cluster.taints import tolerated_seconds
from libs.testing.cluster.views import NODES, PODS, Node, Pod

EVICTION_USER = "system:serviceaccount:kube-system:node-controller"
COLLECTOR_USER = "system:serviceaccount:kube-system:pod-garbage-collector"

COLLECTS_EVERY = 20.0
GONE_FOR = 40.0
"""Seconds that a node must have been gone before its pods are."""


class TaintEvictionController:
    """Deletes pods when they have borne their node's NoExecute taints as long as they may."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._seen = informers
        self._kube = kube
        self._clock = clock
        self._since: dict[str, float] = {}
        """By pod uid: when a taint that it does not bear for ever was first seen."""
        self._work = ControllerLoop("taint-eviction", self._judge, clock=clock)

    async def run(self) -> None:
        """Until it is cancelled."""
        with ExitStack() as stack:
            stack.callback(self._seen.nodes.on_change(self._node_changed))
            stack.callback(self._seen.pods.on_change(self._pod_changed))
            for pod in self._seen.pods:
                self._pod_changed(None, pod)
            await self._work.run()

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if after is None or (before is not None and before.spec.taints == after.spec.taints):
            return
        for pod in self._seen.pods.by_index("node", after.metadata.name):
            self._pod_changed(None, pod)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if after is None:
            if before is not None:
                self._since.pop(before.metadata.uid, None)
        elif before is None or before.spec.node_name != after.spec.node_name:
            node = self._seen.nodes.get(after.spec.node_name)
            if node is not None and (node.spec.taints or after.metadata.uid in self._since):
                self._work.queue.add(after.metadata.key)

    async def _judge(self, key: str) -> float | None:
        pod = self._seen.pods.get(key)
        node = self._seen.nodes.get(pod.spec.node_name) if pod is not None else None
        if pod is None or node is None or pod.deleting:
            return None
        uid = pod.metadata.uid
        bears = tolerated_seconds(node.spec.taints, pod.spec.tolerations)
        if bears is None:
            self._since.pop(uid, None)
            return None
        now = self._clock.monotonic()
        left = self._since.setdefault(uid, now) + bears - now
        if left > 0:
            return left
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": format_time(self._clock.now()),
        }
        try:
            await patch_status(self._kube, PODS, pod, {"conditions": [condition]})
            await _delete(self._kube, pod)
        except (NotFound, Conflict):
            return None
        return None


class PodGarbageCollector:
    """Deletes pods that are bound to nodes which have been gone for a while."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._seen = informers
        self._kube = kube
        self._clock = clock
        self._gone_since: dict[str, float] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._clock.sleep(COLLECTS_EVERY)
            now = self._clock.monotonic()
            missing = {name: self._gone_since.get(name, now) for name in self._missing()}
            self._gone_since = missing
            for name, since in missing.items():
                if now - since >= GONE_FOR and await self._is_gone(name):
                    await self._collect(name)

    def _missing(self) -> Iterator[str]:
        named = dict.fromkeys(pod.spec.node_name for pod in self._seen.pods)
        for name in named:
            if name and self._seen.nodes.get(name) is None:
                yield name

    async def _is_gone(self, name: str) -> bool:
        """What the cache does not know may be there all the same."""
        try:
            await self._kube.get(NODES, name)
        except NotFound:
            return True
        except KubeError:
            return False
        return False

    async def _collect(self, node: str) -> None:
        for pod in list(self._seen.pods.by_index("node", node)):
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
                "lastTransitionTime": format_time(self._clock.now()),
            }
            status: dict[str, object] = {"conditions": [condition]}
            if not pod.over:
                status["phase"] = "Failed"
            try:
                await patch_status(self._kube, PODS, pod, status)
                await _delete(self._kube, pod, grace=0)
            except KubeError:
                continue  # it is there at the next round, or gone


async def _delete(kube: Kube, pod: Pod, *, grace: int | None = None) -> None:
    meta = pod.metadata
    await kube.delete(PODS, meta.name, uid=meta.uid, namespace=meta.namespace, grace=grace)
