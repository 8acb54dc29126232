"""The node lifecycle controller at work: it listens for silence, and keeps taints."""

import asyncio
from contextlib import ExitStack

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

CHECK_EVERY = 5.0
GRACE = 50.0
"""Seconds of silence after which a node's state is unknown; more where its lease is longer: who
lets a large fleet renew less often gives its controller more patience too."""

TAINTS_AFTER = 0.5
"""Seconds from a cordon, or any other reason for a taint, to the taint."""


class NodeLifecycleController:
    """Says of a silent node that nobody knows how it is, and taints what is not well."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        self._seen = informers
        self._kube = kube
        self._clock = clock
        self._heard: dict[str, tuple[tuple[str, str], float]] = {}
        """By node uid: the last sign of life, and when it was new."""
        self._taints = ControllerLoop("node-taints", self._keep_taints, clock=clock)
        self._pods = ControllerLoop("unready-pods", self._keep_unready, clock=clock)

    async def run(self) -> None:
        """Until it is cancelled."""
        with ExitStack() as stack:
            stack.callback(self._seen.nodes.on_change(self._node_changed))
            for node in self._seen.nodes:
                self._node_changed(None, node)
            async with asyncio.TaskGroup() as parts:
                parts.create_task(self._taints.run(), name="node-taints")
                parts.create_task(self._pods.run(), name="unready-pods")
                parts.create_task(self._listen_for_silence(), name="node-silence")

    # Silence.

    async def _listen_for_silence(self) -> None:
        while True:
            for node in list(self._seen.nodes):
                if self._is_silent(node):
                    await self._say_unknown(node)
            await self._clock.sleep(CHECK_EVERY)

    def _is_silent(self, node: Node) -> bool:
        meta = node.metadata
        now = self._clock.monotonic()
        lease = self._seen.leases.get(f"{LEASES_IN}/{meta.name}")
        sign = heartbeat(node, lease)
        last, since = self._heard.get(meta.uid, (None, now))
        if sign != last:
            self._heard[meta.uid] = (sign, now)
            return False
        lasts = lease.spec.lease_duration_seconds if lease is not None else None
        return now - since >= max(GRACE, lasts or 0)

    async def _say_unknown(self, node: Node) -> None:
        conditions = unknown_conditions(node, now=self._clock.now())
        if not conditions:
            return
        try:
            written = await patch_status(self._kube, NODES, node, {"conditions": conditions})
        except KubeError:
            return  # said again at the next look
        self._seen.nodes.record_write(written)

    # Taints.

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if after is None:
            if before is not None:
                self._heard.pop(before.metadata.uid, None)
            return
        if wanted_taints(after, now=0.0) is not None:
            self._taints.queue.add_after(after.metadata.name, TAINTS_AFTER)
        if _is_unknown(after) and (before is None or not _is_unknown(before)):
            for pod in self._seen.pods.by_index("node", after.metadata.name):
                self._pods.queue.add(pod.metadata.key)

    async def _keep_taints(self, name: str) -> None:
        node = self._seen.nodes.get(name)
        wanted = wanted_taints(node, now=self._clock.now()) if node is not None else None
        if node is None or wanted is None:
            return
        written = await self._kube.merge(
            NODES,
            name,
            {"spec": {"taints": wanted or None}},
            resource_version=node.metadata.resource_version,
        )
        self._seen.nodes.record_write(written)

    # Pods of which nobody knows how they are.

    async def _keep_unready(self, key: str) -> None:
        pod = self._seen.pods.get(key)
        node = self._seen.nodes.get(pod.spec.node_name) if pod is not None else None
        if pod is None or node is None or not pod.ready or not _is_unknown(node):
            return
        condition = not_ready_condition(now=self._clock.now())
        await patch_status(self._kube, PODS, pod, {"conditions": [condition]})


def _is_unknown(node: Node) -> bool:
    ready = node.condition("Ready")
    return ready is not None and ready.status == "Unknown"
