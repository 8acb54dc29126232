"""`sluice watch` as a program in a pseudo-terminal, on the simulated API server."""

import asyncio
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from libs.contracts.events import StepEvent, WaitEvent
from libs.contracts.node import STATE_LABEL
from libs.contracts.queries import QueryVerb, WaitReason, WhyAnswer, WhyQuery
from libs.contracts.waits import WaitCode
from libs.ctl.failures import ExitCode
from libs.kube.client import MERGE_PATCH
from libs.kube.resources import EVENTS, NODES
from libs.runtime.clock import SystemClock
from libs.testing.apiserver.faults import Fault, RefuseRequest
from tests.component.ctl.terminal import Session, in_terminal
from tests.component.ctl.world import (
    NEW,
    NEW_VERSION,
    PERSON,
    POOL,
    World,
    halted,
    make_world,
    rollout_status,
)

COLOURS = re.compile(r"^(3|4|9|10)[0-9]$")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with make_world(tmp_path) as made:
        await made.add_rollout(**rollout_status())
        await add_node(made, "node-1", "upgrade-done")
        await add_node(made, "node-2", "validation-required")
        await add_node(made, "node-10", "upgrade-required")
        yield made


async def add_node(world: World, name: str, state: str) -> None:
    labels = {"nvidia.com/gpu.present": "true", STATE_LABEL: state}
    await world.kube.create(NODES, {"metadata": {"name": name, "labels": labels}})
    now = SystemClock().now()
    await world.record(name, state=state, since=now - 90, deadline=now + 900)


def watch(
    world: World,
    *arguments: str,
    width: int = 80,
    height: int = 24,
    environ: Mapping[str, str] | None = None,
    program: str = "",
) -> AbstractAsyncContextManager[Session]:
    merged = {**world.environ, **(environ or {})}
    merged.pop("COLUMNS")
    return in_terminal(
        "watch", *arguments, environ=merged, width=width, height=height, program=program
    )


async def quits(session: Session, key: str = "q") -> int:
    session.press(key)
    code = await session.end()
    await session.wait_for(lambda screen: screen.modes == {"?7", "?25"})
    return code


async def test_it_shows_what_kubernetes_says_and_whether_it_is_current_without_nats(
    world: World,
) -> None:
    async with watch(world) as session:
        text = await session.shows("node-10", "no installation of Sluice is found")
        assert "Kubernetes: current" in text
        assert POOL in text
        assert NEW_VERSION in text
        assert "1 of 1 allowed" in text
        rows = re.findall(r"^[> ] (node-\d+) ", text, re.MULTILINE)
        assert rows == ["node-1", "node-2", "node-10"]
        assert re.search(r"node-2 +validation +1 min", text)
        assert session.screen.modes == {"?1049"}
        assert not session.echoes
        assert await quits(session) == ExitCode.DONE
        assert session.echoes


async def test_a_change_is_shown_and_moves_nothing_else(world: World) -> None:
    async with watch(world) as session:
        await session.shows("node-10", "upgrade-required")
        before = session.screen.lines
        await world.label("node-10", STATE_LABEL, "drain-required")
        await session.shows("drain")
        after = session.screen.lines
        changed = [old for old, new in zip(before, after, strict=True) if old != new]
        assert [line for line in changed if "node-10" in line]
        assert [line.find("node-") for line in before] == [line.find("node-") for line in after]
        await add_node(world, "node-3", "upgrade-done")
        await session.shows("node-3", "4 nodes")
        await world.kube.request("DELETE", NODES.path(name="node-2"))
        await session.wait_for(lambda screen: "node-2" not in screen.text)
        await quits(session)


async def test_a_cordon_of_a_done_node_is_shown_while_it_lasts(world: World) -> None:
    async def set_cordon(*, cordoned: bool) -> None:
        await world.kube.request(
            "PATCH",
            NODES.path(name="node-1"),
            body={"spec": {"unschedulable": cordoned}},
            content_type=MERGE_PATCH,
        )

    await set_cordon(cordoned=True)
    async with watch(world) as session:
        await session.shows("node-10", "cordoned")
        (row,) = re.findall(r"^[> ] node-1 .*", session.screen.text, re.MULTILINE)
        assert row.split()[-1] == "cordoned"
        await set_cordon(cordoned=False)
        await session.wait_for(lambda screen: "cordoned" not in screen.text)
        await set_cordon(cordoned=True)
        await session.shows("cordoned")
        assert await quits(session) == ExitCode.DONE


@pytest.mark.parametrize("way", ["ctrl-c", "sigterm", "hangup"])
async def test_the_terminal_is_restored_however_it_ends(world: World, way: str) -> None:
    async with watch(world) as session:
        await session.shows("node-10")
        if way == "ctrl-c":
            session.press("\x03")
        else:
            number = signal.SIGTERM if way == "sigterm" else signal.SIGHUP
            session.process.send_signal(number)
        assert await session.end() == ExitCode.INTERRUPTED
        await session.wait_for(lambda screen: screen.modes == {"?7", "?25"})
        assert session.echoes


async def test_pause_is_written_at_once_and_resume_only_after_a_yes(world: World) -> None:
    async with watch(world) as session:
        await session.shows("node-10")
        session.press("p")
        await session.shows(f"{POOL} is paused", "Pause")
        assert (await world.rollout())["spec"]["brake"] == "Pause"
        session.press("r")
        await session.shows(f"resume {POOL}?", "not done are drained and")
        session.press("n")
        await session.shows("nothing was written")
        assert (await world.rollout())["spec"]["brake"] == "Pause"
        session.press("r")
        await session.shows(f"resume {POOL}?")
        session.press("y")
        await session.shows(f"{POOL} goes on")
        assert (await world.rollout())["spec"].get("brake", "None") == "None"
        await quits(session)


async def test_a_halt_is_released_after_a_yes(world: World) -> None:
    async with watch(world) as session:
        await session.shows("node-10")
        session.press("l")
        await session.shows("is not halted: there is nothing to release")
        await world.add_rollout(**halted("u1", "u2"))
        await session.shows("Halted", "validation failed")
        session.press("l")
        await session.shows(f"release {POOL}?", "the next failure")
        session.press("y")
        await session.shows("2 failures of", "are accepted")
        assert (await world.rollout())["spec"]["release"] == {"target": NEW, "failures": 2}
        await quits(session)


async def test_a_write_that_is_refused_is_told_and_the_view_goes_on(world: World) -> None:
    async with watch(world, "-n", "sluice") as session:
        await session.shows("node-10")
        world.server.faults.add(Fault(effect=RefuseRequest(403), user=PERSON, verbs=("patch",)))
        session.press("p")
        await session.shows("Kubernetes: PATCH")
        await quits(session)


async def waiting(world: World) -> None:
    """Let the scheduler publish why node-2 waits, and answer `why`."""
    await world.start_nats()
    now = SystemClock().now()
    wait = WaitEvent(
        pool=POOL,
        code=WaitCode.JOBS,
        detail=f"pod train of target {NEW} uses the GPUs\x1b[2J",
        since=now - 30,
        who="its owner",
    )
    step = StepEvent(pool=POOL, token=1, before="", after="validation-required")
    await world.publish(
        (step, "node-2: validation-required", "node-2"),
        (wait, f"node-2: {wait.detail}", "node-2"),
    )

    async def why(query: WhyQuery) -> WhyAnswer:
        reason = WaitReason(code=WaitCode.JOBS, detail=wait.detail, since=now - 30, who=wait.who)
        return WhyAnswer(node=query.node, pool=POOL, state="validation-required", wait=reason)

    await world.answer({QueryVerb.WHY: why})


async def test_waits_and_who_can_end_them_come_from_the_scheduler(world: World) -> None:
    await waiting(world)
    async with watch(world, width=160, height=48) as session:
        text = await session.shows("waits: current", "its owner")
        assert f"jobs: pod train of target {NEW_VERSION}"[:30] in text
        assert "waits: 1 jobs" in text
        assert "node-2: validation-required" in text
        session.press("j")
        await session.shows("ended by: its owner", "waits for jobs for")
        session.press("w")
        text = await session.shows("why node-2", "node-2 waits: jobs", "can be ended by: its owner")
        assert "validation-required" in text
        await world.label("node-2", STATE_LABEL, "uncordon-required")
        await session.shows("why node-2", "state: uncordon-required")  # asked again
        session.press("q")  # closes the panel alone
        await session.shows("STEP")
        await quits(session)


async def test_why_without_nats_shows_what_kubernetes_has(world: World) -> None:
    about = {"kind": "Node", "apiVersion": "v1", "name": "node-1"}
    event = {
        "metadata": {"name": "one"},
        "involvedObject": about,
        "reason": "Upgrade",
        "message": "the driver is validated",
        "type": "Normal",
        "lastTimestamp": "2026-05-01T22:00:00Z",
    }
    await world.kube.create(EVENTS, event, namespace="default")
    async with watch(world) as session:
        await session.shows("22:00:00  node-1: Upgrade: the driver is validated", "node-10")
        session.press("w")
        await session.shows("why node-1", "node-1: upgrade-done")
        session.press("\x1b")
        await session.shows("STATE")
        await quits(session)


async def test_figures_stay_while_the_api_server_is_away_and_say_so(world: World) -> None:
    async with watch(world, width=160) as session:
        await session.shows("node-10")
        world.server.faults.add(Fault(effect=RefuseRequest(503), user=PERSON))
        world.server.faults.drop_watches()
        text = await session.shows(
            "Kubernetes: GET /api", "unable to handle the request", "last confirmed"
        )
        assert "node-10" in text
        await quits(session)


async def test_a_terminal_that_becomes_narrow_is_drawn_anew(world: World) -> None:
    async with watch(world, width=160, height=48) as session:
        await session.shows("ENDED BY", "node-10")
        session.resize(40, 24)
        text = await session.shows("node-10", "»", "? help")
        assert "ENDED BY" not in text
        await quits(session)


@pytest.mark.parametrize(
    ("environ", "has_colours"), [({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)]
)
async def test_no_color_leaves_attributes_alone(
    world: World, environ: dict[str, str], has_colours: bool
) -> None:
    async with watch(world, environ=environ) as session:
        await session.shows("node-10", "validation")
        codes = {code for code in session.screen.styles if COLOURS.match(code)}
        assert bool(codes) is has_colours
        assert not any(code.startswith(("4", "10")) for code in codes)  # no background
        assert "7" in session.screen.styles
        await quits(session)


@asynccontextmanager
async def served(page: str) -> AsyncGenerator[str]:
    """Serve a page, and yield its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(page)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + page.encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"
    finally:
        server.close()
        await server.wait_closed()


async def test_busy_gpus_and_their_heat_come_from_telemetry(world: World) -> None:
    samples = [
        f'DCGM_FI_DEV_GPU_{kind}{{gpu="{gpu}",UUID="GPU-{gpu}",hostname="node-2"}} {value}\n'
        for kind, values in (("TEMP", (61, 74)), ("UTIL", (0, 93)))
        for gpu, value in enumerate(values)
    ]
    async with (
        served("".join(samples)) as url,
        watch(world, "--telemetry", url, width=160) as session,
    ):
        text = await session.shows("GPUS", "1/2", "74", "GPUs: ")
        assert re.search(r"node-2 .* 1/2 +74", text)
        await quits(session)


async def test_it_loads_only_what_it_needs(world: World, tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    anew = "tests.component.ctl.terminal"
    async with watch(world, environ={"LOADED": str(loaded)}, program=anew) as session:
        await session.shows("node-10")
        assert await quits(session) == ExitCode.DONE
    modules = set(loaded.read_text().split())
    assert "libs.ctl.watch.program" in modules
    unneeded = {"nats", "nkeys", "kubernetes_asyncio", "libs.ctl.views.plan", "libs.policy"}
    assert not modules & unneeded


async def test_without_a_terminal_it_is_one_line_and_refused(world: World) -> None:
    ended = await world.run("watch")
    assert (ended.code, ended.out) == (ExitCode.REFUSED, "")
    assert ended.err.count("\n") == 1
    assert "`sluice watch` needs a terminal" in ended.err


@pytest.mark.parametrize(
    ("arguments", "environ", "code", "told"),
    [
        (("nothing",), {}, ExitCode.NOT_FOUND, f"no pool 'nothing'; pools: {POOL}"),
        (("--telemetry", "here"), {}, ExitCode.WRONG_ARGUMENTS, "'here' is no address"),
        ((), {"TERM": "dumb"}, ExitCode.REFUSED, "TERM is dumb"),
        ((), {"KUBECONFIG": "/none"}, ExitCode.NOT_REACHABLE, "there is no such file"),
    ],
)
async def test_what_cannot_begin_leaves_the_terminal_alone(
    world: World, arguments: tuple[str, ...], environ: dict[str, str], code: int, told: str
) -> None:
    async with watch(world, *arguments, width=160, environ=environ) as session:
        assert await session.end() == code
        text = await session.shows("sluice: ", told)
        assert len(text.strip().splitlines()) == 1
        assert not session.screen.styles
        assert session.screen.modes == {"?7", "?25"}
