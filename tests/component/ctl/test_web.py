"""`sluice web`: the page's server on a simulated API server and a real nats-server."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from libs.bus.nats.bus import NatsBus
from libs.contracts.device import DeviceHealth
from libs.contracts.node import STATE_LABEL
from libs.contracts.reports import Evidence, ValidationStep
from libs.contracts.waits import WaitCode
from libs.ctl import bus
from libs.ctl.bus import open_bus
from libs.ctl.failures import ExitCode
from libs.ctl.follow import events
from libs.ctl.options import Access
from libs.ctl.web import feed, server
from tests.component.ctl.web_world import (
    DONE,
    EVICTING,
    FAILED,
    REQUIRED,
    PageScheduler,
    add_device,
    add_gpu_node,
    page_of,
    set_label,
    set_ready,
    step,
    stream_of,
    waits,
)
from tests.component.ctl.world import (
    NEW,
    NEW_VERSION,
    World,
    make_world,
    rollout_status,
)

PAGE = Path(server.__file__).parent / "page"
HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J"
HOSTILE_SHOWN = "<img src=x onerror=alert(1)>\ufffd[2J"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with make_world(tmp_path, nats=True) as made:
        await made.add_rollout(**rollout_status())
        yield made


async def get(url: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, headers=headers) as answer,
    ):
        return answer.status, await answer.text(), dict(answer.headers)


async def test_a_change_is_pushed_as_the_changed_node_alone(world: World) -> None:
    await add_gpu_node(world, "node-1")
    await add_gpu_node(world, "node-2", state=REQUIRED)
    await add_device(world, "node-1", 0, DeviceHealth(state="failed", message="Xid 79"))
    async with page_of(world) as address, stream_of(address) as stream:
        await stream.until(lambda: len(stream.nodes) == 2 and stream.gpus.get("sick"))
        assert stream.nodes["node-1"]["doing"] == "done"
        assert stream.nodes["node-1"]["note"] == "1 GPU failed"
        assert stream.nodes["node-2"]["doing"] == "waiting"
        assert stream.gpus["sick"][0]["because"] == "Xid 79"
        assert stream.pools[0]["version"] == NEW_VERSION
        before = len(stream.changes)
        await set_label(world, "node-2", STATE_LABEL, FAILED)
        await set_ready(world, "node-2", ready=False)
        await stream.until(
            lambda: (
                stream.nodes["node-2"]["doing"] == "failed"
                and "Node not Ready" in stream.nodes["node-2"].get("note", "")
            )
        )
        pushed = [each["name"] for one in stream.changes[before:] for each in one.get("nodes", ())]
        assert set(pushed) == {"node-2"}
        assert not any(each.get("whole") for each in stream.changes[before:])
        await world.kube.request("DELETE", "/api/v1/nodes/node-2")
        await stream.until(lambda: set(stream.nodes) == {"node-1"})


async def test_events_give_waits_and_the_timeline_with_the_plan_behind_it(world: World) -> None:
    now = time.time()
    first = await add_gpu_node(world, "node-1", since=now - 10)
    second = await add_gpu_node(world, "node-2", state=EVICTING, since=now - 5, moving=True)
    await add_gpu_node(world, "node-3", state=REQUIRED, target="")
    await world.store(
        step("node-1", first, "wait-for-jobs-required", now - 300),
        step("node-1", first, "validation-required", now - 100),
        step("node-1", first, DONE, now - 10),
        step("node-2", second, EVICTING, now - 5),
        waits("node-2", second, now - 4, WaitCode.PDB, HOSTILE, who="the owner of the budget"),
        # A wait of an earlier Node of the same name.
        waits("node-3", "another", now, WaitCode.FAILED, "gone"),
    )
    planned = {"node-1": (0.0, 9.0), "node-3": (100.0, 200.0)}
    await PageScheduler(at=now, planned=planned).answer(world)
    async with page_of(world) as address, stream_of(address) as stream:
        await stream.until(lambda: len(stream.bars) == 3 and "wait" in stream.nodes["node-2"])
        done = stream.bars["node-1"]
        assert (done["start"], done["end"], done["outcome"]) == (now - 300, now - 10, "done")
        assert [name for name, _ in done["steps"]] == [
            "wait-for-jobs-required",
            "validation-required",
        ]
        assert done["target"] == NEW_VERSION
        assert "planned" not in done, "it had started before the first plan"
        assert "end" not in stream.bars["node-2"]
        start, end = stream.bars["node-3"]["planned"]
        assert end - start == 100.0
        assert stream.nodes["node-2"]["wait"] == {
            "code": "pdb",
            "detail": HOSTILE_SHOWN,
            "since": now - 4,
            "who": "the owner of the budget",
        }
        assert "wait" not in stream.nodes["node-3"]
        assert [each["node"] for each in stream.events][:3] == ["node-1"] * 3
        await stream.until(lambda: not any(each["problem"] for each in stream.sources))
        await world.store(step("node-2", second, FAILED, now), waits("node-2", second, now, None))
        await stream.until(lambda: stream.bars["node-2"].get("outcome") == "failed")
        await stream.until(lambda: "wait" not in stream.nodes["node-2"])


async def test_without_nats_the_page_shows_what_kubernetes_says(tmp_path: Path) -> None:
    flight = {"node": "node-1", "token": 1, "target": NEW, "since": 1_800_000_000.0}
    async with make_world(tmp_path) as world:
        uid = await add_gpu_node(
            world, "node-1", state=EVICTING, since=1_800_000_060.0, moving=True
        )
        await world.add_rollout(**rollout_status(inFlight={uid: flight}))
        world.environ |= {"SLUICE_NATS_URL": "", "SLUICE_NATS_NKEY_SEED_FILE": ""}
        async with page_of(world) as address, stream_of(address) as stream:
            await stream.until(lambda: stream.bars)
            assert stream.bars["node-1"]["start"] == 1_800_000_000.0
            assert stream.bars["node-1"]["steps"] == [[EVICTING, 1_800_000_060.0]]
            kubernetes, scheduler, nats = stream.sources
            assert kubernetes["problem"] == ""
            assert 0.0 <= kubernetes["age"] < 60.0
            for source in (scheduler, nats):
                assert "no installation of Sluice is found" in source["problem"]
            status, text, _ = await get(f"{address}api/node?name=node-1")
            assert status == 200
            assert "no installation of Sluice is found" in text


async def test_the_page_lives_through_an_outage_of_nats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "STATUS_SECONDS", 0.1)
    monkeypatch.setattr(events, "RETRY_SECONDS", 0.1)
    async with make_world(tmp_path) as world:
        await world.add_rollout(**rollout_status())
        nats = await world.start_nats()
        uid = await add_gpu_node(world, "node-1", state=REQUIRED, target="")
        await world.store(waits("node-1", uid, 1.0, WaitCode.BUDGET, "first"))
        await PageScheduler(at=time.time()).answer(world)
        async with page_of(world) as address, stream_of(address) as stream:
            await stream.until(lambda: "wait" in stream.nodes.get("node-1", {}))
            await nats.stop()
            await stream.until(lambda: all(each["problem"] for each in stream.sources[1:]))
            assert stream.nodes["node-1"]["wait"]["detail"] == "first"
            await set_label(world, "node-1", STATE_LABEL, FAILED)
            await stream.until(lambda: stream.nodes["node-1"]["doing"] == "failed")
            await nats.start()
            await stream.until(lambda: not any(each["problem"] for each in stream.sources[1:]))
            await world.store(waits("node-1", uid, 2.0, WaitCode.FAILED, "second"))
            await stream.until(lambda: stream.nodes["node-1"]["wait"]["detail"] == "second")


async def test_a_renewed_connection_repeats_no_event(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Access] = []

    def count(access: Access) -> AbstractAsyncContextManager[NatsBus]:
        opened.append(access)
        return open_bus(access)

    monkeypatch.setattr(events, "SESSION_SECONDS", 0.5)
    monkeypatch.setattr(bus, "open_bus", count)
    uid = await add_gpu_node(world, "node-1", state=REQUIRED, target="")
    await world.store(waits("node-1", uid, 1.0, WaitCode.BUDGET, "first"))
    async with page_of(world) as address, stream_of(address) as stream:
        await stream.until(lambda: stream.events and len(opened) >= 4)
        await world.store(waits("node-1", uid, 2.0, WaitCode.BUDGET, "second"))
        await stream.until(lambda: len(stream.events) >= 2 and len(opened) >= 6)
        assert [each["at"] for each in stream.events] == [1.0, 2.0]


async def test_a_node_has_its_story(world: World) -> None:
    evidence = Evidence(
        epoch=1,
        token=1,
        op=1,
        passed=True,
        label="x",
        node_uid="",
        boot_id="boot-1",
        kernel="6.1",
        steps=(ValidationStep(name="cuda", passed=True, message=HOSTILE),),
    )
    uid = await add_gpu_node(world, "node-1", evidence=evidence)
    await add_device(world, "node-1", 1)
    await add_device(world, "node-1", 0, DeviceHealth(state="failed", message=HOSTILE))
    await world.store(step("node-1", uid, DONE, 1.0), step("node-2", "x", DONE, 2.0))
    scheduler = PageScheduler(at=time.time())
    scheduler.detail = f"{NEW} {HOSTILE}"
    await scheduler.answer(world)
    async with page_of(world) as address, stream_of(address) as stream:
        await stream.until(
            lambda: len(stream.events) == 2 and not any(each["problem"] for each in stream.sources)
        )
        await stream.until(
            lambda: [*stream.gpus.get("products", {}).values()] == [{"failed": 1, "ok": 1}]
        )
        story = await story_of(address, "node-1")
        why = story["node"]["why"]
        assert why["wait"]["detail"] == f"{NEW_VERSION} {HOSTILE_SHOWN}"
        assert why["wait"]["who"] == "the other nodes"
        assert why["history"] == ["1: begun", f"2: to {NEW_VERSION}"]
        assert [each["index"] for each in story["gpus"]] == [0, 1]
        assert story["gpus"][0]["because"] == HOSTILE_SHOWN
        assert story["proof"]["checks"][0]["text"] == HOSTILE_SHOWN
        assert story["proof"]["of_this_boot"] is True
        assert [each["node"] for each in story["happened"]] == ["node-1"]
        for name in ("node-9", "", "../secrets"):
            status, text, _ = await get(f"{address}api/node?name={name}")
            assert (status, text) == (404, f"there is no Node {name!r}\n")


async def story_of(address: str, name: str) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{address}api/node?name={name}") as answer,
    ):
        assert (answer.status, answer.content_type) == (200, "application/json")
        return await answer.json()


async def test_only_the_right_host_is_answered(world: World) -> None:
    async with page_of(world, "sluice.example") as address:
        port = address.rstrip("/").rpartition(":")[2]
        for host in (f"localhost:{port}", "localhost:1", "127.0.0.1", "[::1]:9", "Sluice.Example"):
            assert (await get(address, Host=host))[0] == 200, host
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "localhost.evil.example",
            "",
            "[x",
            "0",
        ):
            for path in ("", "api/changes", "api/node?name=x", "main.js"):
                status, text, _ = await get(f"{address}{path}", Host=host)
                assert status == 421, (host, path)
                assert "--allow-host" in text


async def test_nothing_can_be_written_and_no_other_site_can_read(world: World) -> None:
    await add_gpu_node(world, "node-1")
    async with page_of(world) as address:
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            for path in ("", "api/node?name=node-1", "api/changes", "nothing"):
                status, _, headers = await get(f"{address}{path}", method)
                assert (status, headers["Allow"]) == (405, "GET, HEAD"), (method, path)
        for path in ("api/node?name=node-1", "api/changes", "main.js"):
            status, _, _ = await get(f"{address}{path}", **{"Sec-Fetch-Site": "cross-site"})
            assert status == 403
        for path in ("nothing", "..%2frun.py", "%2e%2e/run.py", "page.css/", "run.py"):
            status, _, headers = await get(f"{address}{path}")
            assert status == 404, path
            assert headers["X-Content-Type-Options"] == "nosniff"
        assert (await get(address, "HEAD"))[0] == 200
    revisions = world.server.journal.revisions
    assert {each.user for each in revisions} == {"person"}
    assert {each.manager for each in revisions} <= {"kubectl", "test", ""}


async def test_every_file_is_ours_and_served_under_a_strict_policy(world: World) -> None:
    async with page_of(world) as address:
        for file in PAGE.iterdir():
            path = "" if file.name == "index.html" else file.name
            status, text, headers = await get(f"{address}{path}")
            assert (status, text) == (200, file.read_text())
            policy = headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert "Access-Control-Allow-Origin" not in headers
            assert headers["Cache-Control"] == "no-store"
            foreign = set(re.findall(r"https?://[^\s\"')]+", text)) - {"http://www.w3.org/2000/svg"}
            assert not foreign, file
            if file.suffix == ".js":
                assert not re.search(
                    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text
                )


PROGRAM = """
import signal, sys
from libs.ctl.command import main
# Tests that a shell runs in the background inherit that SIGINT is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""


async def test_the_address_of_a_page_on_all_addresses_is_answered(world: World) -> None:
    for host in ("", "0.0.0.0"):
        async with page_of(world, listen=host) as address:
            assert (await get(address))[0] == 200, host
            assert (await get(address, Host=host))[0] == 421, host


async def test_what_is_not_http_and_what_is_unexpected_print_no_traceback(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with page_of(world) as address:
        parts = urlsplit(address)
        for data in (b"\x16\x03\x01", b"no HTTP\r\n\r\n", b"GET /%b HTTP/1.1\r\n" % (b"a" * 9000)):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(data)
            assert b" 400 " in await reader.readline()
            writer.close()
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(server, "_text", divmod)
        assert (await get(f"{address}livez"))[0] == 500
    assert re.fullmatch(
        r"sluice: a request was not answered: TypeError: .* \(at \S+\);"
        r" please report it\n",
        capsys.readouterr().err,
    )


@pytest.mark.parametrize(
    ("by", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.DONE)]
)
async def test_the_verb_serves_until_it_is_ended(
    world: World, by: signal.Signals, code: ExitCode
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, "web", "--port", "0"),
        env={**os.environ, **world.environ, "PYTHONPATH": str(Path.cwd())},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    found = re.search(r"http://127\.0\.0\.1:\d+/", line)
    assert found is not None, line
    async with stream_of(found[0]) as stream:
        await stream.next()
        process.send_signal(by)
        out, errors = await process.communicate()
    assert (process.returncode, out, errors) == (code, b"", b"")


async def test_what_keeps_the_verb_from_serving_is_one_line(world: World) -> None:
    async with page_of(world) as address:
        port = address.rstrip("/").rpartition(":")[2]
        taken = await world.run("web", "--port", port)
        assert taken.code == ExitCode.NOT_REACHABLE
        assert taken.err.startswith(f"sluice: cannot listen on 127.0.0.1:{port}: ")
        assert taken.err.count("\n") == 1
    for host, code in (
        ("", ExitCode.WRONG_ARGUMENTS),
        ("x" * 300, ExitCode.NOT_REACHABLE),
        ("../x", ExitCode.NOT_REACHABLE),
    ):
        none = await world.run("web", "--port", "0", "--host", host)
        assert (none.code, none.out, none.err.count("\n")) == (code, "", 1), none.err
        assert "--host" in none.err
    await world.server.stop()
    away = await world.run("web", "--port", "0", KUBECONFIG="/nowhere")
    assert away.code == ExitCode.NOT_REACHABLE
    assert away.err.count("\n") == 1
