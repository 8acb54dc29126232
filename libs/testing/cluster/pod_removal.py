"""Delete pods that do not tolerate their node's taints, and pods of nodes that are gone.

Each is deleted by uid, so that a new pod of the same name is not touched.
"""

from libs.kube.client import Kube
from libs.kube.errors import Conflict, KubeError, NotFound
from libs.kube.views import format_time
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.patches import patch_status
from libs.testing.cluster.pod_scheduler import tolerated_seconds
from libs.testing.cluster.views import NODES, PODS, Node, Pod

EVICTION_USER = "system:serviceaccount:kube-system:node-controller"
COLLECTOR_USER = "system:serviceaccount:kube-system:pod-garbage-collector"

COLLECTS_EVERY = 20.0
GONE_FOR = 40.0
"""Seconds that a node must have been gone before its pods are deleted."""


class TaintEvictionController:
    """Deletes pods when their toleration of a NoExecute taint of the node has expired."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._informers = informers
        self._kube = kube
        self._clock = clock
        self._since: dict[str, float] = {}
        """By pod uid: when a taint that the pod does not tolerate forever was first seen."""
        self._loop = ControllerLoop("taint-eviction", self._reconcile, clock=clock)

    async def run(self) -> None:
        await self._loop.run(
            (self._informers.pods, self._pod_changed), (self._informers.nodes, self._node_changed)
        )

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if after is None or (before is not None and before.spec.taints == after.spec.taints):
            return
        for pod in self._informers.pods.by_index("node", after.metadata.name):
            self._pod_changed(None, pod)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if after is None:
            if before is not None:
                self._since.pop(before.metadata.uid, None)
        elif before is None or before.spec.node_name != after.spec.node_name:
            node = self._informers.nodes.get(after.spec.node_name)
            if node is not None and (node.spec.taints or after.metadata.uid in self._since):
                self._loop.queue.add(after.metadata.key)

    async def _reconcile(self, key: str) -> float | None:
        pod = self._informers.pods.get(key)
        node = self._informers.nodes.get(pod.spec.node_name) if pod is not None else None
        if pod is None or node is None or pod.deleting:
            return None
        uid = pod.metadata.uid
        tolerated = tolerated_seconds(node.spec.taints, pod.spec.tolerations)
        if tolerated is None:
            self._since.pop(uid, None)
            return None
        now = self._clock.monotonic()
        remaining = self._since.setdefault(uid, now) + tolerated - now
        if remaining > 0:
            return remaining
        reason = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
        status = {"conditions": [_disruption_condition(*reason, now=self._clock.now())]}
        try:
            await patch_status(self._kube, PODS, pod, status)
            await _delete(self._kube, pod)
        except (NotFound, Conflict):
            return None
        return None


class PodGarbageCollector:
    """Deletes pods that are bound to nodes which have been gone for a while."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._informers = informers
        self._kube = kube
        self._clock = clock
        self._gone_since: dict[str, float] = {}

    async def run(self) -> None:
        while True:
            await self._clock.sleep(COLLECTS_EVERY)
            now = self._clock.monotonic()
            names = dict.fromkeys(pod.spec.node_name for pod in self._informers.pods)
            self._gone_since = {
                name: self._gone_since.get(name, now)
                for name in names
                if name and self._informers.nodes.get(name) is None
            }
            for name, since in self._gone_since.items():
                if now - since >= GONE_FOR and await self._is_gone(name):
                    await self._collect(name)

    async def _is_gone(self, name: str) -> bool:
        """Ask the server: the cache may lag behind."""
        try:
            await self._kube.get(NODES, name)
        except NotFound:
            return True
        except KubeError:
            return False
        return False

    async def _collect(self, node: str) -> None:
        for pod in list(self._informers.pods.by_index("node", node)):
            reason = ("DeletionByPodGC", "PodGC: node no longer exists")
            condition = _disruption_condition(*reason, now=self._clock.now())
            status: dict[str, object] = {"conditions": [condition]}
            if not pod.over:
                status["phase"] = "Failed"
            try:
                await patch_status(self._kube, PODS, pod, status)
                await _delete(self._kube, pod, grace=0)
            except KubeError:
                continue  # gone already, or retried in the next round


def _disruption_condition(reason: str, message: str, *, now: float) -> dict[str, object]:
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(now),
    }


async def _delete(kube: Kube, pod: Pod, *, grace: int | None = None) -> None:
    meta = pod.metadata
    await kube.delete(PODS, meta.name, uid=meta.uid, namespace=meta.namespace, grace=grace)
