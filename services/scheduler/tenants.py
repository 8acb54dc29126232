"""Pods of nodes in flight or next: watched on a few nodes, listed now and then on more.

All pods of a large cluster are gigabytes; of the other nodes the agents say whether they are busy.
"""

import asyncio
import random as chance
from collections.abc import Callable, Sequence
from typing import Final

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.runtime.backoff import jittered
from libs.runtime.clock import Clock
from services.scheduler import things
from services.scheduler.things import Pod

WATCHED: Final = 64
"""On so many nodes every change is told."""
LISTED: Final = 10.0
"""Seconds between two lists on the others."""


class _Listing:
    """One node's pods, asked for again and again."""

    def __init__(self) -> None:
        self.pods: tuple[Pod, ...] | None = None


class Tenants:
    """Whose nodes it follows is said by `follow`; it lives while `run` does."""

    def __init__(
        self,
        kube: Kube,
        *,
        clock: Clock,
        random: chance.Random,
        changed: Callable[[str], None],
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._random = random
        self._changed = changed
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
        if len(self._watched) < WATCHED:
            cache = self._watched[name] = Cache(
                self._kube, things.PODS, clock=self._clock, random=self._random, fields=fields
            )
            cache.on_change(lambda _before, _after: self._changed(name))
            life = self._watch(name, cache)
        else:
            life = self._list(name, self._listed.setdefault(name, _Listing()), fields)
        self._tasks[name] = looking.create_task(life, name=f"pods of {name}")

    async def _watch(self, name: str, cache: Cache[Pod]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            await cache.synced()
            self._changed(name)

    async def _list(self, name: str, listing: _Listing, fields: str) -> None:
        while True:
            try:
                page = await self._kube.everything(things.PODS, fields=fields)
            except KubeError:
                pass  # what was seen last stays; the next list is soon
            else:
                if listing.pods != page.items:
                    listing.pods = page.items
                    self._changed(name)
            await self._clock.sleep(jittered(LISTED, self._random))

    async def _leave(self, name: str) -> None:
        self._watched.pop(name, None)
        self._listed.pop(name, None)
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.wait({task})
