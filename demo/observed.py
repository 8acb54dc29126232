"""What the demo sees of the fleet: the objects that kubectl shows, and why nodes wait.

`Observed` is a snapshot for pure decisions; `FleetObserver` keeps one current by watches.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from demo.admin import WORKLOADS
from demo.fleet import Fleet
from demo.objects import DRIVERS, PODS, DriverSpec, WatchedPod
from demo.paths import NAMESPACE
from libs.contracts.events import Event
from libs.contracts.node import DRIVER_LABEL
from libs.contracts.rollout import RolloutSpec, RolloutStatus
from libs.contracts.waits import WaitCode
from libs.ctl.cordons import SLUICE, cordoned_by
from libs.ctl.observe.objects import DAEMON_SETS
from libs.ctl.versions import version_in_image, versions_of
from libs.fleet.node import FollowedNode
from libs.fleet.pools import ROLLOUTS
from libs.fleet.state import FleetState
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.resources import NODES
from libs.kube.views import ManagedFields, Node, OwnerReference
from libs.policy.render.rendered import POOL_ANNOTATION
from libs.runtime.env import Env


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

    nodes: Mapping[str, FollowedNode] = {}
    """By name; `cordoned` by others than Sluice, and `pool` is the name of its NVIDIADriver."""
    pools: Mapping[str, SeenPool] = {}
    """By name."""
    pods: tuple[SeenPod, ...] = ()
    exits: tuple[DriverExit, ...] = ()
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
        nodes = [self.nodes[name] for name in self.nodes_of(workload) if name in self.nodes]
        return any(node.wait is not None and node.wait.code is code for node in nodes)


class FleetObserver:
    """Follows the objects of the fleet."""

    def __init__(self, fleet: Fleet, kube: Kube, *, env: Env) -> None:
        self._fleet = fleet
        self._state = FleetState()
        self._nodes = Cache(kube, NODES, env=env)
        self._nodes.on_change(self._node_changed)
        self._policies = Cache(kube, DRIVERS, env=env)
        self._rollouts = Cache(kube, ROLLOUTS, env=env)
        self._rollouts.on_change(self._state.rollout_changed)
        self._workloads = Cache(kube, PODS, env=env, namespace=WORKLOADS)
        self._driver_pods = Cache(kube, PODS, env=env, namespace=NAMESPACE, labels=DRIVER_LABEL)
        self._daemon_sets = Cache(
            kube, DAEMON_SETS, env=env, namespace=NAMESPACE, labels=DRIVER_LABEL
        )

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
        self._state.event_received(event)

    def versions(self) -> Mapping[str, str]:
        """Return the driver versions that targets and driver labels stand for."""
        self._state.versions_found(versions_of((), self._daemon_sets))
        return self._state.versions

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        self._state.node_changed(old and old.metadata, new and new.metadata)
        if new is not None:
            author = cordoned_by(new)
            cordoned = author is not None and author != SLUICE
            self._state.cordon_changed(new.metadata.name, cordoned=cordoned)

    def observed(self) -> Observed:
        pool_of = self._fleet.pool_of
        names = {pool.key: pool.name for pool in self._fleet.pools}
        return Observed(
            nodes={
                each.name: msgspec.structs.replace(each, pool=pool_of.get(each.name, ""))
                for each in self._state.nodes()
            },
            pools={pool.name: self._pool(pool.name, pool.key) for pool in self._fleet.pools},
            pods=tuple(map(_workload_pod, self._workloads)),
            exits=tuple(found for pod in self._driver_pods if (found := _driver_exit(pod))),
            drivers={
                (
                    names.get(each.metadata.annotations.get(POOL_ANNOTATION, ""), ""),
                    version_in_image(each),
                ): each.metadata.labels[DRIVER_LABEL]
                for each in self._daemon_sets
            },
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
