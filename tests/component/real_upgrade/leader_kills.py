"""The scheduler that leads dies in each state of an upgrade, and another one goes on."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager

import msgspec

from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.kube.cache import Cache
from libs.kube.resources import NODES
from libs.kube.views import Node
from libs.testing.env import make_env
from tests.component.real_upgrade.installation import Installation
from tests.support import eventually

TAKEN_OVER_WITHIN = 60.0
"""Seconds; the lease itself runs for 15."""

BetweenLeaders = Callable[["LeaderKill"], Awaitable[None]]


class LeaderKill(msgspec.Struct, frozen=True, kw_only=True):
    """One kill -9 of who led."""

    state: UpgradeState
    """In which its node is found when nobody leads any more."""
    node: str
    before: str
    """Who led, by name and life."""
    after: str
    """Who leads next."""


class LeaderKiller:
    """Once in each of these states, as soon as some node shows it."""

    def __init__(
        self, site: Installation, states: Collection[UpgradeState], *, between: BetweenLeaders
    ) -> None:
        """`between`: what else happens while nobody leads."""
        self._site = site
        self._between = between
        self._shown: dict[str, UpgradeState] = {}
        self._news = asyncio.Event()
        self.wanted = set(states)
        self.kills: list[LeaderKill] = []

    async def run(self) -> None:
        """Until it has died in all of them."""
        leader = await self._site.leader()
        while self.wanted:
            node = await self._next()
            await self._site.up.processes.kill(leader.partition("_")[0])
            # Its last write may have been on the way: what the node shows now is what is left.
            state = _state(await self._site.kube.get(NODES, node))
            death = LeaderKill(state=state, node=node, before=leader, after="")
            await self._between(death)
            leader = await self._taken_over(leader)
            self.wanted.discard(state)
            self.kills.append(msgspec.structs.replace(death, after=leader))

    @asynccontextmanager
    async def watch_nodes(self) -> AsyncGenerator[None]:
        """What nodes show from now on is seen at once."""
        clock = self._site.up.clock
        cache = Cache(self._site.kube, NODES, env=make_env(clock=clock))
        following = asyncio.create_task(cache.run(), name="follow nodes")
        try:
            await cache.wait_synced()
            cache.on_change(self._see)
            yield
        finally:
            following.cancel()
            await asyncio.wait({following})

    def _see(self, before: Node | None, after: Node | None) -> None:
        if before and after and _state(before) != _state(after):
            self._shown[after.metadata.name] = _state(after)
            self._news.set()

    async def _next(self) -> str:
        while True:
            self._news.clear()
            for node, state in self._shown.items():
                if state in self.wanted:
                    return node
            await self._news.wait()

    async def _taken_over(self, dead: str) -> str:
        leader = ""

        async def another() -> bool:
            nonlocal leader
            leader = await self._site.leader()
            return leader not in ("", dead)

        await eventually(another, within=TAKEN_OVER_WITHIN, every=0.05)
        return leader


def _state(node: Node) -> UpgradeState:
    return UpgradeState(node.metadata.labels.get(STATE_LABEL, ""))
