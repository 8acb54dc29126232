"""A control plane and its real nodes, in a private network."""

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from libs.testing.child_process import HOST
from libs.testing.errors import ServerFailed
from libs.testing.netns import OwnNamespace, Relay
from libs.testing.owned_folder import abandoned_folders
from libs.testing.realkube.binaries import Binaries, find_binaries
from libs.testing.realkube.cluster import LoopThread, RealKube
from libs.testing.realkube.control_plane import PREFIX as PLANE_PREFIX
from libs.testing.realnodes import config
from libs.testing.realnodes.build import Containerd, Programs
from libs.testing.realnodes.cgroups import CGROUPS, remove_cgroups
from libs.testing.realnodes.node import BRIDGE, Node
from libs.testing.realnodes.node import PREFIX as NODE_PREFIX

_TOOLS: Final = ("ip", "nsenter", "unshare", "sysctl")


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSearch:
    """Whether real nodes can run on this machine."""

    binaries: Binaries | None
    programs: Programs
    explanation: str
    """One line: what runs, or what is missing and what to do."""


def find_nodes(environ: Mapping[str, str]) -> NodeSearch:
    """Look for what real nodes need on this machine."""
    programs = Programs.find(environ)
    kube = find_binaries(environ)
    missing = _missing(programs)
    if kube.binaries is None:
        missing.append("a real control plane (`make kube`)")
    if missing:
        explanation = f"no real nodes: they need {', '.join(missing)}"
        return NodeSearch(binaries=None, programs=programs, explanation=explanation)
    return NodeSearch(
        binaries=kube.binaries, programs=programs, explanation=f"real nodes from {programs.node}"
    )


def _missing(programs: Programs) -> list[str]:
    checks = {
        "Linux": sys.platform == "linux",
        "root": os.geteuid() == 0,
        f"cgroup v1 in {CGROUPS}": (CGROUPS / "memory").is_dir(),
        **{name: shutil.which(name) is not None for name in _TOOLS},
        "their programs (`make node`)": programs.node.is_dir(),
    }
    return [name for name, there in checks.items() if not there]


class Ground:
    """Runs from `start` to `stop`, on an event loop of its own, so it outlives a test's loop."""

    def __init__(self, network: OwnNamespace, kube: RealKube, thread: LoopThread) -> None:
        self.kube = kube
        self.nodes: Sequence[Node] = ()
        self.thread = thread
        self._network = network
        self._published: dict[int, Relay] = {}
        self._running = AsyncExitStack()

    @classmethod
    async def start(
        cls,
        search: NodeSearch,
        *,
        nodes: int,
        containerd: Containerd = Containerd.V2,
        users: Mapping[str, Sequence[str]] | None = None,
        reads_of: Sequence[str] = (),
    ) -> Self:
        """Start the control plane and the nodes; they get ready meanwhile.

        What has started is stopped if anything else fails.
        """
        if search.binaries is None:
            raise ServerFailed(search.explanation)
        await asyncio.to_thread(remove_leftovers)
        async with AsyncExitStack() as running:
            thread = LoopThread("real nodes")
            running.push_async_callback(thread.close)
            network = await thread.run(_network(nodes))
            running.push_async_callback(lambda: thread.run(network.stop()))
            kube = await RealKube.start(
                binaries=search.binaries,
                users={**_node_users(nodes), **(users or {})},
                reads_of=reads_of,
                network=network,
            )
            running.push_async_callback(kube.stop)
            ground = cls(network, kube, thread)
            ground.nodes = _nodes(search.programs, containerd, kube, network, nodes)
            running.push_async_callback(ground._stop_nodes)
            await _all(thread.run(node.start()) for node in ground.nodes)
            ground._running = running.pop_all()
        return ground

    async def publish(self, local: int, port: int) -> None:
        """Let nodes and pods reach a port of this machine's loopback at a port of their gateway."""
        self._published[port] = await self.thread.run(
            Relay.start((config.GATEWAY, port), (HOST, local), listens_in=self._network)
        )

    async def forward(self, to: str, port: int) -> None:
        """Let nodes and pods reach a port of a pod at the same port of their gateway."""
        self._published[port] = await self.thread.run(
            Relay.start(
                (config.GATEWAY, port),
                (to, port),
                listens_in=self._network,
                connects_in=self._network,
            )
        )

    def command(self, *argv: str) -> list[str]:
        """Return a command that runs another one in the network of the nodes."""
        return self._network.command(*argv)

    async def unpublish(self, port: int) -> None:
        """Close a port of the gateway, and its connections."""
        await self.thread.run(self._published.pop(port).stop())

    def problem(self) -> str | None:
        """Return which process of the ground has ended, with its last lines; nothing otherwise."""
        found = (each.problem() for each in (self.kube, *self.nodes))
        return next((problem for problem in found if problem), None)

    async def stop(self) -> None:
        """Stop everything, and remove it."""
        for port in list(self._published):
            await self.unpublish(port)
        await self._running.aclose()

    async def _stop_nodes(self) -> None:
        await _all(self.thread.run(node.stop()) for node in self.nodes)


async def _all(actions: Iterable[Awaitable[None]]) -> None:
    """Wait for all of these, then raise the first error."""
    for result in await asyncio.gather(*actions, return_exceptions=True):
        if result is not None:
            raise result


def _nodes(
    programs: Programs, containerd: Containerd, kube: RealKube, network: OwnNamespace, nodes: int
) -> list[Node]:
    return [
        Node(
            index + 1,
            programs=programs,
            containerd=containerd,
            kube=kube,
            network=network,
            nodes=nodes,
        )
        for index in range(nodes)
    ]


def _node_users(nodes: int) -> dict[str, Sequence[str]]:
    return {f"system:node:node-{index + 1}": ["system:nodes"] for index in range(nodes)}


def remove_leftovers() -> list[Path]:
    """Remove what killed processes have left of their control planes and nodes; return it."""
    nodes: list[Path] = []
    for folder in abandoned_folders(NODE_PREFIX):
        remove_cgroups(folder.name)
        nodes.append(folder)
    return [*nodes, *abandoned_folders(PLANE_PREFIX)]


async def _network(nodes: int) -> OwnNamespace:
    """Make the network of control plane and nodes, with a bridge between them."""
    network = await OwnNamespace.start("network of the nodes")
    for command in (
        f"ip link add {BRIDGE} type bridge",
        f"ip addr add {config.GATEWAY}/24 dev {BRIDGE}",
        f"ip link set {BRIDGE} up",
        *(
            f"ip route add {config.pod_network(index)} via {config.node_address(index)}"
            for index in range(1, nodes + 1)
        ),
    ):
        await network.run(*command.split())
    return network
