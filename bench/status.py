"""`sluice status` as a program, on a fleet of which no node is done."""

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench.fleet import LineProcess
from bench.report import BenchReport
from libs.contracts.node import STATE_LABEL
from libs.kube.client import APPLY_PATCH, Kube
from libs.kube.http import HttpTransport, StaticToken
from libs.policy.crds import crd_manifests
from libs.runtime.clock import SystemClock

TITLE = "sluice status of 5,000 nodes, of which none is done"
NODES: Final = 5_000
RUNS: Final = 5
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PROGRAM: Final = "import sys; from libs.ctl.command import main; sys.exit(main())"
_CONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: bench
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
clusters: [{name: bench, cluster: {server: "%s"}}]
users: [{name: bench, user: {token: "%s"}}]
"""


class _Run(NamedTuple):
    cpu: float
    seconds: float
    lines: int


async def run(report: BenchReport) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = await asyncio.to_thread(
            LineProcess, stack, "bench.fleet_server", str(NODES), STATE_LABEL
        )
        ready = await asyncio.to_thread(server.read_line)
        transport = await stack.enter_async_context(
            HttpTransport(ready["url"], credentials=StaticToken(ready["token"]))
        )
        kube = Kube(transport, manager="bench", clock=SystemClock())
        for manifest in crd_manifests().values():
            path = f"{_CRDS}/{manifest['metadata']['name']}"
            query = {"fieldManager": "bench", "force": "true"}
            await kube.request("PATCH", path, query=query, body=manifest, content_type=APPLY_PATCH)
        config = folder / "config"
        config.write_text(_CONFIG % (ready["url"], ready["token"]))
        runs = [await asyncio.to_thread(_status, config) for _ in range(RUNS)]
    cpu, seconds = (statistics.median(each) for each in list(zip(*runs, strict=True))[:2])
    report.at_most("CPU of one run, with imports", cpu, 0.5, "s")
    report.figure("until it ends, with the server's answer", seconds, "s")
    report.at_most("lines", max(each.lines for each in runs), 24, "")


def _status(config: Path) -> _Run:
    environ = {"PATH": os.environ["PATH"], "KUBECONFIG": str(config), "COLUMNS": "80"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, "status"], env=environ, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return _Run(cpu, time.monotonic() - began, ended.stdout.count(b"\n"))
