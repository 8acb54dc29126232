"""A machine's page of GPUs: that of the agent that lives, at the same port whichever it is."""

import aiohttp

from demo.machine_process import GpuExporter
from libs.runtime.http import Page


async def test_each_agent_shows_its_own_and_without_one_the_page_says_so() -> None:
    exporter = GpuExporter()
    async with exporter.server as server, aiohttp.ClientSession() as session:
        host, port = server.address

        async def shown() -> tuple[int, str]:
            async with session.get(f"http://{host}:{port}/metrics") as answer:
                return answer.status, await answer.text()

        nobody = (503, "no telemetry agent runs on this machine now; try again later\n")
        assert await shown() == nobody
        async with exporter.serve({"/metrics": lambda: Page(b"first")}):
            assert await shown() == (200, "first")
            async with exporter.serve({"/metrics": lambda: Page(b"next")}):
                assert await shown() == (200, "next")
            assert await shown() == nobody
        assert await shown() == nobody


async def test_an_agent_that_ends_late_takes_no_page_away_from_the_next() -> None:
    exporter = GpuExporter()
    late, now = {"/metrics": lambda: Page(b"late")}, {"/metrics": lambda: Page(b"now")}
    late_one, next_one = exporter.serve(late), exporter.serve(now)
    async with exporter.server as server, aiohttp.ClientSession() as session:
        host, port = server.address
        await late_one.__aenter__()
        await next_one.__aenter__()
        await late_one.__aexit__(None, None, None)
        async with session.get(f"http://{host}:{port}/metrics") as answer:
            assert await answer.text() == "now"
        await next_one.__aexit__(None, None, None)
