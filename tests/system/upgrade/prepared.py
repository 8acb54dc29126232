"""The claims that the plugins have prepared, while pods use them and drivers change.

A plugin keeps them in a file on its node. It is compared with the processes of the pods and with
the driver in the kernel of the machine at that time.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from libs.contracts.identities import Writer
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.kube.views.claims import RESOURCE_CLAIMS, ResourceClaim
from libs.policy.render.agents import STATE_DIR
from libs.runtime.clock import SystemClock
from libs.testing.realnodes.init import disk_folder
from libs.testing.realnodes.machine import NodeMachine
from libs.testing.realnodes.node import Node
from libs.testing.simulation import make_env
from services.driver.cluster.claim_notices import node_of
from services.driver.dra.checkpoint import PATH, PreparedClaim
from tests.system.nodes.usage import container_processes
from tests.system.upgrade.world import World

_LOOK_EVERY: Final = 0.2


class PreparedClaims:
    """What was prepared on the nodes since the beginning."""

    def __init__(self, machines: list[NodeMachine]) -> None:
        self._machines = machines
        self._pods: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """The uids of pods by node and name of their claim, also of those that have ended."""
        self.now: dict[str, set[str]] = {}
        """The names of the claims that are prepared, by node."""
        self.drivers: dict[str, str] = {}
        """The driver of the machine when a claim was first seen prepared, by name of the claim."""
        self.used = set[str]()
        """The names of the claims that were seen prepared while a pod ran."""
        self.wrong: list[str] = []

    def changed(self, _before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        """Record the pods of a claim that has GPUs of a node."""
        if after is not None and (node := node_of(after)):
            users = {each.uid for each in after.status.reserved_for}
            self._pods[node, after.metadata.name] |= users

    def look(self) -> None:
        """Look for pods that run while their claim is not prepared."""
        for machine in self._machines:
            before = self._running(machine)
            prepared = _prepared(machine)
            self.now[machine.node.name] = prepared
            for name in prepared - self.drivers.keys():
                self.drivers[name] = machine.kernel.version()
            # What ran before the file was read and after it, ran meanwhile.
            after = self._running(machine)
            used = {name for name, processes in before.items() if processes & after[name]}
            self.used |= used & prepared
            self.wrong += [
                f"{machine.node.name}: a pod runs whose claim {name} is not prepared"
                for name in used - prepared
            ]

    def _running(self, machine: NodeMachine) -> dict[str, set[int]]:
        """Return the processes of users' containers by name of the claim."""
        return {
            name: {pid for pod in pods for pid in _processes(machine.node, pod)}
            for (node, name), pods in self._pods.items()
            if node == machine.node.name
        }


def _processes(node: Node, pod: str) -> set[int]:
    try:
        return container_processes(node, pod)
    except OSError:  # its cgroups are being removed
        return set()


def _prepared(machine: NodeMachine) -> set[str]:
    """Return the names of the claims that a plugin has prepared."""
    file = disk_folder(machine.node.folder, STATE_DIR) / Writer.DRA.value / PATH.strip("/")
    if not file.exists():
        return set()
    prepared = msgspec.json.decode(file.read_bytes(), type=dict[str, PreparedClaim])
    return {each.claim.name for each in prepared.values()}


@asynccontextmanager
async def prepared_claims(world: World) -> AsyncGenerator[PreparedClaims]:
    """Follow what is prepared; fail at the end if a pod ran without its claim."""
    clock = SystemClock()
    found = PreparedClaims(world.machines)
    kubeconfig = world.ground.kube.kubeconfig()
    async with await open_transport(clock=clock, kubeconfig=kubeconfig) as transport:
        cache = Cache(Kube(transport, manager="test", clock=clock), RESOURCE_CLAIMS, env=make_env())
        cache.on_change(found.changed)

        async def look() -> None:
            while True:
                found.look()
                await asyncio.sleep(_LOOK_EVERY)

        tasks = {asyncio.create_task(cache.run()), asyncio.create_task(look())}
        try:
            await cache.wait_synced()
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks), tasks
    assert found.wrong == []
