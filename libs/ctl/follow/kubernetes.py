"""Follow Nodes, Rollouts and Devices with caches, and keep the state of the fleet current."""

import asyncio
import math
import random
from collections import Counter
from importlib.metadata import version
from typing import Any, Final

from libs.contracts.node import STATE_LABEL
from libs.ctl.cluster import Cluster
from libs.ctl.follow.objects import (
    FOLLOWED_DEVICES,
    FOLLOWED_METADATA,
    FOLLOWED_NODES,
    FollowedDevice,
    FollowedObject,
)
from libs.fleet.node import GPU_LABEL
from libs.fleet.pools import ROLLOUTS
from libs.fleet.state import FleetState
from libs.fleet.status import Source
from libs.kube.cache import Cache
from libs.kube.informer import Informer
from libs.runtime.clock import SystemClock
from libs.runtime.env import Env, RandomIds
from libs.runtime.metrics import Metrics

_PRESENT: Final = f"{GPU_LABEL}=true"
_CORDONED: Final = "spec.unschedulable=true"
_PROBE_AFTER: Final = 45.0
"""Seconds without a word from the API server after which it is asked whether it has news."""
_PROBE_EVERY: Final = 15.0
_PROBE_WITHIN: Final = 5.0


def make_env() -> Env:
    return Env(
        clock=SystemClock(),
        random=random.Random(),
        ids=RandomIds(),
        metrics=Metrics(version=version("sluice")),
    )


class KubernetesSource:
    """Nodes and Rollouts, followed; `whole` Nodes tell also whether they are Ready.

    Otherwise the API server sends the metadata of those with GPUs alone, and cordoned ones are
    followed apart: of a large fleet whole Nodes are tens of megabytes.
    """

    def __init__(
        self, cluster: Cluster, state: FleetState, *, env: Env, whole: bool = False
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._env = env
        self._is_whole = whole
        kube = cluster.kube
        self.rollouts = Informer(kube, ROLLOUTS, env=env)
        self.rollouts.cache.on_change(state.rollout_changed)
        self.devices = DeviceCounts(state, cluster, env=env)
        if whole:
            self.nodes = Informer(kube, FOLLOWED_NODES, env=env)
            self.nodes.cache.on_change(self._whole_node_changed)
            beside = self.devices.informer
        else:
            self.nodes = Informer(kube, FOLLOWED_METADATA, env=env, labels=_PRESENT)
            self.nodes.cache.on_change(self._node_changed)
            beside = Informer(kube, FOLLOWED_METADATA, env=env, labels=_PRESENT, fields=_CORDONED)
            beside.cache.on_change(self._cordon_changed)
        self._followed: tuple[Informer[Any], ...] = (self.nodes, beside, self.rollouts)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._followed:
                group.create_task(informer.run())
                group.create_task(self._probe(informer.cache))

    async def _probe(self, cache: Cache[Any]) -> None:
        """Notice a server that has fallen silent, and prove a quiet cache current."""
        await cache.wait_synced()
        while True:
            await self._env.clock.sleep(_PROBE_EVERY)
            if cache.age > _PROBE_AFTER:
                await cache.verify_current(within=_PROBE_WITHIN)

    def _node_changed(self, old: FollowedObject | None, new: FollowedObject | None) -> None:
        self._state.node_changed(old and old.metadata, new and new.metadata)

    def _whole_node_changed(self, old: FollowedObject | None, new: FollowedObject | None) -> None:
        if node := new or old:
            cordoned = new is not None and new.spec.unschedulable
            self._state.cordon_changed(node.metadata.name, cordoned=cordoned)
            unready = new is not None and not new.is_ready
            shown = new.metadata if new is not None and is_shown(new) else None
            self._state.node_changed(old and old.metadata, shown, unready=unready)

    def _cordon_changed(self, old: FollowedObject | None, new: FollowedObject | None) -> None:
        if node := new or old:
            self._state.cordon_changed(node.metadata.name, cordoned=new is not None)

    def source(self) -> Source:
        """Return how old what Kubernetes says is, and why it is not current."""
        age = max(each.age for each in self._followed)
        problems = [self._problem(each) for each in self._followed]
        return Source(
            name=f"Kubernetes ({self._cluster.address})",
            gives="nodes, pools and GPUs" if self._is_whole else "Kubernetes",
            age=None if math.isinf(age) else age,
            problem=next(filter(None, problems), ""),
        )

    def _problem(self, informer: Informer[Any]) -> str:
        cache, waits = informer.cache, informer.why_not_synced if self._is_whole else ""
        unreadable = (f"{key} cannot be read: {why}" for key, why in cache.unreadable.items())
        return waits or cache.problem or next(unreadable, "")


def is_shown(node: FollowedObject) -> bool:
    """Whether a Node has GPUs, or an upgrade state."""
    labels = node.metadata.labels
    return labels.get(GPU_LABEL) == "true" or bool(labels.get(STATE_LABEL))


class DeviceCounts:
    """The GPUs of the fleet, counted by node and by product, and those to look at."""

    def __init__(self, state: FleetState, cluster: Cluster, *, env: Env) -> None:
        self._state = state
        self.informer = Informer(
            cluster.kube,
            FOLLOWED_DEVICES,
            env=env,
            indexes={"node": lambda each: (each.spec.node,)},
        )
        self.informer.cache.on_change(self._device_changed)
        self._by_node: dict[str, Counter[str]] = {}
        self.by_product: dict[str, Counter[str]] = {}
        self.sick: dict[str, FollowedDevice] = {}
        """By name, those that are neither ok nor without a verdict."""
        self.is_changed = False

    def names_of(self, node: str) -> list[str]:
        """Return the names of the Devices of a node."""
        return sorted(each.metadata.name for each in self.informer.cache.by_index("node", node))

    def _device_changed(self, old: FollowedDevice | None, new: FollowedDevice | None) -> None:
        """Count a GPU where it is now, and no longer where it was.

        Counts are kept by difference: to count all anew at each change would cost more the larger
        the fleet is.
        """
        for device, change in ((old, -1), (new, 1)):
            if device is None:
                continue
            name, node = device.metadata.name, device.spec.node
            _count(self._by_node, node, device.health, change)
            _count(self.by_product, device.spec.product, device.health, change)
            self.sick.pop(name, None)
            if change > 0 and device.is_sick:
                self.sick[name] = device
            self._state.gpus_counted(node, self._by_node.get(node, {}))
        self.is_changed = True


def _count(counts: dict[str, Counter[str]], key: str, health: str, change: int) -> None:
    of_key = counts.setdefault(key, Counter())
    of_key[health] += change
    if not of_key[health]:
        del of_key[health]
    if not of_key:
        del counts[key]
