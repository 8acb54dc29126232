"""Kill the leading scheduler in each state of an upgrade."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager

import msgspec

from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.kube.cache import Cache
from libs.kube.resources import NODES
from libs.kube.views import Node
from libs.testing.simulation import make_env
from tests.component.real_upgrade.installation import Installation
from tests.support import eventually

TAKEN_OVER_WITHIN = 180.0
"""Seconds; the lease itself runs for 15."""

BetweenLeaders = Callable[["LeaderKill"], Awaitable[None]]


class LeaderKill(msgspec.Struct, frozen=True, kw_only=True):
    """One kill -9 of the leader."""

    state: UpgradeState
    """The node's state after the kill."""
    node: str
    before: str
    """The killed leader's identity."""
    after: str
    """The next leader's identity."""


class LeaderKiller:
    """Kills the leader once in each state, as soon as some node shows the state."""

    def __init__(
        self,
        installation: Installation,
        states: Collection[UpgradeState],
        *,
        between: BetweenLeaders,
    ) -> None:
        """`between` runs while there is no leader."""
        self._installation = installation
        self._between = between
        self._states: dict[str, UpgradeState] = {}
        self._changed = asyncio.Event()
        self.wanted = set(states)
        self.kills: list[LeaderKill] = []

    async def run(self) -> None:
        """Run until the leader was killed in all states."""
        leader = await self._installation.leader()
        while self.wanted:
            node = await self._next_node()
            await self._installation.up.processes.kill(leader.partition("_")[0])
            # The leader's last write may arrive after the kill: read the node's state now.
            state = _state(await self._installation.kube.get(NODES, node))
            kill = LeaderKill(state=state, node=node, before=leader, after="")
            await self._between(kill)
            leader = await self._wait_for_new_leader(leader)
            self.wanted.discard(state)
            self.kills.append(msgspec.structs.replace(kill, after=leader))

    @asynccontextmanager
    async def watch_nodes(self) -> AsyncGenerator[None]:
        """Follow the states of nodes."""
        clock = self._installation.up.clock
        cache = Cache(self._installation.kube, NODES, env=make_env(clock=clock))
        task = asyncio.create_task(cache.run(), name="follow nodes")
        try:
            await cache.wait_synced()
            cache.on_change(self._node_changed)
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if before and after and _state(before) != _state(after):
            self._states[after.metadata.name] = _state(after)
            self._changed.set()

    async def _next_node(self) -> str:
        while True:
            self._changed.clear()
            for node, state in self._states.items():
                if state in self.wanted:
                    return node
            await self._changed.wait()

    async def _wait_for_new_leader(self, dead: str) -> str:
        leader = ""

        async def another() -> bool:
            nonlocal leader
            leader = await self._installation.leader()
            return leader not in ("", dead)

        await eventually(another, within=TAKEN_OVER_WITHIN, every=0.05)
        return leader


def _state(node: Node) -> UpgradeState:
    return UpgradeState(node.metadata.labels.get(STATE_LABEL, ""))
