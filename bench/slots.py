"""Writing 10,000 slots, compared with plain JetStream publishes with the same header."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

import nats

from bench.report import BenchReport, ratio
from libs.bus.nats.bus import connect
from libs.bus.slots import SlotWriter
from libs.contracts import subjects
from libs.contracts.commands import Command, Order, Quiesce
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.subjects import COMMANDS
from libs.runtime.clock import SystemClock
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env

TITLE = "10,000 slots written; plain JetStream publishes with the same header beside them"
SLOTS = 10_000
WINDOW = 128
ROUNDS = 3
NEW_SLOT = {"Nats-Expected-Last-Subject-Sequence": "0"}


async def run(report: BenchReport) -> None:
    """Measure both in turns, each round in its own cluster, so that every slot is new."""
    source = random.Random(1)
    identity = Identity(writer=Writer.SCHEDULER)
    async with (
        NatsServer() as server,
        connect(url=server.url, identity=identity, env=make_env(random=source)) as bus,
    ):
        await bus.ensure(COMMANDS)
        client = await nats.connect(server.url)
        js = client.jetstream()
        ours: list[float] = []
        theirs: list[float] = []
        slots = SlotWriter(bus=bus, clock=SystemClock())
        commands = [_command(n) for n in range(SLOTS)]

        async def publish(slot: subjects.Command, command: Command) -> None:
            await js.publish(str(slot), encode(command), headers=dict(NEW_SLOT))

        async def write(slot: subjects.Command, command: Command) -> None:
            await slots.write(slot, command)

        for turn in range(ROUNDS):
            theirs.append(await _timed(publish, _slots(f"plain-{turn}"), commands))
            ours.append(await _timed(write, _slots(f"ours-{turn}"), commands))
        await client.close()
        report.figure("plain publishes", SLOTS / min(theirs), "/s")
        report.figure("slots", SLOTS / min(ours), "/s")
        report.at_most("slots, in time of plain publishes", ratio(ours, theirs), 1.5, "x")
        report.at_most("server", server.resident_mib(), 120, "MiB")


def _slots(cluster: str) -> list[subjects.Command]:
    return [
        subjects.Command(cluster=cluster, node=f"gpu-{n}.example", component="driver")
        for n in range(SLOTS)
    ]


def _command(n: int) -> Command:
    return Command.of(
        Quiesce(),
        node=f"gpu-{n}.example",
        node_uid=f"uid-{n}",
        boot_id=f"boot-{n}",
        epoch=1,
        order=Order(1, 1),
        deadline=4e9,
    )


async def _timed(
    write: Callable[[subjects.Command, Command], Awaitable[None]],
    slots: Sequence[subjects.Command],
    commands: Sequence[Command],
) -> float:
    window = asyncio.Semaphore(WINDOW)

    async def windowed(slot: subjects.Command, command: Command) -> None:
        async with window:
            await write(slot, command)

    started = time.perf_counter()
    await asyncio.gather(*map(windowed, slots, commands))
    return time.perf_counter() - started
