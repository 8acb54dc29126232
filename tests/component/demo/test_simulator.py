"""The GPU exporter of a machine, whose port stays open across agents, and bad drivers."""

from pathlib import Path

import aiohttp

from demo.simulator import GpuExporter
from demo.world import TOLD_JOB, demo_world
from libs.runtime.http import Page


async def test_the_pages_are_those_of_the_running_agent_or_503() -> None:
    exporter = GpuExporter()
    async with exporter.server as server, aiohttp.ClientSession() as session:
        host, port = server.address

        async def fetch() -> tuple[int, str]:
            async with session.get(f"http://{host}:{port}/metrics") as answer:
                return answer.status, await answer.text()

        no_agent = (503, "no telemetry agent runs on this machine now; try again later\n")
        assert await fetch() == no_agent
        async with exporter.serve({"/metrics": lambda: Page(b"first")}):
            assert await fetch() == (200, "first")
            async with exporter.serve({"/metrics": lambda: Page(b"next")}):
                assert await fetch() == (200, "next")
            assert await fetch() == no_agent
        assert await fetch() == no_agent


async def test_an_agent_that_ends_late_does_not_remove_the_pages_of_the_next() -> None:
    exporter = GpuExporter()
    late, now = {"/metrics": lambda: Page(b"late")}, {"/metrics": lambda: Page(b"now")}
    late_context, next_context = exporter.serve(late), exporter.serve(now)
    async with exporter.server as server, aiohttp.ClientSession() as session:
        host, port = server.address
        await late_context.__aenter__()
        await next_context.__aenter__()
        await late_context.__aexit__(None, None, None)
        async with session.get(f"http://{host}:{port}/metrics") as answer:
            assert await answer.text() == "now"
        await next_context.__aexit__(None, None, None)


LABEL = "27106d33257c983977bdb963b5a30ce5"


def test_only_bad_drivers_fail_to_load(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    world = demo_world(3, bad=bad)
    success = world.load("node-1", LABEL, 0)
    assert success.exit_code == 0
    bad.write_text(f"{LABEL}\n")
    failure = world.load("node-1", LABEL, 0)
    assert failure.exit_code == 1
    assert (failure.after or 0.0) < (success.after or 0.0), "viewers do not wait for it for long"
    assert world.load("node-2", LABEL, 5).exit_code == 1
    assert world.load("node-1", "another", 0).exit_code == 0


def test_only_the_job_of_the_scenario_runs_until_it_is_told_to_end(tmp_path: Path) -> None:
    world = demo_world(3, bad=tmp_path / "bad", speed=5.0)
    assert world.job("node-1", TOLD_JOB, "main", 0).after is None
    other = world.job("node-1", "other", "main", 0).after
    assert other is not None
    assert 5.0 <= other <= 7.5
