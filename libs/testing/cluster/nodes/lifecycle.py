"""Controllers of Nodes: mark silent nodes as unknown, keep taints and the TTL annotation."""

import asyncio

from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.kubelet.hardware import LEASES_IN
from libs.testing.cluster.nodes.health import (
    heartbeat,
    not_ready_condition,
    unknown_conditions,
    wanted_taints,
)
from libs.testing.cluster.patches import patch_status
from libs.testing.cluster.views import NODES, PODS, Node

USER = "system:serviceaccount:kube-system:node-controller"
TTL_USER = "system:serviceaccount:kube-system:ttl-controller"

CHECK_EVERY = 5.0
GRACE = 50.0
"""Seconds of silence after which a node's state is unknown; at least its lease duration."""

TAINTS_AFTER = 0.5
"""Seconds from a cordon, or any other reason for a taint, to the taint."""

TTL_ANNOTATION = "node.alpha.kubernetes.io/ttl"
_TTL_BY_CLUSTER_SIZE = ((100, 0), (500, 15), (1_000, 30), (2_000, 60))
_LONGEST_TTL = 300


class NodeLifecycleController:
    """Sets conditions and taints of nodes, and marks the pods of unknown nodes as not ready."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._informers = informers
        self._kube = kube
        self._clock = clock
        self._heartbeats: dict[str, tuple[tuple[str, str], float]] = {}
        """By node uid: the last heartbeat, and when it was first seen."""
        self._taints = ControllerLoop("node-taints", self._reconcile_taints, clock=clock)
        self._pods = ControllerLoop("unready-pods", self._reconcile_pod, clock=clock)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            watched = (self._informers.nodes, self._node_changed)
            group.create_task(self._taints.run(watched), name="node-taints")
            group.create_task(self._pods.run(), name="unready-pods")
            group.create_task(self._watch_heartbeats(), name="node-silence")

    async def _watch_heartbeats(self) -> None:
        while True:
            for node in list(self._informers.nodes):
                if self._is_silent(node):
                    await self._mark_unknown(node)
            await self._clock.sleep(CHECK_EVERY)

    def _is_silent(self, node: Node) -> bool:
        meta = node.metadata
        now = self._clock.monotonic()
        lease = self._informers.leases.get(f"{LEASES_IN}/{meta.name}")
        current = heartbeat(node, lease)
        last, since = self._heartbeats.get(meta.uid, (None, now))
        if current != last:
            self._heartbeats[meta.uid] = (current, now)
            return False
        duration = lease.spec.lease_duration_seconds if lease is not None else None
        return now - since >= max(GRACE, duration or 0)

    async def _mark_unknown(self, node: Node) -> None:
        conditions = unknown_conditions(node, now=self._clock.now())
        if not conditions:
            return
        try:
            written = await patch_status(self._kube, NODES, node, {"conditions": conditions})
        except KubeError:
            return  # retried at the next check
        self._informers.nodes.record_write(written)

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if after is None:
            if before is not None:
                self._heartbeats.pop(before.metadata.uid, None)
            return
        if wanted_taints(after, now=0.0) is not None:
            self._taints.queue.add_after(after.metadata.name, TAINTS_AFTER)
        if _is_unknown(after) and (before is None or not _is_unknown(before)):
            for pod in self._informers.pods.by_index("node", after.metadata.name):
                self._pods.queue.add(pod.metadata.key)

    async def _reconcile_taints(self, name: str) -> None:
        node = self._informers.nodes.get(name)
        taints = wanted_taints(node, now=self._clock.now()) if node is not None else None
        if node is None or taints is None:
            return
        written = await self._kube.merge(
            NODES,
            name,
            {"spec": {"taints": taints or None}},
            resource_version=node.metadata.resource_version,
        )
        self._informers.nodes.record_write(written)

    async def _reconcile_pod(self, key: str) -> None:
        pod = self._informers.pods.get(key)
        node = self._informers.nodes.get(pod.spec.node_name) if pod is not None else None
        if pod is None or node is None or not pod.ready or not _is_unknown(node):
            return
        condition = not_ready_condition(now=self._clock.now())
        await patch_status(self._kube, PODS, pod, {"conditions": [condition]})


def _is_unknown(node: Node) -> bool:
    ready = node.condition("Ready")
    return ready is not None and ready.status == "Unknown"


class TtlController:
    """Writes the TTL annotation once on every Node.

    Nothing reads it here, but the write moves the Node's revision, as in a real cluster.
    """

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._nodes = informers.nodes
        self._kube = kube
        self._loop = ControllerLoop("ttl", self._reconcile, clock=clock)

    async def run(self) -> None:
        await self._loop.run((self._nodes, self._node_changed))

    def _node_changed(self, _before: Node | None, after: Node | None) -> None:
        if after is not None and TTL_ANNOTATION not in after.metadata.annotations:
            self._loop.queue.add(after.metadata.name)

    async def _reconcile(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or TTL_ANNOTATION in node.metadata.annotations:
            return
        size = len(self._nodes)
        ttl = next((ttl for limit, ttl in _TTL_BY_CLUSTER_SIZE if size <= limit), _LONGEST_TTL)
        written = await self._kube.merge(
            NODES,
            name,
            {"metadata": {"annotations": {TTL_ANNOTATION: str(ttl)}}},
            resource_version=node.metadata.resource_version,
        )
        self._nodes.record_write(written)
