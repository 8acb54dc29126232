"""Start, failure, kill and end of the processes of the demo."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from demo.admin import DemoAdmin
from demo.environment import (
    CLUSTER,
    SERVICES,
    DemoEnvironment,
    bus_client,
    demo_environment,
    kube_client,
)
from demo.process_group import ManagedProcess
from libs.contracts.identities import Writer
from libs.testing.child_process import bytecode_environ
from libs.testing.errors import ServerFailed
from tests.support import eventually

NODES = ("node-1",)
(SCHEDULER,) = (part for part in SERVICES if part.writer is Writer.SCHEDULER)

PARENT = """
import asyncio, sys
from demo.environment import demo_environment

async def main():
    async with demo_environment(["node-1"], seed=1) as up:
        print(up.nats.pid, up.processes.processes["cluster"].child.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_free(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((urlsplit(url).hostname, urlsplit(url).port)) != 0


async def rollouts(up: DemoEnvironment) -> list[str]:
    async with kube_client(up) as kube:
        await up.install(DemoAdmin(kube))
        body = await kube.request("GET", "/apis/sluice.dev/v1alpha1/rollouts")
    return msgspec.json.decode(body)["items"]


@pytest.mark.dear("a cluster, NATS, sign-in and a scheduler, each a process of its own")
async def test_a_service_runs_with_its_own_account_and_token_and_leaves_nothing_behind() -> None:
    async with demo_environment(NODES, seed=1) as up:
        assert await rollouts(up) == []
        await up.start_service(SCHEDULER)
        await up.processes.wait_ready(Writer.SCHEDULER)
        async with bus_client(up) as bus:
            assert bus.identity.writer is Writer.CTL
        processes = dict(up.processes.processes)
        assert list(processes) == [CLUSTER, Writer.SIGN_IN, Writer.SCHEDULER]
        pids = [up.nats.pid, *(process.child.pid for process in processes.values())]
        pages = [process.metrics_url for process in processes.values()]
        assert not any(map(is_free, pages))
        folder = up.paths.folder
        secrets = [up.paths.token(bus.identity), *up.paths.keys.iterdir()]
        assert [file for file in secrets if file.stat().st_mode & 0o077] == []
    assert not folder.exists()
    assert [pid for pid in pids if is_alive(pid)] == []
    assert all(map(is_free, [*pages, up.nats.url]))


async def test_a_process_that_ends_by_itself_is_reported_with_its_last_lines() -> None:
    async with demo_environment(NODES, seed=1) as up:
        watch = asyncio.create_task(up.processes.wait_failed())
        os.kill(up.processes.processes[CLUSTER].child.pid, signal.SIGKILL)
        failure = await watch
        assert str(failure).startswith("cluster ended by itself (exit code -9); its last lines:")
        assert "api server started" in str(failure)
        with pytest.raises(ServerFailed, match="cluster did not end by SIGTERM"):
            await up.processes.end()


async def test_a_service_that_ends_by_itself_is_started_again_as_often_as_there_are_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("demo.process_group._PAUSES", (0.0,))
    told: list[str] = []

    async def tell(process: ManagedProcess, failure: ServerFailed) -> None:
        told.append(str(failure).partition(";")[0])
        assert process.child.log

    async with demo_environment(NODES, seed=1) as up:
        await rollouts(up)
        await up.start_service(SCHEDULER)
        watch = asyncio.create_task(up.processes.wait_failed(tell))
        first = up.processes.processes[SCHEDULER.writer]
        os.kill(first.child.pid, signal.SIGKILL)
        await eventually(lambda: up.processes.processes[SCHEDULER.writer] is not first)
        await up.processes.wait_ready(SCHEDULER.writer)
        assert not watch.done()
        assert up.paths.folder.exists()
        os.kill(up.processes.processes[SCHEDULER.writer].child.pid, signal.SIGKILL)
        failure = await watch
        assert str(failure).startswith("scheduler ended by itself (exit code -9)")
        assert told == ["scheduler ended by itself (exit code -9)"]
        assert up.processes.restarts == {SCHEDULER.writer: 1}
        with pytest.raises(ServerFailed, match="scheduler did not end by SIGTERM"):
            await up.processes.end()


async def test_a_process_killed_on_purpose_is_restarted() -> None:
    async with demo_environment(NODES, seed=1) as up:
        watch = asyncio.create_task(up.processes.wait_failed())
        before = up.processes.processes[CLUSTER].child.pid
        await up.processes.kill(CLUSTER)
        await up.processes.wait_ready(CLUSTER)
        assert not is_alive(before)
        assert up.processes.processes[CLUSTER].child.pid != before
        assert not watch.done()
        watch.cancel()
        await asyncio.wait({watch})


async def test_all_processes_die_with_a_killed_demo(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PARENT,
        env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), **bytecode_environ()},
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    pids = [int(word) for word in (await parent.stdout.readline()).split()]
    assert len(pids) == 2
    assert all(map(is_alive, pids))
    assert len(os.listdir(tmp_path)) == 1
    parent.kill()
    await parent.wait()
    await eventually(lambda: not any(map(is_alive, pids)))
    await eventually(lambda: not os.listdir(tmp_path))
