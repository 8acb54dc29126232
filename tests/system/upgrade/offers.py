"""What nodes say of their GPUs during an upgrade: none that no pod could use.

`kubectl describe node` shows what the kubelet writes as allocatable. It is compared with the driver
in the kernel of the machine at that time.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.kube.resources import Resource
from libs.kube.views import NodeStatus, Object
from libs.runtime.clock import SystemClock
from libs.testing.realnodes.machine import NodeMachine
from libs.testing.simulation import make_env
from tests.system.upgrade.workload import RESOURCE
from tests.system.upgrade.world import World

STATUS_WITHIN: Final = 30.0
"""Seconds in which a kubelet writes what it knows: it does so each second on an idle machine."""
_LOOK_EVERY: Final = 0.1


class _Status(NodeStatus, frozen=True, kw_only=True):
    allocatable: dict[str, str] = {}


class _Node(Object, frozen=True, kw_only=True):
    status: _Status = _Status()

    @property
    def gpus(self) -> int:
        return int(self.status.allocatable.get(RESOURCE, "0"))


_NODES: Final = Resource(plural="nodes", kind="Node", namespaced=False, view=_Node)


class OfferedGpus:
    """What the nodes have offered, and since when they have had no driver."""

    def __init__(self, machines: list[NodeMachine]) -> None:
        self._machines = {machine.node.name: machine for machine in machines}
        self._nodes: dict[str, _Node] = {}
        self._without_driver: dict[str, float] = {}
        self.withdrawn = set[str]()
        """The nodes that have offered GPUs, and then none."""
        self.wrong: list[str] = []

    def changed(self, before: _Node | None, after: _Node | None) -> None:
        """Compare a node's new offer with its driver."""
        if after is None:
            return
        name = after.metadata.name
        self._nodes[name] = after
        if before is not None and before.gpus and not after.gpus:
            self.withdrawn.add(name)
        more = after.gpus > (before.gpus if before is not None else 0)
        if more and not self._machines[name].kernel.version():
            self.wrong.append(f"{name} began to offer {after.gpus} GPUs without a driver")

    def look(self, *, now: float) -> None:
        """Look for nodes that go on to offer GPUs whose driver is gone."""
        for name, machine in self._machines.items():
            node = self._nodes.get(name)
            if machine.kernel.version() or node is None or self._is_of_earlier_boot(node):
                self._without_driver.pop(name, None)
                continue
            since = self._without_driver.setdefault(name, now)
            if node.gpus and now - since > STATUS_WITHIN:
                self.wrong.append(
                    f"{name} offers {node.gpus} GPUs {now - since:.0f} s after its driver"
                )

    def _is_of_earlier_boot(self, node: _Node) -> bool:
        """Whether the kubelet has written nothing since the machine was powered on."""
        return node.status.node_info.boot_id != self._machines[node.metadata.name].node.boot_id


@asynccontextmanager
async def offered_gpus(world: World) -> AsyncGenerator[OfferedGpus]:
    """Follow what the nodes offer; fail at the end if a GPU was offered that no pod could use."""
    clock = SystemClock()
    offered = OfferedGpus(world.machines)
    kubeconfig = world.ground.kube.kubeconfig()
    async with await open_transport(clock=clock, kubeconfig=kubeconfig) as transport:
        cache = Cache(Kube(transport, manager="test", clock=clock), _NODES, env=make_env())
        cache.on_change(offered.changed)

        async def look() -> None:
            while True:
                offered.look(now=clock.monotonic())
                await asyncio.sleep(_LOOK_EVERY)

        tasks = {asyncio.create_task(cache.run()), asyncio.create_task(look())}
        try:
            await cache.wait_synced()
            yield offered
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks), tasks
    assert offered.wrong == []
