"""What the demo sees of the fleet: the objects that kubectl shows, and why nodes wait.

`Observed` is a snapshot for pure decisions; `FleetObserver` keeps one current by watches.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from demo.admin import WORKLOADS
from demo.fleet import Fleet
from demo.objects import (
    DAEMON_SETS,
    DRIVERS,
    NODES,
    PODS,
    ROLLOUTS,
    DriverDaemonSet,
    DriverSpec,
    WatchedPod,
)
from demo.paths import NAMESPACE
from libs.contracts.events import Event, WaitEvent
from libs.contracts.message import MalformedMessage
from libs.contracts.node import (
    DRIVER_LABEL,
    LEASE_ANNOTATION,
    MANAGER,
    SKIP_LABEL,
    STATE_LABEL,
    WaitCode,
)
from libs.contracts.rollout import RolloutSpec, RolloutStatus
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.views import ManagedFields, Node, OwnerReference
from libs.policy.render.rendered import POOL_ANNOTATION, TARGET_ANNOTATION
from libs.runtime.env import Env

_CORDON: Final = "f:unschedulable"


class SeenNode(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    pool: str
    """The name of its pool."""
    state: str = ""
    cordoned_by: tuple[str, ...] = ()
    """The managers, beside Sluice, that own the cordon."""
    is_skipped: bool = False
    lease_of_person: bool = False


class SeenPool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    wanted: str = ""
    """The driver version in its NVIDIADriver."""
    max_unavailable: str = ""
    is_automatic: bool = True
    """Whether nodes are upgraded at all."""
    managers: tuple[str, ...] = ()
    """The managers of its NVIDIADriver, the last writer last."""
    spec: RolloutSpec = RolloutSpec()
    status: RolloutStatus = RolloutStatus()

    @property
    def is_complete(self) -> bool:
        """Whether all nodes have the driver that is wanted now, or need not have it."""
        counts = self.status.counts
        settled = counts.done + counts.skipped + counts.excluded
        is_wanted = self.status.version == self.wanted
        return is_wanted and self.status.phase == "Complete" and 0 < counts.total == settled


class SeenPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a workload."""

    workload: str
    node: str
    phase: str


class DriverExit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a driver's container, which the kubelet starts again."""

    node: str
    pod: str
    label: str
    container_id: str
    exit_code: int


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of the fleet."""

    nodes: Mapping[str, SeenNode] = {}
    pools: Mapping[str, SeenPool] = {}
    """By name."""
    pods: tuple[SeenPod, ...] = ()
    exits: tuple[DriverExit, ...] = ()
    waits: Mapping[str, WaitCode] = {}
    """Why nodes wait, by node."""
    drivers: Mapping[tuple[str, str], str] = {}
    """Driver labels by pool and version."""

    def nodes_of(self, workload: str) -> tuple[str, ...]:
        """Return the nodes on which pods of a workload run."""
        pods = self.pods
        return tuple(pod.node for pod in pods if pod.workload == workload and pod.node)

    def is_running(self, workload: str) -> bool:
        return any(pod.workload == workload and pod.phase == "Running" for pod in self.pods)

    def waits_for(self, code: WaitCode, workload: str) -> bool:
        """Whether a node with this workload waits for this."""
        return any(self.waits.get(node) == code for node in self.nodes_of(workload))


class FleetObserver:
    """Follows the objects of the fleet."""

    def __init__(self, fleet: Fleet, kube: Kube, *, env: Env) -> None:
        self._fleet = fleet
        self._pool_of = fleet.pool_of
        self._nodes = Cache(kube, NODES, env=env)
        self._policies = Cache(kube, DRIVERS, env=env)
        self._rollouts = Cache(kube, ROLLOUTS, env=env)
        self._workloads = Cache(kube, PODS, env=env, namespace=WORKLOADS)
        self._driver_pods = Cache(kube, PODS, env=env, namespace=NAMESPACE, labels=DRIVER_LABEL)
        self._daemon_sets = Cache(
            kube, DAEMON_SETS, env=env, namespace=NAMESPACE, labels=DRIVER_LABEL
        )
        self._waits: dict[str, WaitCode] = {}

    @asynccontextmanager
    async def followed(self) -> AsyncGenerator[None]:
        """Follow during the block."""
        caches: tuple[Cache[Any], ...] = (
            self._nodes,
            self._policies,
            self._rollouts,
            self._workloads,
            self._driver_pods,
            self._daemon_sets,
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(cache.run(), name="observer") for cache in caches]
            try:
                for cache in caches:
                    await cache.wait_synced()
                yield
            finally:
                for task in tasks:
                    task.cancel()

    def event_seen(self, event: Event) -> None:
        """Note why a node waits."""
        try:
            body = event.open()
        except MalformedMessage:
            return
        if isinstance(body, WaitEvent) and body.code is not None:
            self._waits[event.node] = body.code
        elif isinstance(body, WaitEvent):
            self._waits.pop(event.node, None)

    def versions(self) -> dict[str, str]:
        """Return the driver versions that targets and driver labels stand for."""
        versions = {
            digest: _version(each)
            for each in self._daemon_sets
            for digest in (
                each.metadata.labels.get(DRIVER_LABEL, ""),
                each.metadata.annotations.get(TARGET_ANNOTATION, ""),
            )
        }
        named = {each.status.target: each.status.version for each in self._rollouts}
        found = versions | {target: version for target, version in named.items() if version}
        return {digest: version for digest, version in found.items() if digest and version}

    def observed(self) -> Observed:
        names = {pool.key: pool.name for pool in self._fleet.pools}
        return Observed(
            nodes={each.metadata.name: self._node(each) for each in self._nodes},
            pools={pool.name: self._pool(pool.name, pool.key) for pool in self._fleet.pools},
            pods=tuple(map(_workload_pod, self._workloads)),
            exits=tuple(found for pod in self._driver_pods if (found := _driver_exit(pod))),
            waits=dict(self._waits),
            drivers={
                (
                    names.get(each.metadata.annotations.get(POOL_ANNOTATION, ""), ""),
                    _version(each),
                ): each.metadata.labels[DRIVER_LABEL]
                for each in self._daemon_sets
            },
        )

    def _node(self, node: Node) -> SeenNode:
        metadata = node.metadata
        labels = metadata.labels
        return SeenNode(
            name=metadata.name,
            pool=self._pool_of.get(metadata.name, ""),
            state=labels.get(STATE_LABEL, ""),
            cordoned_by=tuple(_cordon_managers(metadata.managed_fields)),
            is_skipped=labels.get(SKIP_LABEL) == "true",
            lease_of_person='"human"' in metadata.annotations.get(LEASE_ANNOTATION, ""),
        )

    def _pool(self, name: str, key: str) -> SeenPool:
        policy, rollout = self._policies.get(name), self._rollouts.get(key)
        spec = policy.spec if policy is not None else DriverSpec()
        managed = policy.metadata.managed_fields if policy is not None else ()
        fields = [each for each in managed if not each.subresource]
        return SeenPool(
            name=name,
            wanted=spec.version,
            max_unavailable=str(spec.upgrade_policy.get("maxUnavailable", "")),
            is_automatic=spec.upgrade_policy.get("autoUpgrade", policy is None) is True,
            managers=tuple(each.manager for each in sorted(fields, key=_time_of)),
            spec=rollout.spec if rollout is not None else RolloutSpec(),
            status=rollout.status if rollout is not None else RolloutStatus(),
        )


def _time_of(fields: ManagedFields) -> str:
    return fields.time


def _version(daemon_set: DriverDaemonSet) -> str:
    """Return the driver version in the image's tag."""
    containers = daemon_set.spec.template.spec.containers
    image = containers[0].image if containers else ""
    return image.rpartition(":")[2].partition("-")[0]


def _cordon_managers(fields: tuple[ManagedFields, ...]) -> list[str]:
    owners: list[str] = []
    for each in fields:
        owned: dict[str, Any] = msgspec.json.decode(each.fields_v1)
        if each.manager != MANAGER and _CORDON in (owned.get("f:spec") or {}):
            owners.append(each.manager)
    return owners


def _workload_pod(pod: WatchedPod) -> SeenPod:
    owners: tuple[OwnerReference, ...] = pod.metadata.owner_references
    workload = owners[0].name if owners else pod.metadata.name
    return SeenPod(workload=workload, node=pod.spec.node_name, phase=pod.status.phase)


def _driver_exit(pod: WatchedPod) -> DriverExit | None:
    """Return how the driver's container ended last, if it did."""
    for status in pod.status.container_statuses[:1]:
        ended = status.state.terminated or status.last_state.terminated
        if ended is not None and ended.exit_code:
            return DriverExit(
                node=pod.spec.node_name,
                pod=pod.metadata.name,
                label=pod.metadata.labels.get(DRIVER_LABEL, ""),
                container_id=ended.container_id,
                exit_code=ended.exit_code,
            )
    return None
