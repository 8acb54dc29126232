"""The faults of the storm: each breaks one thing for a while, mends it, and says what it did."""

import asyncio
import os
import random
import signal
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from demo.admin import POLICY, path_of
from demo.environment import CLUSTER, SERVICES, DemoEnvironment
from demo.node_agents import AGENT_KINDS
from libs.contracts.identities import Writer
from libs.contracts.subjects import STREAMS
from libs.kube.client import MERGE_PATCH, Kube
from libs.kube.errors import KubeError

SHORTEST, LONGEST = 5.0, 20.0
"""Seconds for which a thing is broken."""
MAX_UNAVAILABLE: Final = 2
"""One place may be occupied by the hostile node."""
_BALLAST: Final = "ballast"
_REFUSED: Final = ({"maxParallelUpgrades": -1}, {"drain": "yes"})
"""Values that the API server refuses."""
_NONSENSE: Final = {"maxUnavailable": "many"}
"""A value that only Sluice can refuse: it pauses the pool until a person mends it."""


class Faults:
    """Break things one after another, until cancelled; then everything is mended."""

    def __init__(
        self,
        up: DemoEnvironment,
        *,
        kube: Kube,
        nodes: Sequence[str],
        small_disk: Path | None,
        random: random.Random,
        print_line: Callable[[str], None],
    ) -> None:
        """`small_disk` is the folder of one agent on a disk of its own, if there is one."""
        self._up = up
        self._kube = kube
        self._nodes = nodes
        self._small_disk = small_disk
        self._random = random
        self._print_line = print_line
        self._streams = deque(stream.name for stream in STREAMS)
        self.stopped: set[str] = set()
        """Names of the processes that cannot answer now."""
        self.count = 0

    async def run(self) -> None:
        faults: list[Callable[[], Awaitable[None]]] = [
            self._kill_service,
            self._kill_agent,
            self._stop_service,
            self._stop_machine,
            self._stop_api_server,
            self._stop_nats,
            self._kill_nats,
            self._lose_stream,
            self._patch_policy,
        ]
        if self._small_disk is not None:
            faults.append(self._fill_disk)
        while True:
            self._random.shuffle(faults)
            for fault in faults:
                await asyncio.sleep(self._random.uniform(SHORTEST, LONGEST))
                await fault()
                self.count += 1

    async def _kill_service(self) -> None:
        service = self._random.choice(SERVICES).writer
        self._print_line(f"kill -9 {service}")
        await self._up.kill(service, node="")

    async def _kill_agent(self) -> None:
        node, agent = self._random.choice(self._nodes), self._random.choice([*AGENT_KINDS])
        self._print_line(f"kill -9 the {agent} agent of {node}")
        await self._up.kill(agent, node=node)

    async def _stop_service(self) -> None:
        await self._stop(self._random.choice(SERVICES).writer)

    async def _stop_machine(self) -> None:
        await self._stop(self._random.choice(self._nodes))

    async def _stop_api_server(self) -> None:
        await self._stop(CLUSTER)

    async def _stop(self, name: str) -> None:
        """Stop a process for a while, as a machine that swaps or a frozen container does."""
        child = self._up.processes.processes[name].child
        seconds = self._broken_seconds()
        self._print_line(f"stop {name} for {seconds:.0f} s")
        self.stopped.add(name)
        child.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            child.send_signal(signal.SIGCONT)
            self.stopped.discard(name)

    async def _stop_nats(self) -> None:
        pid, seconds = self._up.nats.pid, self._broken_seconds()
        self._print_line(f"stop nats-server for {seconds:.0f} s")
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    async def _kill_nats(self) -> None:
        seconds = self._broken_seconds()
        self._print_line(f"kill -9 nats-server; it is back in {seconds:.0f} s")
        await self._up.nats.kill()
        try:
            await asyncio.sleep(seconds)
        finally:
            await self._up.nats.start()

    async def _lose_stream(self) -> None:
        """Lose all that one stream holds, each in turn; the server is killed for it."""
        self._streams.rotate(1)
        self._print_line(f"kill -9 nats-server; it comes back without {self._streams[0]}")
        await self._up.nats.lose_stream(self._streams[0])

    async def _patch_policy(self) -> None:
        """Change how many nodes are upgraded at once; write nonsense, and mend it."""
        parallel, seconds = self._random.randint(1, 3), self._broken_seconds()
        self._print_line(
            f"patch the policy: maxParallelUpgrades {parallel}, and nonsense for {seconds:.0f} s"
        )
        await self._patch({"maxParallelUpgrades": parallel})
        for refused in _REFUSED:
            with suppress(KubeError):
                await self._patch(refused)
        await self._patch(_NONSENSE)
        try:
            await asyncio.sleep(seconds)
        finally:
            await self._patch({"maxUnavailable": MAX_UNAVAILABLE})

    async def _patch(self, upgrade_policy: Mapping[str, object]) -> None:
        await self._kube.request(
            "PATCH",
            path_of("nvidia.com/v1", "ClusterPolicy", name=POLICY),
            query={"fieldManager": "kubectl"},
            body={"spec": {"driver": {"upgradePolicy": upgrade_policy}}},
            content_type=MERGE_PATCH,
        )

    async def _fill_disk(self) -> None:
        """Fill the disk of one agent until nothing more can be written."""
        assert self._small_disk is not None
        ballast, seconds = self._small_disk / _BALLAST, self._broken_seconds()
        self._print_line(f"fill the disk of an agent for {seconds:.0f} s")
        await asyncio.to_thread(_fill, ballast)
        try:
            await asyncio.sleep(seconds)
        finally:
            await asyncio.to_thread(ballast.unlink)

    def _broken_seconds(self) -> float:
        return self._random.uniform(SHORTEST, LONGEST)


def _fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 512)


@asynccontextmanager
async def small_disk(folder: Path) -> AsyncGenerator[bool]:
    """Mount a disk of 512 KiB on a folder, and say whether that was allowed."""
    await asyncio.to_thread(folder.mkdir, parents=True)
    mounted = await _succeeds("mount", "-t", "tmpfs", "-o", "size=512k", "sluice", str(folder))
    try:
        yield mounted
    finally:
        if mounted:
            await _succeeds("umount", str(folder))


async def _succeeds(*argv: str) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.DEVNULL)
    except FileNotFoundError:
        return False
    return await process.wait() == 0


def agent_folder(up: DemoEnvironment, node: str) -> Path:
    """Return where the driver agent of a machine keeps its journal."""
    return up.paths.machine(node) / "var/lib/sluice" / Writer.DRIVER
