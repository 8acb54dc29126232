"""The pods of nodes that are upgraded now or next: watched on a few nodes, listed on more.

All pods of a large cluster would take gigabytes; agents report whether the other nodes are busy.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from libs.contracts.node import UpgradeState
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.runtime.clock import jittered
from libs.runtime.env import Env
from services.scheduler import resources
from services.scheduler.node_state import NodeStates
from services.scheduler.resources import Pod

MAX_WATCHED_NODES: Final = 64
LIST_INTERVAL: Final = 10.0
"""Seconds between two lists of the pods of a node that is not watched."""

_AT_REST: Final = frozenset({UpgradeState.UPGRADE_DONE.value, UpgradeState.UPGRADE_FAILED.value})


class PodCache:
    """The pods of the nodes that `follow` names, while `run` runs."""

    def __init__(self, kube: Kube, *, env: Env, on_change: Callable[[str], None]) -> None:
        self._env = env
        self._kube = kube
        self._on_change = on_change
        self._watched: dict[str, Cache[Pod]] = {}
        self._listed: dict[str, tuple[Pod, ...]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._names_changed = asyncio.Event()
        self._names: Sequence[str] = ()

    def follow(self, names: Sequence[str]) -> None:
        """Follow these nodes from now on; the first ones are watched."""
        if list(names) != list(self._names):
            self._names = tuple(names)
            self._names_changed.set()

    def of(self, node: str) -> tuple[Pod, ...] | None:
        """Return the pods of a node; None while they are not known."""
        cache = self._watched.get(node)
        if cache is not None:
            return tuple(cache) if cache.is_synced else None
        return self._listed.get(node)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._names_changed.wait()
                self._names_changed.clear()
                names = set(self._names)
                for name in [name for name in self._tasks if name not in names]:
                    await self._stop(name)
                    self._on_change(name)
                for name in self._names:
                    if name not in self._tasks:
                        self._start(name, group)

    def _start(self, name: str, group: asyncio.TaskGroup) -> None:
        fields = f"spec.nodeName={name}"
        if len(self._watched) < MAX_WATCHED_NODES:
            cache = self._watched[name] = Cache(
                self._kube, resources.PODS, env=self._env, fields=fields
            )
            cache.on_change(lambda _before, _after: self._on_change(name))
            follow = self._watch(name, cache)
        else:
            follow = self._list(name, fields)
        self._tasks[name] = group.create_task(follow, name=f"pods of {name}")

    async def _watch(self, name: str, cache: Cache[Pod]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            await cache.wait_synced()
            self._on_change(name)

    async def _list(self, name: str, fields: str) -> None:
        while True:
            try:
                page = await self._kube.list_all(resources.PODS, fields=fields)
            except KubeError:
                pass  # keep the last list until the next one
            else:
                # A pod that cannot be read is not gone.
                if not page.unreadable and self._listed.get(name) != page.items:
                    self._listed[name] = page.items
                    self._on_change(name)
            await self._env.clock.sleep(jittered(LIST_INTERVAL, self._env.random))

    async def _stop(self, name: str) -> None:
        self._watched.pop(name, None)
        self._listed.pop(name, None)
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.wait({task})


class FollowedNodes:
    """Chooses the nodes whose pods are followed."""

    def __init__(self, *, pod_cache: PodCache, node_states: NodeStates) -> None:
        self._pod_cache = pod_cache
        self._node_states = node_states
        self._required: set[str] = set()
        """Nodes without a lease that need an upgrade, or whose driver is to be removed."""
        self._leased: set[str] = set()

    @property
    def unsettled(self) -> set[str]:
        """Nodes with a lease or in need of an upgrade."""
        return self._required | self._leased

    def update(self, name: str, view: NodeView | None) -> None:
        self._required.discard(name)
        self._leased.discard(name)
        if view is None:
            return
        if view.lease is not None:
            self._leased.add(name)
        elif view.state not in _AT_REST and (view.pool or view.driver_label):
            self._required.add(name)
        elif view.preflight is not None and not view.preflight.label:
            self._required.add(name)  # it is asked whether its driver can be removed

    def follow(self, pools: Iterable[PoolView]) -> None:
        """Follow nodes in flight, then those asked for a preflight, then others that are due."""
        in_flight = {
            entry.node
            for pool in pools
            if pool.rollout is not None
            for entry in pool.rollout.status.in_flight.values()
        }
        asked = {
            name
            for name in self._required
            if self._node_states.state_of(name).preflight is not None
        }
        first = sorted(in_flight | self._leased)
        second = sorted(asked - in_flight - self._leased)
        room = max(0, MAX_WATCHED_NODES - len(first) - len(second))
        rest: Iterable[str] = ()
        if room:
            rest = sorted(self._required.difference(first, second))[:room]
        self._pod_cache.follow([*first, *second, *rest])
