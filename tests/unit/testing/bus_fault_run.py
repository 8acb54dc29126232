"""A run with every bus fault at once; as a program it prints the journal."""

import asyncio
import sys

import msgspec
from msgspec.structs import replace

from libs.bus.port import BusError, Closable, FromSequence, LastPerSubject
from libs.contracts.identities import Identity, Writer
from libs.testing.bus import BusFaults, LocalBus, LocalServer, TraceRecord
from libs.testing.simulation import Sim, run
from tests.component.bus.recorders import RecordingFollower
from tests.unit.testing import bus

NODES = ("a", "b", "c", "d")
OWNER = Identity(writer=Writer.SCHEDULER)
KEPT = replace(bus.KEPT, per_subject=3, notify=("kept.>", "poke.>"))
ALL_FAULTS = BusFaults(
    lost=0.1,
    repeated=0.1,
    reordered=0.1,
    delayed=0.2,
    delay=(0.0, 3.0),
    call_lost=0.05,
    answer_lost=0.05,
    between_drops=(5.0, 60.0),
    dropped=(0.5, 20.0),
)


async def main(sim: Sim) -> bytes:
    """Run five connections under faults for ten minutes; return the journal, a line per record."""
    server = LocalServer(env=sim.env("bus"), faults=ALL_FAULTS)
    journal: list[TraceRecord] = []
    server.add_tracer(journal.append)
    owner = server.connect(OWNER)
    buses = [server.connect(Identity(writer=Writer.DRIVER, node=node)) for node in NODES]
    readings: list[Closable] = [
        await owner.follow(KEPT, "kept.>", RecordingFollower(), start=FromSequence()),
        await owner.follow(KEPT, "kept.>", RecordingFollower(), start=LastPerSubject()),
    ]
    async with asyncio.TaskGroup() as group:
        for bus in buses:
            group.create_task(_use_bus(sim, bus), name=str(bus.identity))
        group.create_task(_manage_stream(sim, server, owner), name="owner")
    for reading in readings:
        await reading.close()
    return b"\n".join(map(msgspec.json.encode, journal))


async def _use_bus(sim: Sim, bus: LocalBus) -> None:
    """Store, request, publish and subscribe, despite faults."""
    random = sim.random_for(str(bus.identity))
    answers: list[asyncio.Task[None]] = []

    async def answer(reply: str) -> None:
        try:
            await bus.publish(reply, bus.identity.node.encode())
        except BusError:
            return

    def reply_to(_subject: str, _data: bytes, reply: str) -> None:
        answers.append(asyncio.create_task(answer(reply)))

    await bus.subscribe("ask.>", reply_to, group="all")
    await bus.subscribe(f"poke.{bus.identity.node}", _ignore)
    while sim.clock.monotonic() < 600.0:
        await sim.clock.sleep(random.uniform(0.1, 5.0))
        try:
            node = random.choice(NODES)
            await bus.store(KEPT, f"kept.{node}", b"%d" % random.getrandbits(16))
            await bus.request(f"ask.{node}", b"?", timeout=2.0)
        except BusError:
            continue
    await asyncio.gather(*answers)


def _ignore(_subject: str, _data: bytes, _reply: str) -> None:
    pass


async def _manage_stream(sim: Sim, server: LocalServer, owner: LocalBus) -> None:
    """Ensure the stream, and lose it at intervals."""
    random = sim.random_for("owner")
    while sim.clock.monotonic() < 600.0:
        try:
            await owner.ensure(KEPT)
            await sim.clock.sleep(random.uniform(60.0, 120.0))
            server.lose_stream(KEPT, remade=random.random() < 0.5)
        except BusError:
            await sim.clock.sleep(1.0)


if __name__ == "__main__":
    sys.stdout.buffer.write(run(main, seed=int(sys.argv[1])))
