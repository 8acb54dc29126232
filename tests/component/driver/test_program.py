"""The program of the cluster role as people start it, over HTTP and NATS, whichever comes first."""

import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from libs.bus.nats.bus import connect
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import STREAMS
from libs.kube.client import APPLY_PATCH, Kube
from libs.kube.resources import LEASES, NAMESPACES
from libs.policy.crds import CEL_RULES, crd_manifests
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.child_process import ChildProcess
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env
from services.driver.cluster import resources
from services.driver.cluster.role import LEASE
from tests.component.policy.strict_writes import object_path, send
from tests.support import eventually
from tests.unit.policy.situations import cluster_policy

IMAGES = ("discovery", "driver", "validator", "telemetry")
TOLD = {
    "SLUICE_HTTP_HOST": "127.0.0.1",
    "SLUICE_HTTP_PORT": "0",
    "SLUICE_LOG_FORMAT": "text",
    "SLUICE_NAMESPACE": "here",
    "PYTHONDONTWRITEBYTECODE": "1",
    **{f"SLUICE_IMAGES_{name.upper()}": f"r.example/sluice/{name}:1" for name in IMAGES},
}


class ProgramWorld:
    """A cluster with a policy in it, and a bus."""

    def __init__(self, stack: AsyncExitStack, folder: Path, nats: NatsServer) -> None:
        self.nats = nats
        self._stack = stack
        self._folder = folder
        clock = SystemClock()
        self.server = ApiServer(
            clock=clock, ids=SeededIds(random.Random(2)), random=random.Random(1), rules=CEL_RULES
        )
        self.kube = Kube(self.server.transport(user="person"), manager="kubectl", clock=clock)

    async def install(self) -> None:
        """Namespace, lease, kinds, and a policy."""
        await self.kube.create(NAMESPACES, {"metadata": {"name": "here"}})
        await self.kube.create(LEASES, {"metadata": {"name": LEASE}}, namespace="here")
        policy = cluster_policy()
        del policy["metadata"]["uid"]
        for obj in (*crd_manifests().values(), policy):
            status, _, answer = await send(
                self.server.transport(user="person"),
                "PATCH",
                object_path(obj),
                obj,
                content=APPLY_PATCH,
                force="true",
                fieldManager="kubectl",
            )
            assert status in (200, 201), answer

    async def start(self) -> ChildProcess:
        """The program; it is killed at the end if it still lives."""
        door = await self._stack.enter_async_context(serve_http(self.server))
        kubeconfig = door.kubeconfig(self._folder, "driver-cluster")
        child = await ChildProcess.start(
            "driver cluster",
            *(sys.executable, "-W", "error", "-m", "services.driver", "cluster"),
            environ={
                **TOLD,
                "SLUICE_KUBECONFIG": str(kubeconfig),
                "SLUICE_NATS_URL": self.nats.url,
            },
        )
        self._stack.push_async_callback(child.destroy)
        return child

    async def operands(self) -> set[str]:
        """DaemonSets that are there."""
        page = await self.kube.list_page(resources.DAEMON_SETS, namespace="here")
        return {one.metadata.name for one in page.items}


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[ProgramWorld]:
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(NatsServer())
        there = ProgramWorld(stack, tmp_path, nats)
        stack.push_async_callback(there.server.stop)
        yield there


async def test_operands_do_not_wait_for_the_bus_and_being_ready_does(town: ProgramWorld) -> None:
    await town.nats.stop()
    await town.install()
    child = await town.start()

    async def brought_up() -> bool:
        return "nvidia-operator-validator" in await town.operands()

    await eventually(brought_up, within=60, every=0.05)
    assert "driver-cluster is waiting for NATS" in child.log
    assert "phase=ready" not in child.log
    await town.nats.start()
    async with connect(
        url=town.nats.url,
        identity=Identity(writer=Writer.SCHEDULER),
        env=make_env(),
    ) as bus:
        for stream in STREAMS:
            await bus.ensure(stream)
        await child.wait_for_log("phase=ready")
    assert "service=driver-cluster" in child.log
    await child.end(signal.SIGTERM, code=0)
