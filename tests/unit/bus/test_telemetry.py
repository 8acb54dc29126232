"""Telemetry in virtual time: accepted, missing and late batches."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from libs.bus.rates import SenderRates
from libs.bus.telemetry import MOST_BATCHES, TelemetryCollector, TelemetrySender
from libs.contracts import subjects, telemetry
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import MAJOR
from libs.contracts.telemetry import Batch, GpuSample
from libs.testing.bus import BusFaults, LocalBus, LocalServer
from libs.testing.simulation import Sim, run
from tests.unit.bus.simulated import in_simulation

READER = Identity(writer=Writer.TELEMETRY_CLUSTER)
AGENT = Identity(writer=Writer.TELEMETRY, node="a.example")
GPUS = [GpuSample(uuid="GPU-1", index=0, pci="0000:01:00.0", temperature_c=40)]


class World:
    """A server, a collector, and a sender of numbered batches."""

    def __init__(self, sim: Sim, faults: BusFaults | None) -> None:
        self.sim = sim
        self.clock = sim.clock
        self.server = LocalServer(env=sim.env("bus"), faults=faults)
        self.agent: LocalBus = self.server.connect(AGENT)
        self.taken: list[Batch] = []
        self.collector = TelemetryCollector(
            bus=self.server.connect(READER), cluster="default", on_batch=self.taken.append
        )

    def sender(self) -> TelemetrySender:
        return TelemetrySender(bus=self.agent, env=self.sim.env(), node_uid="uid", boot_id="boot")

    async def send(self, *seqs: int, run: str = "one", node: str = "a.example") -> None:
        subject = str(subjects.Telemetry(cluster="default", node="a.example"))
        for seq in seqs:
            batch = Batch(MAJOR, node, "uid", "boot", run, seq, 0.0, "580", GPUS)
            await self.agent.publish(subject, telemetry.encode(batch))
        await self.sim.clock.sleep(1.0)

    def seqs(self) -> list[tuple[str, int]]:
        return [(batch.run, batch.seq) for batch in self.taken]

    def counts(self) -> tuple[int, int, int]:
        return self.collector.received, self.collector.missing, self.collector.late


@asynccontextmanager
async def enter_world(sim: Sim, faults: BusFaults | None = None) -> AsyncGenerator[World]:
    world = World(sim, faults)
    async with world.collector:
        yield world


in_virtual_time = in_simulation(enter_world)


@in_virtual_time
async def test_a_sender_numbers_batches_and_discards_unsent_ones(world: World) -> None:
    sender = world.sender()
    await sender.send(driver_version="580", gpus=GPUS)
    await world.clock.sleep(1.0)
    world.server.cut(AGENT)
    await sender.send(driver_version="580", gpus=GPUS)
    await sender.send(driver_version="580", gpus=GPUS)
    world.server.restore(AGENT)
    await world.clock.sleep(10.0)
    await sender.send(driver_version="580", gpus=GPUS)
    await world.clock.sleep(1.0)
    assert [batch.seq for batch in world.taken] == [0, 3]
    assert [batch.at for batch in world.taken] == [
        world.clock.now() - 12.0,
        world.clock.now() - 1.0,
    ]
    assert world.taken[0].gpus == GPUS
    assert world.taken[0].run == world.taken[1].run
    assert sender.unsent == 2
    assert world.counts() == (2, 2, 0)
    await world.sender().send(driver_version="580", gpus=GPUS)
    await world.clock.sleep(1.0)
    assert world.taken[2].run != world.taken[0].run


@pytest.mark.parametrize(
    ("batches", "received", "missing", "late"),
    [
        pytest.param([("one", (0, 1, 1, 4, 3, 4, 5))], 4, 2, 3, id="gaps, repeats, late ones"),
        pytest.param([("one", (1_000, 1_001, 1_003))], 3, 1, 0, id="earlier ones are not missing"),
        pytest.param(
            [("one", (7, 8)), ("two", (0, 1, 3)), ("three", (0,))], 6, 1, 0, id="each run restarts"
        ),
        pytest.param(
            [("one", (7, 8)), ("two", (0,)), ("one", (6, 8)), ("two", (1,))],
            4,
            0,
            2,
            id="a late batch of the previous run starts no run",
        ),
    ],
)
@in_virtual_time
async def test_batches_are_counted_by_run(
    world: World, batches: list[tuple[str, tuple[int, ...]]], received: int, missing: int, late: int
) -> None:
    for name, seqs in batches:
        await world.send(*seqs, run=name)
    assert world.counts() == (received, missing, late)
    assert world.seqs() == sorted(set(world.seqs()), key=world.seqs().index)


@in_virtual_time
async def test_batches_of_overlapping_runs_are_both_accepted(world: World) -> None:
    await world.send(7)
    for seq in range(5):
        await world.send(seq, run="two")
        await world.send(8 + seq)
    assert world.counts() == (11, 0, 0)


@in_virtual_time
async def test_malformed_and_foreign_batches_are_counted_and_dropped(world: World) -> None:
    subject = str(subjects.Telemetry(cluster="default", node="a.example"))
    await world.send(0, node="b")
    await world.agent.publish(subject, b"\xc1")
    await world.agent.publish(subject, b"")
    other = Batch(MAJOR + 1, "a.example", "uid", "boot", "one", 0, 0.0, "580", [])
    await world.agent.publish(subject, telemetry.encode(other))
    good = Batch(MAJOR, "a.example", "uid", "boot", "one", 0, 0.0, "580", [])
    await world.agent.publish(f"{subject}.more", telemetry.encode(good))
    large = Batch(
        MAJOR, "a.example", "uid", "boot", "one", 0, 0.0, "x" * subjects.Telemetry.max_message, []
    )
    await world.agent.publish(subject, telemetry.encode(large))
    await world.clock.sleep(1.0)
    assert world.taken == []
    assert (world.collector.foreign, world.collector.malformed) == (1, 5)
    await world.send(0)
    assert world.counts() == (1, 0, 0)


@in_virtual_time
async def test_a_forgotten_node_starts_over(world: World) -> None:
    await world.send(0, 2)
    world.collector.forget("a.example")
    await world.send(9)
    assert world.counts() == (3, 1, 0)


@pytest.mark.parametrize("seed", range(5))
def test_batches_stay_ordered_and_counted_despite_faults(seed: int) -> None:
    faults = BusFaults(lost=0.1, repeated=0.1, reordered=0.1, delay=(0.0, 5.0))

    async def story(sim: Sim) -> None:
        async with enter_world(sim, faults) as world:
            sender = world.sender()
            for _ in range(500):
                await sender.send(driver_version="580", gpus=GPUS)
                await sim.clock.sleep(1.0)
            await sim.clock.sleep(10.0)
            seqs = [batch.seq for batch in world.taken]
            assert seqs == sorted(set(seqs))
            assert world.collector.received == len(seqs)
            assert world.collector.missing == seqs[-1] - seqs[0] + 1 - len(seqs)
            assert world.collector.missing > 20
            assert world.collector.late > 20

    run(story, seed=seed)


@in_virtual_time
async def test_of_a_flood_of_batches_ten_in_a_second_are_read(world: World) -> None:
    taken: list[Batch] = []
    rates = SenderRates(world.clock, most=MOST_BATCHES)
    async with TelemetryCollector(
        bus=world.server.connect(READER), cluster="default", on_batch=taken.append, rates=rates
    ):
        await world.send(*range(500))
        assert len(taken) == MOST_BATCHES
        assert rates.dropped == 500 - MOST_BATCHES
