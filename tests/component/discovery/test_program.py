"""The program as people start it: a machine's agent and the cluster's role, over NATS and HTTP."""

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
from libs.kube.client import Kube
from libs.kube.resources import LEASES, NAMESPACES
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.child_process import ChildProcess
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env
from services.discovery.cluster import resources
from services.discovery.cluster.role import LEASE
from tests.support import eventually
from tests.unit.fake_machine import BOOT, FakeMachine
from tests.unit.host.builders import put

PLAIN = {
    "SLUICE_HTTP_HOST": "127.0.0.1",
    "SLUICE_HTTP_PORT": "0",
    "SLUICE_LOG_FORMAT": "text",
    "PYTHONDONTWRITEBYTECODE": "1",
}

DEVICE = {
    "class": "0x030200",
    "vendor": "0x10de",
    "device": "0x2330",
    "subsystem_vendor": "0x10de",
    "subsystem_device": "0x16c1",
}


class Programs:
    """A cluster and a bus, and the programs that were started on them."""

    def __init__(self, stack: AsyncExitStack, folder: Path, nats: NatsServer) -> None:
        self.folder = folder
        self.nats = nats
        self._stack = stack
        clock = SystemClock()
        self.server = ApiServer(
            clock=clock, ids=SeededIds(random.Random(2)), random=random.Random(1)
        )
        self.kube = Kube(self.server.transport(user="person"), manager="kubectl", clock=clock)

    async def start(self, role: str, **told: str) -> ChildProcess:
        """One of them; it is killed at the end if it still lives."""
        environ = {f"SLUICE_{name.upper()}": value for name, value in told.items()}
        command = (sys.executable, "-W", "error", "-m", "services.discovery", role)
        child = await ChildProcess.start(
            f"discovery {role}",
            *command,
            environ={**PLAIN, "SLUICE_NATS_URL": self.nats.url, **environ},
        )
        self._stack.push_async_callback(child.destroy)
        return child


@pytest.fixture
async def programs(tmp_path: Path) -> AsyncIterator[Programs]:
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(NatsServer())
        yield Programs(stack, tmp_path, nats)


async def test_what_an_agent_sees_becomes_labels(programs: Programs) -> None:
    box = FakeMachine(programs.folder / "machine")
    for name, word in DEVICE.items():
        put(box.root, f"/sys/bus/pci/devices/0000:01:00.0/{name}", word)
    async with serve_http(programs.server) as door:
        kube, kubeconfig = programs.kube, door.kubeconfig(programs.folder, "discovery")
        await kube.create(NAMESPACES, {"metadata": {"name": "here"}})
        await kube.create(LEASES, {"metadata": {"name": LEASE}}, namespace="here")
        machine = {"metadata": {"name": "a"}, "status": {"nodeInfo": {"bootID": BOOT}}}
        uid = (await kube.create(resources.NODES, machine)).metadata.uid
        # Both are there before the streams are.
        role = await programs.start("cluster", namespace="here", kubeconfig=str(kubeconfig))
        agent = await programs.start(
            "agent",
            node="a",
            node_uid=uid,
            host_root=str(box.root),
            state_dir=str(programs.folder / "state"),
        )
        scheduler = connect(
            url=programs.nats.url,
            identity=Identity(writer=Writer.SCHEDULER),
            env=make_env(),
        )
        async with scheduler as bus:
            for stream in STREAMS:
                await bus.ensure(stream)

            async def labelled() -> bool:
                labels = (await kube.get(resources.NODES, "a")).metadata.labels
                return labels.get("nvidia.com/gpu.present") == "true"

            await eventually(labelled, within=60, every=0.05)
        for child in (agent, role):
            await child.end(signal.SIGTERM, code=0)
    await programs.server.stop()
    found = programs.server.journal.revisions
    assert [one.verb for one in found if one.user == "discovery" and one.kind == "Node"] == [
        "apply"
    ]
