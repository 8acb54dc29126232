"""TLS of the connection to NATS, with certificates of a test CA."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from libs.bus.credentials import Credentials
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.port import BusMisconfigured, BusUnavailable
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.testing.certificates import CertificateAuthority
from libs.testing.nats import KeyPair, NatsServer
from libs.testing.proxy import Proxy
from libs.testing.simulation import make_env
from tests.component.bus.recorders import RecordingHandler
from tests.support import eventually

AGENT = Identity(writer=Writer.DRIVER, node="a")
BEAT = str(subjects.Beat(cluster="default", node="a", component="driver"))
SECRET = "a-token-that-must-not-be-sent"


class Files:
    """A CA, a certificate of the server and a token, which tests replace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority()
        self.ca_file = self.authority.write(folder / "ca.pem")
        self.server = self.authority.issue(folder, "server")
        self.token = folder / "token"
        self.token.write_text(SECRET)

    def credentials(self, **changes: str) -> Credentials:
        fields = {"ca_file": str(self.ca_file), "token_file": str(self.token), **changes}
        return Credentials(**fields)

    def renew(
        self, *, names: tuple[str, ...] = ("127.0.0.1",), days: tuple[int, int] = (-1, 365)
    ) -> KeyPair:
        return self.authority.issue(self.folder, "server", names=names, days=days)

    def replace_authority(self) -> None:
        """Have a new CA, whose certificate is not configured yet, sign the server's."""
        self.authority = CertificateAuthority()
        self.renew()

    def publish_authority(self) -> None:
        self.authority.write(self.ca_file)

    def remove(self, file: Path) -> None:
        file.unlink()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@asynccontextmanager
async def connected(
    url: str, credentials: Credentials, *, wait: float = 10.0
) -> AsyncGenerator[NatsBus]:
    """A connection of an agent."""
    async with connect(
        url=url, identity=AGENT, env=make_env(), credentials=credentials, wait=wait
    ) as bus:
        yield bus


async def failure(url: str, credentials: Credentials) -> str:
    """Return why no connection is made."""
    with pytest.raises(BusUnavailable) as caught:
        async with connected(url, credentials, wait=1.0):
            pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


@asynccontextmanager
async def recording_server(greeting: bytes) -> AsyncGenerator[tuple[str, list[bytes]]]:
    """A server that sends a greeting and records everything it receives."""
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(greeting)
            while data := await reader.read(65_536):
                received.append(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", received


async def test_a_session_starts_with_tls(files: Files) -> None:
    async with NatsServer(tls=files.server) as server:
        assert server.url.startswith("tls://")
        async with connected(server.url, files.credentials()) as bus:
            handler = RecordingHandler()
            await bus.subscribe(BEAT, handler)
            await bus.publish(BEAT, b"x")
            await eventually(lambda: handler.received == [(BEAT, b"x")])


@pytest.mark.parametrize("tls_required", [False, True])
async def test_a_server_without_tls_first_gets_no_credentials(
    files: Files, tls_required: bool
) -> None:
    info = {"version": "2.15.1", "max_payload": 1 << 20, "tls_required": tls_required}
    greeting = f"INFO {json.dumps({**info, 'auth_required': True})}\r\n".encode()
    async with recording_server(greeting) as (address, received):
        why = await failure(f"tls://{address}", files.credentials())
        assert "does not start with TLS, and nothing was sent to it" in why
        assert received != []
        assert not any(b"CONNECT" in data or SECRET.encode() in data for data in received)
        assert all(data[:1] in b"\x15\x16" for data in received)  # records of TLS only


async def test_a_real_server_without_tls_is_named(files: Files) -> None:
    async with NatsServer() as server:
        url = server.url.replace("nats://", "tls://")
        assert "does not start with TLS" in await failure(url, files.credentials())


async def test_a_client_without_tls_is_told_to_use_it(files: Files) -> None:
    config = (
        f'tls {{ cert_file: "{files.server.cert_file}", key_file: "{files.server.key_file}",'
        " HANDSHAKE timeout: 0.3 }"
    )
    for first in ("handshake_first: true,", ""):
        async with NatsServer(config=config.replace("HANDSHAKE", first)) as server:
            assert "use tls://" in await failure(server.url, Credentials())


@pytest.mark.parametrize(
    ("days", "words"),
    [
        pytest.param((-2, -1), "has expired", id="expired"),
        pytest.param((1, 2), "is not yet valid", id="not yet valid"),
    ],
)
async def test_the_life_of_the_certificate_counts(
    files: Files, days: tuple[int, int], words: str
) -> None:
    async with NatsServer(tls=files.renew(days=days)) as server:
        assert words in await failure(server.url, files.credentials())


async def test_a_certificate_of_an_unknown_ca_is_refused(files: Files) -> None:
    """Also if the other CA has the same name."""
    files.replace_authority()
    async with NatsServer(tls=files.server) as server:
        assert "not signed by a CA of the configured CA file" in await failure(
            server.url, files.credentials()
        )


async def test_a_wrong_name_is_told_with_the_names_of_the_certificate(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    words = "certificate is not for 127.0.0.1, but for nats.sluice.svc, 10.0.0.1"
    async with NatsServer(tls=files.server) as server:
        async with connected(server.url, files.credentials()) as bus:
            files.renew(names=("nats.sluice.svc", "10.0.0.1"))
            await server.restart()
            await eventually(lambda: words in (bus.unready_reason() or ""))
            await asyncio.sleep(2.0)
            logged = [each for each in caplog.records if words in each.getMessage()]
            assert [each.levelno for each in logged] == [logging.WARNING]
        assert words in await failure(server.url, files.credentials())


async def test_renewed_files_are_used_without_a_restart(files: Files) -> None:
    async with (
        NatsServer(tls=files.server) as server,
        connected(server.url, files.credentials()) as bus,
    ):
        files.replace_authority()
        await server.restart()
        await eventually(lambda: "not signed by a CA" in (bus.unready_reason() or ""))
        files.remove(files.ca_file)
        await eventually(lambda: "cannot read the CA file" in (bus.unready_reason() or ""))
        files.publish_authority()
        await eventually(lambda: bus.link.is_up)


async def test_a_reload_serves_the_renewed_certificate(files: Files) -> None:
    async with (
        NatsServer(tls=files.server) as server,
        connected(server.url, files.credentials()),
    ):
        files.replace_authority()
        await server.reload("")
        assert "not signed by a CA" in await failure(server.url, files.credentials())
        files.publish_authority()
        async with connected(server.url, files.credentials()) as later:
            assert later.link.is_up


async def test_a_required_certificate_of_the_client(files: Files) -> None:
    config = (
        f'tls {{ cert_file: "{files.server.cert_file}", key_file: "{files.server.key_file}",'
        f' ca_file: "{files.ca_file}", verify: true, handshake_first: true }}'
    )
    own = files.authority.issue(files.folder, "client")
    async with NatsServer(config=config) as server:
        url = server.url.replace("nats://", "tls://")
        pair = {"cert_file": str(own.cert_file), "key_file": str(own.key_file)}
        async with connected(url, files.credentials(**pair)) as bus:
            assert bus.link.is_up
        assert "the client certificate is configured" in await failure(url, files.credentials())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "cannot read the CA file", id="absent"),
        pytest.param(b"", "holds no certificate in PEM format", id="empty"),
        pytest.param(os.urandom(500), "holds no certificate in PEM format", id="garbage"),
        pytest.param(
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "holds no certificate in PEM format",
            id="broken",
        ),
    ],
)
async def test_an_unusable_ca_file_is_an_error_at_the_start(
    files: Files, tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "other.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BusMisconfigured, match=words) as caught:
        async with connected("tls://127.0.0.1:1", files.credentials(ca_file=str(file))):
            pass
    assert str(file) in str(caught.value)


async def test_a_peer_that_is_gone_does_not_delay_the_reconnect(files: Files) -> None:
    """The end of TLS waits for the peer, which may never answer."""
    async with NatsServer(tls=files.server) as server, Proxy("127.0.0.1", server.port) as proxy:
        url = proxy.url.replace("nats://", "tls://")
        async with connected(url, files.credentials()) as bus:
            client = bus._connection._client  # pyright: ignore[reportPrivateUsage]
            loop = asyncio.get_running_loop()
            proxy.drop()
            began = loop.time()
            await client.force_reconnect()
            await eventually(lambda: not bus.link.is_up)
            assert loop.time() - began < 10.0
            proxy.restore()
            await eventually(lambda: bus.link.is_up)
