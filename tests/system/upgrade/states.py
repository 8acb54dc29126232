"""The states through which nodes pass, also those that last for moments only."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager

from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.kube.resources import NODES
from libs.kube.views import Node
from libs.runtime.clock import SystemClock
from libs.testing.realkube.cluster import RealKube
from libs.testing.simulation import make_env


class NodeStates:
    """The states that nodes have entered since the beginning."""

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}
        self._changed = asyncio.Event()

    def changed(self, before: Node | None, after: Node | None) -> None:
        """Record the state of a node, if it is another one."""
        if before and after and _state(before) != _state(after):
            self._seen.setdefault(after.metadata.name, set()).add(_state(after))
            self._changed.set()

    async def first(self, state: UpgradeState, *, besides: Collection[str] = ()) -> str:
        """Return the first node in this state, which it may have left meanwhile."""
        while True:
            self._changed.clear()
            for name, states in self._seen.items():
                if state in states and name not in besides:
                    return name
            await self._changed.wait()


def _state(node: Node) -> str:
    return node.metadata.labels.get(STATE_LABEL, "")


@asynccontextmanager
async def node_states(kube: RealKube) -> AsyncGenerator[NodeStates]:
    """Follow the states of nodes."""
    clock = SystemClock()
    async with await open_transport(clock=clock, kubeconfig=kube.kubeconfig()) as transport:
        cache = Cache(Kube(transport, manager="test", clock=clock), NODES, env=make_env())
        task = asyncio.create_task(cache.run(), name="follow nodes")
        states = NodeStates()
        try:
            await cache.wait_synced()
            cache.on_change(states.changed)
            yield states
        finally:
            task.cancel()
            await asyncio.wait({task})
