"""The embedded nats-server: start, faults and end."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import nats
import pytest

from libs.testing.errors import ServerFailed
from libs.testing.nats import NatsServer
from tests.component.testing.raw_nats import raw_nats_client, refused
from tests.support import eventually

connect = cast(Any, nats).connect
"""Typed too loosely to be checked."""

LOCKED = 'authorization { user: "a", password: "b" }'

OUTLIVED = """
import asyncio
from libs.testing.nats import NatsServer

async def main():
    async with NatsServer() as server:
        print(server.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@asynccontextmanager
async def streams(server: NatsServer, user: str | None = None) -> AsyncGenerator[Any]:
    """JetStream as that user sees it."""
    client = await connect(server.url, user=user, password="x" if user else None)
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def names(server: NatsServer, user: str | None = None) -> list[str]:
    """Of the streams that there are."""
    async with streams(server, user) as js:
        return sorted(str(info.config.name) for info in await js.streams_info())


async def keep(server: NatsServer, name: str, user: str | None = None) -> None:
    """A stream with one message."""
    async with streams(server, user) as js:
        await js.add_stream(name=name, subjects=[f"{name}.>"])
        await js.publish(f"{name}.a", b"kept")


async def kept(server: NatsServer, name: str) -> bytes | None:
    """The stream's last message."""
    async with streams(server) as js:
        return (await js.get_last_msg(name, f"{name}.a")).data


def lives(pid: int) -> bool:
    """Whether the process runs; zombies do not count."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def exists(pid: int) -> bool:
    """Whether the process exists; zombies count."""
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the servers of a test put their own files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_a_stopped_server_leaves_no_process_and_no_file(folders: Path) -> None:
    async with NatsServer() as server:
        pid, port = server.pid, server.port
        await keep(server, "A")
        assert len(os.listdir(folders)) == 1
    assert not exists(pid)
    assert await refused(port)
    assert os.listdir(folders) == []


async def test_a_restarted_server_keeps_its_port_and_its_store() -> None:
    async with NatsServer() as server:
        port, pid = server.port, server.pid
        await keep(server, "A")
        await server.stop()
        assert await refused(port)
        await server.start()
        assert (server.port, server.pid != pid) == (port, True)
        assert await kept(server, "A") == b"kept"
        await server.restart()
        assert await kept(server, "A") == b"kept"
        assert server.log.count("Server is ready") == 3


async def test_one_stream_can_be_lost() -> None:
    async with NatsServer() as server:
        await keep(server, "A")
        await keep(server, "B")
        await server.lose_stream("A")
        assert await names(server) == ["B"]
        assert await kept(server, "B") == b"kept"


async def test_the_configuration_can_be_reloaded() -> None:
    async with NatsServer() as server:
        pid = server.pid
        await server.reload(LOCKED)
        async with raw_nats_client(server.port) as talk:
            assert await talk.handshake() == "-ERR 'Authorization Violation'"
        async with raw_nats_client(server.port) as talk:
            assert await talk.handshake(user="a", **{"pass": "b"}) == "PONG"
        assert server.pid == pid
        await server.restart()
        async with raw_nats_client(server.port) as talk:
            assert await talk.handshake() == "-ERR 'Authorization Violation'"


async def test_a_start_that_fails_says_why_and_leaves_nothing(folders: Path) -> None:
    with pytest.raises(
        ServerFailed, match=r"ended before it logged[^$]*exit code 1[^$]*Parse error"
    ):
        async with NatsServer(config="nonsense: {"):
            pass
    assert os.listdir(folders) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux' own")
async def test_the_server_ends_when_its_parent_is_killed(folders: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OUTLIVED),
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folders)},
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert lives(pid)
    parent.kill()
    await parent.wait()
    await eventually(lambda: not lives(pid))
