"""The role `setup` on the simulated API server, and a nats-server that reads what it wrote."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509

from libs.bus.callout import CalloutKeys
from libs.contracts.journal import Revision
from libs.kube.client import Kube
from libs.kube.resources import CONFIG_MAPS, NAMESPACES
from libs.runtime.clock import SystemClock
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.nats import NatsServer, binary
from services.signin.setup.certificates import CA_LIFE, SERVER_LIFE
from services.signin.setup.contents import AUTHORITY, CA, KEYS, SECRETS, SERVER, Unusable, Wanted
from services.signin.setup.role import MANAGER, set_up
from tests.component.signin.conftest import NAMESPACE

NOW = 1_800_000_000.0
WANTED = Wanted(namespace=NAMESPACE, servers=1, nodes=10)
THREE = msgspec.structs.replace(WANTED, servers=3)


class _Data(msgspec.Struct):
    data: dict[str, bytes]


@pytest.fixture
async def kube(apiserver: ApiServer) -> AsyncIterator[Kube]:
    kube = Kube(apiserver.transport(user="setup"), manager=MANAGER, clock=SystemClock())
    await kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    yield kube
    await apiserver.stop()


async def read(kube: Kube, name: str) -> dict[str, str]:
    body = await kube.request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}")
    data = msgspec.json.decode(body, type=_Data).data
    return {file: text.decode() for file, text in data.items()}


async def put(kube: Kube, name: str, data: dict[str, bytes]) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"
    await kube.request(
        "PATCH", path, body={"data": data}, content_type="application/merge-patch+json"
    )


def certificate(files: dict[str, str], file: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(files[file].encode())


def writes(apiserver: ApiServer) -> list[Revision]:
    return [each for each in apiserver.journal.revisions if each.kind in ("Secret", "ConfigMap")]


async def test_everything_is_made_once(apiserver: ApiServer, kube: Kube) -> None:
    assert sorted(await set_up(kube, WANTED, now=NOW)) == sorted((*SECRETS, CA))
    made = {name: await read(kube, name) for name in SECRETS}
    # A second run, at the end of the first half of the shortest life, writes nothing.
    later = NOW + SERVER_LIFE.total_seconds() / 2 - 2 * 3600
    assert await set_up(kube, WANTED, now=later) == []
    assert {name: await read(kube, name) for name in SECRETS} == made
    assert len(writes(apiserver)) == len(SECRETS) + 1

    seeds = made[KEYS]
    public = CalloutKeys.from_seeds(seeds["signing.seed"], seeds["xkey.seed"])
    config = made[SERVER]["nats.conf"]
    assert f"issuer: {public.public_signing}\n" in config
    assert f"xkey: {public.public_xkey}\n" in config
    secrets = [*seeds.values(), made[AUTHORITY]["ca.key"]]
    assert not [each for each in secrets if each in "".join(made[SERVER].values())]


async def test_an_outdated_certificate_is_renewed_and_the_ca_stays(kube: Kube) -> None:
    await set_up(kube, WANTED, now=NOW)
    before = await read(kube, SERVER)
    assert await set_up(kube, WANTED, now=NOW + SERVER_LIFE.total_seconds() / 2) == [SERVER]
    after = await read(kube, SERVER)
    assert after["ca.crt"] == before["ca.crt"]
    assert after["nats.conf"] == before["nats.conf"]
    assert (
        certificate(after, "tls.crt").not_valid_after_utc
        - certificate(before, "tls.crt").not_valid_after_utc
        == SERVER_LIFE / 2
    )


async def test_a_renewed_ca_and_the_old_one_verify_old_and_new_servers(kube: Kube) -> None:
    await set_up(kube, WANTED, now=NOW)
    before = await read(kube, SERVER)
    written = await set_up(kube, WANTED, now=NOW + CA_LIFE.total_seconds() / 2)
    assert sorted(written) == sorted((AUTHORITY, CA, SERVER))
    after = await read(kube, SERVER)
    assert after["ca.crt"] != before["ca.crt"]
    for ca in (before, after):
        for server in (before, after):
            certificate(server, "tls.crt").verify_directly_issued_by(certificate(ca, "ca.crt"))
    listed = await kube.get(CONFIG_MAPS, CA, namespace=NAMESPACE)
    assert listed.metadata.name == CA


async def test_three_servers_get_a_certificate_with_their_names(kube: Kube) -> None:
    await set_up(kube, WANTED, now=NOW)
    assert await set_up(kube, THREE, now=NOW) == [SERVER]
    files = await read(kube, SERVER)
    extensions = certificate(files, "tls.crt").extensions
    named = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert named.get_values_for_type(x509.DNSName) == [
        "sluice-nats",
        "sluice-nats.gpu-operator",
        "sluice-nats.gpu-operator.svc",
        *(f"sluice-nats-{index}.sluice-nats-servers.gpu-operator.svc" for index in range(3)),
    ]


@pytest.mark.parametrize(
    ("name", "file", "says"),
    [
        (KEYS, "xkey.seed", "the Secret sluice-signin-keys lacks a seed"),
        (AUTHORITY, "ca.key", "ca.crt and ca.key of the Secret sluice-nats-authority cannot"),
    ],
)
async def test_damaged_secrets_are_named_and_stay(
    apiserver: ApiServer, kube: Kube, name: str, file: str, says: str
) -> None:
    await set_up(kube, WANTED, now=NOW)
    await put(kube, name, {file: b"SOMETHING ELSE"})
    wrote = len(writes(apiserver))
    with pytest.raises(Unusable, match=says) as raised:
        await set_up(kube, WANTED, now=NOW)
    assert "SOMETHING" not in str(raised.value)
    assert len(writes(apiserver)) == wrote


async def test_a_damaged_certificate_of_servers_is_replaced(kube: Kube) -> None:
    await set_up(kube, WANTED, now=NOW)
    await put(kube, SERVER, {"tls.key": b"x"})
    assert await set_up(kube, WANTED, now=NOW) == [SERVER]
    assert "PRIVATE KEY" in (await read(kube, SERVER))["tls.key"]


@pytest.mark.parametrize("wanted", [WANTED, THREE], ids=["1 server", "3 servers"])
async def test_nats_accepts_the_files(kube: Kube, tmp_path: Path, wanted: Wanted) -> None:
    clock = SystemClock()
    await set_up(kube, msgspec.structs.replace(wanted, folder=str(tmp_path)), now=clock.now())
    files = {**await read(kube, SERVER), **await read(kube, KEYS)}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    if wanted.servers > 1:
        own = f"server_name: sluice-nats-0\njetstream {{ store_dir: {tmp_path}/store }}\n"
        (tmp_path / "whole.conf").write_text(own + "include nats.conf\n")
        program = await asyncio.to_thread(binary)
        process = await asyncio.create_subprocess_exec(
            program, "-t", "-c", str(tmp_path / "whole.conf")
        )
        assert await process.wait() == 0
        return
    async with NatsServer(config=files["nats.conf"]) as server:
        tls = ssl.create_default_context(cafile=tmp_path / "ca.crt")
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=tls, server_hostname=f"sluice-nats.{NAMESPACE}.svc"
        )
        greeting, info = (await reader.readline()).split(maxsplit=1)
        writer.close()
        await writer.wait_closed()
    assert greeting == b"INFO"
    assert (msgspec.json.decode(info))["auth_required"]


async def test_the_program_writes_and_ends(
    apiserver: ApiServer, kube: Kube, tmp_path: Path
) -> None:
    async with serve_http(apiserver) as http:
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "SLUICE_KUBECONFIG": str(http.kubeconfig(tmp_path, "setup")),
            "SLUICE_NAMESPACE": NAMESPACE,
            "SLUICE_SERVERS": "3",
        }
        codes = [
            await run(environ),
            await run(environ),
            await run({**environ, "SLUICE_SERVERS": "2"}),
        ]
    assert codes == [0, 0, 2]
    assert len(writes(apiserver)) == len(SECRETS) + 1


async def run(environ: dict[str, Any]) -> int | None:
    command = (sys.executable, "-W", "error", "-m", "services.signin", "setup")
    process = await asyncio.create_subprocess_exec(*command, env=environ)
    return await process.wait()
