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
"""An untyped alias: the annotations of `nats` are too loose for the type check."""

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
    """Yield JetStream as seen by the user."""
    client = await connect(server.url, user=user, password="x" if user else None)
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def stream_names(server: NatsServer, user: str | None = None) -> list[str]:
    """Return the sorted names of all streams."""
    async with streams(server, user) as js:
        return sorted(str(info.config.name) for info in await js.streams_info())


async def create_stream(server: NatsServer, name: str, user: str | None = None) -> None:
    """Create a stream with one message."""
    async with streams(server, user) as js:
        await js.add_stream(name=name, subjects=[f"{name}.>"])
        await js.publish(f"{name}.a", b"kept")


async def last_message(server: NatsServer, name: str) -> bytes | None:
    """Return the stream's last message."""
    async with streams(server) as js:
        return (await js.get_last_msg(name, f"{name}.a")).data


def is_running(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def exists(pid: int) -> bool:
    """Return whether the process exists; a zombie does."""
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which the servers of a test create their files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_a_stopped_server_leaves_no_process_and_no_file(folders: Path) -> None:
    async with NatsServer() as server:
        pid, port = server.pid, server.port
        await create_stream(server, "A")
        assert len(os.listdir(folders)) == 1
    assert not exists(pid)
    assert await refused(port)
    assert os.listdir(folders) == []


async def test_a_restarted_server_keeps_its_port_and_its_store() -> None:
    async with NatsServer() as server:
        port, pid = server.port, server.pid
        await create_stream(server, "A")
        await server.stop()
        assert await refused(port)
        await server.start()
        assert (server.port, server.pid != pid) == (port, True)
        assert await last_message(server, "A") == b"kept"
        await server.restart()
        assert await last_message(server, "A") == b"kept"
        assert server.log.count("Server is ready") == 3


async def test_one_stream_can_be_lost() -> None:
    async with NatsServer() as server:
        await create_stream(server, "A")
        await create_stream(server, "B")
        await server.lose_stream("A")
        assert await stream_names(server) == ["B"]
        assert await last_message(server, "B") == b"kept"


async def test_the_configuration_can_be_reloaded() -> None:
    async with NatsServer() as server:
        pid = server.pid
        await server.reload(LOCKED)
        async with raw_nats_client(server.port) as client:
            assert await client.handshake() == "-ERR 'Authorization Violation'"
        async with raw_nats_client(server.port) as client:
            assert await client.handshake(user="a", **{"pass": "b"}) == "PONG"
        assert server.pid == pid
        await server.restart()
        async with raw_nats_client(server.port) as client:
            assert await client.handshake() == "-ERR 'Authorization Violation'"


async def test_a_failed_start_reports_the_reason_and_leaves_no_file(folders: Path) -> None:
    with pytest.raises(
        ServerFailed, match=r"ended before it logged[^$]*exit code 1[^$]*Parse error"
    ):
        async with NatsServer(config="nonsense: {"):
            pass
    assert os.listdir(folders) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
async def test_the_server_ends_when_its_parent_is_killed(folders: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OUTLIVED),
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folders)},
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert is_running(pid)
    parent.kill()
    await parent.wait()
    await eventually(lambda: not is_running(pid))
