"""Pods of nodes in flight or next: watched on a few nodes, listed now and then on more.

All pods of a large cluster are gigabytes; of the other nodes the agents say whether they are busy.
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
from libs.runtime.backoff import jittered
from libs.runtime.env import Env
from services.scheduler import resources
from services.scheduler.node_state import NodeStates
from services.scheduler.resources import Pod

MAX_WATCHED_NODES: Final = 64
"""On so many nodes every change is told."""
LIST_INTERVAL: Final = 10.0
"""Seconds between two lists on the others."""


class _Listing:
    """One node's pods, asked for again and again."""

    def __init__(self) -> None:
        self.pods: tuple[Pod, ...] | None = None


class PodCache:
    """Whose nodes it follows is said by `follow`; it lives while `run` does."""

    def __init__(
        self,
        kube: Kube,
        *,
        env: Env,
        on_change: Callable[[str], None],
    ) -> None:
        self._env = env
        self._kube = kube
        self._clock = env.clock
        self._random = env.random
        self._changed = on_change
        self._watched: dict[str, Cache[Pod]] = {}
        self._listed: dict[str, _Listing] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wanted = asyncio.Event()
        self._names: Sequence[str] = ()

    def follow(self, names: Sequence[str]) -> None:
        """From now on these, the first of them most closely."""
        if list(names) != list(self._names):
            self._names = tuple(names)
            self._wanted.set()

    def of(self, node: str) -> tuple[Pod, ...] | None:
        """The pods of a node; None: nobody is looking yet."""
        cache = self._watched.get(node)
        if cache is not None:
            return tuple(cache) if cache.is_synced else None
        listing = self._listed.get(node)
        return None if listing is None else listing.pods

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as looking:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await self._arrange(looking)

    async def _arrange(self, looking: asyncio.TaskGroup) -> None:
        wanted = set(self._names)
        for name in [name for name in self._tasks if name not in wanted]:
            await self._leave(name)
            self._changed(name)
        for name in self._names:
            if name not in self._tasks:
                self._begin(name, looking)

    def _begin(self, name: str, looking: asyncio.TaskGroup) -> None:
        fields = f"spec.nodeName={name}"
        if len(self._watched) < MAX_WATCHED_NODES:
            cache = self._watched[name] = Cache(
                self._kube, resources.PODS, env=self._env, fields=fields
            )
            cache.on_change(lambda _before, _after: self._changed(name))
            life = self._watch(name, cache)
        else:
            life = self._list(name, self._listed.setdefault(name, _Listing()), fields)
        self._tasks[name] = looking.create_task(life, name=f"pods of {name}")

    async def _watch(self, name: str, cache: Cache[Pod]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            await cache.wait_synced()
            self._changed(name)

    async def _list(self, name: str, listing: _Listing, fields: str) -> None:
        while True:
            try:
                page = await self._kube.list_all(resources.PODS, fields=fields)
            except KubeError:
                pass  # what was seen last stays; the next list is soon
            else:
                if listing.pods != page.items:
                    listing.pods = page.items
                    self._changed(name)
            await self._clock.sleep(jittered(LIST_INTERVAL, self._random))

    async def _leave(self, name: str) -> None:
        self._watched.pop(name, None)
        self._listed.pop(name, None)
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.wait({task})


_RESTING: Final = frozenset({UpgradeState.UPGRADE_DONE.value, UpgradeState.UPGRADE_FAILED.value})


class FollowedNodes:
    """Remembers which nodes are on their way, and which are to be."""

    def __init__(self, *, pod_cache: PodCache, node_states: NodeStates) -> None:
        self._tenants = pod_cache
        self._memory = node_states
        self._required: set[str] = set()
        """Nodes that are not where they should be, without a lease."""
        self._leased: set[str] = set()

    @property
    def unsettled(self) -> set[str]:
        """Nodes that are not where they should be, with a lease or without."""
        return self._required | self._leased

    def update(self, name: str, view: NodeView | None) -> None:
        """This is how a node is seen now; None: not at all."""
        for names in (self._required, self._leased):
            names.discard(name)
        if view is None:
            return
        if view.lease is not None:
            self._leased.add(name)
        elif view.state not in _RESTING and (view.pool or view.driver_label):
            self._required.add(name)

    def follow(self, pools: Iterable[PoolView]) -> None:
        """Look at the pods of those for whom that counts now."""
        flying = {
            entry.node
            for pool in pools
            if pool.rollout is not None
            for entry in pool.rollout.status.in_flight.values()
        }
        first = sorted(flying | self._leased)
        asked = sorted(self._asked() - flying - self._leased)
        room = max(0, MAX_WATCHED_NODES - len(first) - len(asked))
        rest: Iterable[str] = ()
        if room:
            rest = sorted(self._required.difference(first, asked))[:room]
        self._tenants.follow([*first, *asked, *rest])

    def _asked(self) -> set[str]:
        """Nodes that are next: their agents were asked lately."""
        return {name for name in self._required if self._memory.of(name).preflight is not None}
