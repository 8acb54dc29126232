"""Resident memory of a connected process above one that has only imported its libraries."""

import asyncio
import subprocess
import sys

from bench.report import Report
from sluice.sim.nats import NatsServer

TITLE = "resident memory of a connected process"

IMPORTED = "import msgspec, nats, aiohttp, prometheus_client, structlog"

LOOK = """
import re
text = open('/proc/self/status').read()
print(int(re.search(r'VmRSS:\\s+(\\d+)', text).group(1)) / 1024)
"""


async def run(report: Report) -> None:
    """Two processes, each printing its own figure."""
    async with NatsServer() as server:
        bare = await asyncio.to_thread(_resident, "-c", IMPORTED + LOOK)
        connected = await asyncio.to_thread(_resident, "-m", "bench.memory", server.url)
    report.figure("only imported", bare, "MiB")
    report.figure("connected, as a component with its desk", connected, "MiB")
    report.at_most("above that", connected - bare, 12, "MiB")


def _resident(*arguments: str) -> float:
    child = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return float(child.stdout)
