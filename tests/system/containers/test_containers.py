"""Three servers of NATS in containers, one of which is lost."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from libs.bus.accounts import User
from libs.bus.credentials import Credentials
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.port import BusUnavailable
from libs.bus.server_config import Nkey, ServerCluster, Tls, new_nkey, server_config
from libs.bus.streams import streams_with
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import STATE
from libs.testing.certificates import LOOPBACK, CertificateAuthority
from libs.testing.dockerd import Docker
from libs.testing.simulation import make_env
from tests.support import eventually
from tests.system.containers.world import Containers, address
from tests.system.install.world import NATS_IMAGE, write_nats_image

pytestmark = pytest.mark.timeout(400)

SCHEDULER = Identity(writer=Writer.SCHEDULER)
AGENT = Identity(writer=Writer.DRIVER, node="gpu-1")
SERVERS = ("nats-0", "nats-1", "nats-2")
HOSTS = {name: address(index) for index, name in enumerate(SERVERS)}
PATIENCE = 60.0

T = TypeVar("T")


@pytest.fixture
def containers(docker: Docker, testcontainers: Any) -> Containers:
    return Containers(docker, testcontainers)


@pytest.fixture
def keys() -> dict[Identity, Nkey]:
    return {identity: new_nkey() for identity in (SCHEDULER, AGENT)}


def users(keys: dict[Identity, Nkey]) -> list[User]:
    return [User(identity=identity, public_key=key.public) for identity, key in keys.items()]


def write_servers(folder: Path, keys: dict[Identity, Nkey]) -> None:
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
        text = own + server_config(users(keys), tls=tls, cluster=cluster)
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


async def test_three_servers_in_containers_lose_one(
    containers: Containers, keys: dict[Identity, Nkey], tmp_path: Path
) -> None:
    write_servers(tmp_path, keys)
    await containers.prepare(await asyncio.to_thread(write_nats_image, tmp_path))
    servers = {
        name: await containers.start(
            *(NATS_IMAGE, index, "nats-server", "--config", f"/settings/{name}.conf"),
            folder=tmp_path,
            hosts=HOSTS,
        )
        for index, name in enumerate(SERVERS)
    }
    ports = [await containers.docker.reach(HOSTS[name], 4222) for name in SERVERS]
    url = ",".join(f"tls://127.0.0.1:{port}" for port in ports)
    ca_file = str(tmp_path / "ca.crt")

    def bus(identity: Identity) -> Any:
        credentials = Credentials(nkey_seed=keys[identity].seed, ca_file=ca_file)
        return connect(
            url=url, identity=identity, env=make_env(), credentials=credentials, wait=PATIENCE
        )

    report = str(
        subjects.State(cluster="default", node="gpu-1", component="driver", kind="progress")
    )
    async with bus(SCHEDULER) as scheduler, bus(AGENT) as agent:
        for stream in streams_with(3):
            await persistently(lambda stream=stream: scheduler.ensure(stream))
        await persistently(lambda: agent.store(STATE, report, b"with three", id="1"))
        leader = await persistently(lambda: leader_of(scheduler, STATE.name))
        await asyncio.to_thread(servers[leader].get_wrapped_container().kill)

        stored = await persistently(lambda: scheduler.last(STATE, report))
        assert stored is not None
        assert stored.data == b"with three"
        await persistently(lambda: agent.store(STATE, report, b"with two", id="2"))

        await asyncio.to_thread(servers[leader].get_wrapped_container().start)
        await persistently(lambda: leader_of(scheduler, STATE.name))
        stored = await persistently(lambda: scheduler.last(STATE, report))
        assert stored is not None
        assert stored.data == b"with two"
