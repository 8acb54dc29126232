"""Three servers of NATS in containers, one of which is lost; with them a service and its agents."""

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from libs.bus.nats.bus import NatsBus, connect
from libs.bus.port import BusUnavailable
from libs.bus.server_config import ServerCluster, Tls, server_config
from libs.bus.streams import streams_with
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import STATE
from libs.kube.client import Kube
from libs.kube.resources import LEASES, NAMESPACES, NODES
from libs.policy.crds import CEL_RULES
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.certificates import LOOPBACK, CertificateAuthority
from libs.testing.child_process import HOST
from libs.testing.dockerd import Docker
from libs.testing.image.assemble import assemble
from libs.testing.image.build import IMAGE, is_quick
from libs.testing.netns import Relay
from libs.testing.sign_in import TokenSignIn
from libs.testing.simulation import make_env
from services.discovery.cluster.role import LEASE
from tests.builders.fake_machine import BOOT, FakeMachine
from tests.builders.machine_files import put_device
from tests.component.programs import NAMESPACE
from tests.run.plan import GroundKind
from tests.support import eventually
from tests.system.containers.world import GATEWAY, Containers, address
from tests.system.install.world import NATS_IMAGE, write_nats_image

pytestmark = GroundKind.DOCKER.marker()

SCHEDULER = Identity(writer=Writer.SCHEDULER)
AGENT = Identity(writer=Writer.DRIVER, node="gpu-1")
SERVICE = Identity(writer=Writer.DISCOVERY_CLUSTER)
NODE_AGENTS = [Identity(writer=Writer.DISCOVERY, node=node) for node in ("gpu-1", "gpu-2")]
SERVERS = ("nats-0", "nats-1", "nats-2")
HOSTS = {name: address(index) for index, name in enumerate(SERVERS)}
PATIENCE = 60.0
API_PORT = 8001
WITHOUT_RIGHTS = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}

T = TypeVar("T")


@pytest.fixture
def containers(docker: Docker, testcontainers: Any) -> Iterator[Containers]:
    containers = Containers(docker, testcontainers)
    yield containers
    sys.stdout.write(containers.logs())


@pytest.fixture
def sign_in(tmp_path: Path) -> TokenSignIn:
    folder = tmp_path / "sign-in"
    folder.mkdir()
    return TokenSignIn((SCHEDULER, AGENT, SERVICE, *NODE_AGENTS), folder)


def write_servers(folder: Path, sign_in: TokenSignIn) -> None:
    """Write the configuration of three servers with one certificate, as the chart mounts it."""
    authority = CertificateAuthority()
    authority.write(folder / "ca.crt")
    authority.issue(folder, "tls", names=(*SERVERS, *LOOPBACK))
    tls = Tls(
        cert_file="/settings/tls.pem", key_file="/settings/tls.key", ca_file="/settings/ca.crt"
    )
    cluster = ServerCluster(
        name="sluice",
        listen="0.0.0.0:6222",
        routes=tuple(f"nats-route://{name}:6222" for name in SERVERS),
        size=len(SERVERS),
    )
    for name in SERVERS:
        own = (
            f"server_name: {name}\nlisten: 0.0.0.0:4222\n"
            "jetstream { store_dir: /data, max_file: 16GB }\n"
        )
        text = own + server_config(sign_in.settings(), tls=tls, cluster=cluster)
        (folder / f"{name}.conf").write_text(text)


async def persistently(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call while the bus is unavailable, as its callers do."""
    results: list[T] = []

    async def try_once() -> bool:
        try:
            results.append(await call())
        except BusUnavailable:
            return False
        return True

    await eventually(try_once, within=PATIENCE, every=0.2)
    return results[0]


async def leader_of(bus: NatsBus, stream: str) -> str:
    answer = await bus.request(subjects.js_api("STREAM", "INFO", stream), b"")
    cluster = json.loads(answer).get("cluster", {})
    current = [each["current"] for each in cluster.get("replicas", [])]
    if not cluster.get("leader") or current != [True, True]:
        raise BusUnavailable(f"{stream}: {answer!r}")
    return cluster["leader"]


class Servers:
    """Three servers of NATS, each in a container."""

    def __init__(
        self, by_name: Mapping[str, Any], url: str, sign_in: TokenSignIn, ca_file: Path
    ) -> None:
        self._by_name = by_name
        self._url = url
        self._sign_in = sign_in
        self._ca_file = str(ca_file)

    def admitting(self) -> Any:
        """Run sign-in, beside the containers."""
        return self._sign_in.run(self._url, ca_file=self._ca_file)

    def bus(self, identity: Identity) -> Any:
        credentials = self._sign_in.credentials(identity, ca_file=self._ca_file)
        return connect(
            url=self._url, identity=identity, env=make_env(), credentials=credentials, wait=PATIENCE
        )

    async def kill_leader(self, bus: NatsBus) -> Any:
        """Kill the server that leads a stream; return its container."""
        leader = await persistently(lambda: leader_of(bus, STATE.name))
        await asyncio.to_thread(self._by_name[leader].kill)
        return self._by_name[leader]


async def start_servers(
    containers: Containers, sign_in: TokenSignIn, folder: Path, *images: Path
) -> Servers:
    write_servers(folder, sign_in)
    await containers.prepare(await asyncio.to_thread(write_nats_image, folder), *images)
    by_name = {
        name: await containers.start(
            *(NATS_IMAGE, index, "nats-server", "--config", f"/settings/{name}.conf"),
            folder=folder,
            hosts=HOSTS,
        )
        for index, name in enumerate(SERVERS)
    }
    ports = [await containers.docker.reach(HOSTS[name], 4222) for name in SERVERS]
    url = ",".join(f"tls://127.0.0.1:{port}" for port in ports)
    return Servers(by_name, url, sign_in, folder / "ca.crt")


async def make_streams(bus: NatsBus) -> None:
    for stream in streams_with(3):
        await persistently(lambda stream=stream: bus.ensure(stream))


async def test_three_servers_in_containers_lose_one(
    containers: Containers, sign_in: TokenSignIn, tmp_path: Path
) -> None:
    servers = await start_servers(containers, sign_in, tmp_path)
    report = str(
        subjects.State(cluster="default", node="gpu-1", component="driver", kind="progress")
    )
    async with (
        servers.admitting(),
        servers.bus(SCHEDULER) as scheduler,
        servers.bus(AGENT) as agent,
    ):
        await make_streams(scheduler)
        await persistently(lambda: agent.store(STATE, report, b"with three", id="1"))
        leader = await servers.kill_leader(scheduler)

        stored = await persistently(lambda: scheduler.last(STATE, report))
        assert stored is not None
        assert stored.data == b"with three"
        await persistently(lambda: agent.store(STATE, report, b"with two", id="2"))

        await asyncio.to_thread(leader.start)
        await persistently(lambda: leader_of(scheduler, STATE.name))
        stored = await persistently(lambda: scheduler.last(STATE, report))
        assert stored is not None
        assert stored.data == b"with two"


def write_settings(folder: Path, sign_in: TokenSignIn) -> None:
    """Write what the containers read, for the user that they run as; this is a test's machine."""
    for identity in (SERVICE, *NODE_AGENTS):
        (folder / f"{identity.writer}-{identity.node}.token").write_text(sign_in.tokens[identity])
    machine = FakeMachine(folder / "machine")
    put_device(machine.root, "0000:01:00.0")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@asynccontextmanager
async def api_server(docker: Docker, folder: Path) -> AsyncGenerator[tuple[Kube, Path]]:
    """Run a simulated API server that containers reach; yield a client and the service's file."""
    clock = SystemClock()
    server = ApiServer(
        clock=clock, ids=SeededIds(random.Random(2)), random=random.Random(1), rules=CEL_RULES
    )
    async with serve_http(server) as front:
        at = (GATEWAY, API_PORT)
        port = int(front.url.rpartition(":")[2])
        relay = await Relay.start(at, (HOST, port), listens_in=docker.network)
        kubeconfig = front.kubeconfig(folder, SERVICE.writer)
        inside = kubeconfig.read_text().replace(front.url, f"http://{GATEWAY}:{API_PORT}")
        kubeconfig.write_text(inside)
        kube = Kube(server.transport(user="person"), manager="kubectl", clock=clock)
        await kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await kube.create(LEASES, {"metadata": {"name": LEASE}}, namespace=NAMESPACE)
        try:
            yield kube, kubeconfig
        finally:
            await relay.stop()
            await server.stop()


async def test_a_service_and_its_agents_work_in_containers_while_a_server_is_lost(
    containers: Containers, sign_in: TokenSignIn, tmp_path: Path
) -> None:
    if not is_quick(os.environ):
        pytest.skip("no image: run `make image`")
    archive = tmp_path / "sluice.tar"
    await asyncio.to_thread(assemble, archive, IMAGE, os.environ, report=lambda _: None)
    settings = tmp_path / "settings"
    settings.mkdir()
    servers = await start_servers(containers, sign_in, settings, archive)

    async def start(identity: Identity, role: str, index: int, **more: str) -> Any:
        own = {
            "nats_url": ",".join(f"tls://{name}:4222" for name in SERVERS),
            "nats_ca_file": "/settings/ca.crt",
            "nats_token_file": f"/settings/{identity.writer}-{identity.node}.token",
            "namespace": NAMESPACE,
            **more,
        }
        return await containers.start(
            *(IMAGE, index, "services.discovery", role),
            folder=settings,
            hosts=HOSTS,
            environ={f"SLUICE_{name.upper()}": value for name, value in own.items()},
            writable=["/var/lib/sluice"],
            **WITHOUT_RIGHTS,
        )

    async with (
        servers.admitting(),
        api_server(containers.docker, settings) as (kube, kubeconfig),
    ):
        write_settings(settings, sign_in)
        service = await start(SERVICE, "cluster", 3, kubeconfig=f"/settings/{kubeconfig.name}")

        async def start_agent(identity: Identity, index: int) -> None:
            status = {"nodeInfo": {"bootID": BOOT}}
            body = {"metadata": {"name": identity.node}, "status": status}
            node = await kube.create(NODES, body)
            await start(
                *(identity, "agent", index),
                node=identity.node,
                node_uid=node.metadata.uid,
                host_root="/settings/machine",
            )

            async def is_labelled() -> bool:
                labels = (await kube.get(NODES, identity.node)).metadata.labels
                return labels.get("nvidia.com/gpu.present") == "true"

            await eventually(is_labelled, within=120, every=0.2)

        first, second = NODE_AGENTS
        async with servers.bus(SCHEDULER) as scheduler:
            await make_streams(scheduler)
            await start_agent(first, 4)
            await servers.kill_leader(scheduler)
            await start_agent(second, 5)
    await asyncio.to_thread(service.stop, timeout=60)
    assert service.wait()["StatusCode"] == 0
    assert "Traceback" not in service.logs().decode()
