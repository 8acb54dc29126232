"""The GPU exporter of a machine, whose port outlives the agents."""

import aiohttp

from demo.simulator import GpuExporter
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


async def test_an_agent_that_ends_late_leaves_the_pages_of_the_next() -> None:
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
