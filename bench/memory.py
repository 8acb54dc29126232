"""Resident memory of a connected process, above that of one with only the imports."""

import asyncio
import importlib
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import BenchReport
from bench.resident import resident
from libs.bus.commands.executor import Op, OpDone
from libs.bus.commands.receiver import CommandReceiver
from libs.bus.journal import FileJournal
from libs.bus.nats.bus import connect
from libs.bus.reporter import Reporter
from libs.contracts.commands import CommandKind
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import COMMANDS
from libs.runtime.clock import SystemClock
from libs.testing.simulation import make_env

TITLE = "resident memory of a connected process"

IMPORTED = "import msgspec, nats, aiohttp, prometheus_client, structlog"

PRINT_RESIDENT = "; from bench.resident import resident; print(resident())"


async def run(report: BenchReport) -> None:
    """Run two processes, each of which prints its figure."""
    from libs.testing.nats import NatsServer  # not in the process that is measured

    async with NatsServer() as server:
        bare = await asyncio.to_thread(_resident, "-c", IMPORTED + PRINT_RESIDENT)
        connected = await asyncio.to_thread(_resident, "-m", "bench.memory", server.url)
    report.figure("only imported", bare, "MiB")
    report.figure("connected, as a component with its command receiver", connected, "MiB")
    report.at_most("connected, above only imported", connected - bare, 12, "MiB")


def _resident(*arguments: str) -> float:
    child = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return float(child.stdout)


async def _component(url: str) -> None:
    """Set up everything that all node components share."""
    importlib.import_module("libs.bus.connect")  # as every process of a service does

    identity = Identity(writer=Writer.DRIVER, node="gpu-1.example")
    clock, source = SystemClock(), random.Random(1)
    async with connect(url=url, identity=identity, env=make_env(clock=clock, random=source)) as bus:
        reporter = Reporter(
            bus=bus, env=make_env(clock=clock, random=source), node_uid="uid-1", boot_id="boot-1"
        )
        with tempfile.TemporaryDirectory() as folder:
            receiver = CommandReceiver(
                bus=bus,
                env=make_env(clock=clock, random=source),
                journal=FileJournal(Path(folder) / "journal", run=asyncio.to_thread),
                reporter=reporter,
                node_uid="uid-1",
                boot_id="boot-1",
                handlers={CommandKind.IDLE: _done},
                checks={},
            )
            tasks = [asyncio.create_task(receiver.run()), asyncio.create_task(reporter.run())]
            async with asyncio.timeout(10):
                await bus.ensure(COMMANDS)
                while receiver.last_error:
                    await asyncio.sleep(0.05)
            print(resident())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _done(_: Op) -> OpDone:
    return OpDone()


if __name__ == "__main__":
    asyncio.run(_component(sys.argv[1]))
