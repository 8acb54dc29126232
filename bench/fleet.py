"""5,000 nodes on the simulated API server and in a cache, in separate processes."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from bench.report import BenchReport, ratio

TITLE = "5,000 nodes on the simulated API server and in a cache, 500 changes a second"
NODES = 5_000
CHANGES = 5_000
RATE = 500
ROUNDS = 5


async def run(report: BenchReport) -> None:
    await asyncio.to_thread(_run, report)


def _run(report: BenchReport) -> None:
    with ExitStack() as stack:
        server = LineProcess(stack, "bench.fleet_server", str(NODES))
        ready = server.read_line()
        endpoint = (ready["url"], ready["token"])
        synced: dict[str, list[float]] = {"bytes": [], "pages": [], "cache": []}
        for _ in range(ROUNDS):
            for mode, seconds in synced.items():
                with ExitStack() as turn:
                    child = LineProcess(turn, "bench.fleet_client", *endpoint, mode)
                    seconds.append(child.read_line()["synced"])
        report.figure("received, dropped as it comes", min(synced["bytes"]) * 1000, "ms")
        report.figure("received in whole pages", min(synced["pages"]) * 1000, "ms")
        report.figure("in the cache", min(synced["cache"]) * 1000, "ms")
        # The baseline receives whole pages, because decoding needs the whole page in memory, while
        # dropped bytes all pass through one small buffer.
        times = ratio(synced["cache"], synced["pages"])
        report.at_most("synced, in time of receiving whole pages", times, 2.0, "x")
        client = LineProcess(stack, "bench.fleet_client", *endpoint, "cache")
        report.figure("cache process, synced", client.read_line()["mib"], "MiB")
        written = server.ask(f"{CHANGES} {RATE}")
        rate = written["wrote"] / written["seconds"]
        report.at_least("changes a second, of 500 asked for", rate / RATE, 0.9, "x")
        result = client.ask(str(written["revision"]))
        report.figure("cache behind the server after the last", result["behind"] * 1000, "ms")
        report.at_least(
            "changes delivered, of those made", result["delivered"] / written["wrote"], 1.0, "x"
        )
        report.at_most("cache process, after the changes", result["mib"], 200, "MiB")
        report.figure("server process, with its journal", written["mib"], "MiB")
        report.figure("records in the journal", written["journal"], "")


class LineProcess:
    """A process that answers lines with lines."""

    def __init__(
        self,
        stack: ExitStack | AsyncExitStack,
        module: str,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environ,
                text=True,
            )
        )
        stack.callback(self._process.communicate)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: str) -> dict[str, Any]:
        """Send a line and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self.read_line()

    def read_line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())
