"""The node controllers: conditions and taints of nodes with a silent or unhealthy kubelet."""

import asyncio
from typing import Any

from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.views import Taint, format_time
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import ClusterInformers
from libs.testing.cluster.kubelet.hardware import LEASES_IN
from libs.testing.cluster.patches import patch_status
from libs.testing.cluster.pod_scheduler import (
    DISK_PRESSURE,
    MEMORY_PRESSURE,
    NETWORK_UNAVAILABLE,
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY,
    PID_PRESSURE,
    UNREACHABLE,
    UNSCHEDULABLE,
)
from libs.testing.cluster.views import NODES, PODS, Lease, Node

KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
"""Conditions that only a kubelet reports."""

_PRESSURES = {
    "MemoryPressure": MEMORY_PRESSURE,
    "DiskPressure": DISK_PRESSURE,
    "PIDPressure": PID_PRESSURE,
    "NetworkUnavailable": NETWORK_UNAVAILABLE,
}
_OWN_KEYS = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values()})


def heartbeat(node: Node, lease: Lease | None) -> tuple[str, str]:
    """Return a value that changes with each heartbeat."""
    ready = node.condition("Ready")
    renewed = lease.spec.renew_time if lease is not None else None
    beat = ready.last_heartbeat_time if ready is not None else None
    return (renewed or "", beat or "")


def unknown_conditions(node: Node, *, now: float) -> list[dict[str, Any]]:
    """Return the conditions still to be written for a silent node."""
    conditions: list[dict[str, Any]] = []
    for kind in KUBELET_CONDITIONS:
        before = node.condition(kind)
        if before is not None and before.status == "Unknown":
            continue
        never = before is None
        conditions.append(
            {
                "type": kind,
                "status": "Unknown",
                "reason": "NodeStatusNeverUpdated" if never else "NodeStatusUnknown",
                "message": "Kubelet never posted node status."
                if never
                else "Kubelet stopped posting node status.",
                "lastHeartbeatTime": before.last_heartbeat_time
                if before is not None
                else node.metadata.creation_timestamp,
                "lastTransitionTime": format_time(now),
            }
        )
    return conditions


def wanted_taints(node: Node, *, now: float) -> list[dict[str, Any]] | None:
    """Return all taints the node should have, including those of others; None if it has them."""
    wanted = _own_taints(node)
    kept = [each for each in node.spec.taints if _identity(each) in wanted or not _is_own(each)]
    present = {_identity(each) for each in kept}
    added = [each for each in wanted if each not in present]
    if not added and len(kept) == len(node.spec.taints):
        return None
    return [
        *map(_as_json, kept),
        *({"key": key, "effect": effect, "timeAdded": format_time(now)} for key, effect in added),
    ]


def not_ready_condition(*, now: float) -> dict[str, Any]:
    """Return the condition to write for a pod of a silent node."""
    return {"type": "Ready", "status": "False", "lastTransitionTime": format_time(now)}


def _own_taints(node: Node) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    ready = node.condition("Ready")
    if ready is not None and ready.status != "True":
        key = NOT_READY if ready.status == "False" else UNREACHABLE
        found += [(key, NO_SCHEDULE), (key, NO_EXECUTE)]
    if node.spec.unschedulable:
        found.append((UNSCHEDULABLE, NO_SCHEDULE))
    for kind, key in _PRESSURES.items():
        condition = node.condition(kind)
        if condition is not None and condition.status == "True":
            found.append((key, NO_SCHEDULE))
    return found


def _identity(taint: Taint) -> tuple[str, str]:
    return (taint.key, taint.effect)


def _is_own(taint: Taint) -> bool:
    return taint.key in _OWN_KEYS


def _as_json(taint: Taint) -> dict[str, Any]:
    plain = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return {key: value for key, value in (plain | {"timeAdded": taint.time_added}).items() if value}


USER = "system:serviceaccount:kube-system:node-controller"
TTL_USER = "system:serviceaccount:kube-system:ttl-controller"

CHECK_EVERY = 5.0
GRACE = 50.0
"""Seconds of silence after which a node's state is unknown; at least its lease duration."""

TAINTS_AFTER = 0.5
"""Seconds from the cause of a taint, such as a cordon, to the taint."""

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
