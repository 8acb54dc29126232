"""Telemetry in virtual time: accepted, missing and late batches."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.bus.telemetry import TelemetryCollector, TelemetrySender
from libs.contracts import subjects, telemetry
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import MAJOR
from libs.contracts.telemetry import Batch, GpuSample
from libs.testing.bus import BusFaults, LocalBus, LocalServer
from libs.testing.simulation import Sim, run

READER = Identity(writer=Writer.TELEMETRY_CLUSTER)
AGENT = Identity(writer=Writer.TELEMETRY, node="a.example")
GPUS = [GpuSample(uuid="GPU-1", index=0, pci="0000:01:00.0", temperature_c=40)]


class World:
    """A server, a collector, and somebody who sends numbered batches."""

    def __init__(self, sim: Sim, faults: BusFaults | None, group: str) -> None:
        self.sim = sim
        self.server = LocalServer(env=sim.env("bus"), faults=faults)
        self.agent: LocalBus = self.server.connect(AGENT)
        self.taken: list[Batch] = []
        self.fanin = TelemetryCollector(
            bus=self.server.connect(READER),
            cluster="default",
            on_batch=self.taken.append,
            group=group,
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
        return self.fanin.received, self.fanin.missing, self.fanin.late


@asynccontextmanager
async def world(
    sim: Sim, faults: BusFaults | None = None, *, group: str = ""
) -> AsyncGenerator[World]:
    made = World(sim, faults, group)
    async with made.fanin:
        yield made


def in_virtual_time(story: Callable[[Sim], Coroutine[Any, Any, None]]) -> None:
    run(story, seed=7)


def test_a_sender_numbers_batches_and_discards_unsent_ones() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            sender = w.sender()
            await sender.send(driver_version="580", gpus=GPUS)
            await sim.clock.sleep(1.0)
            w.server.cut(AGENT)
            await sender.send(driver_version="580", gpus=GPUS)
            await sender.send(driver_version="580", gpus=GPUS)
            w.server.restore(AGENT)
            await sim.clock.sleep(10.0)
            await sender.send(driver_version="580", gpus=GPUS)
            await sim.clock.sleep(1.0)
            assert [batch.seq for batch in w.taken] == [0, 3]
            assert [batch.at for batch in w.taken] == [
                sim.clock.now() - 12.0,
                sim.clock.now() - 1.0,
            ]
            assert w.taken[0].gpus == GPUS
            assert w.taken[0].run == w.taken[1].run
            assert sender.unsent == 2
            assert w.counts() == (2, 2, 0)
            assert w.fanin.missing_of("a.example") == 2
            await w.sender().send(driver_version="580", gpus=GPUS)
            await sim.clock.sleep(1.0)
            assert w.taken[2].run != w.taken[0].run

    in_virtual_time(story)


def test_gaps_repeats_and_late_batches_are_counted() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.send(0, 1, 1, 4, 3, 4, 5)
            assert w.seqs() == [("one", 0), ("one", 1), ("one", 4), ("one", 5)]
            assert w.counts() == (4, 2, 3)

    in_virtual_time(story)


def test_a_late_collector_does_not_count_earlier_batches_as_missing() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.send(1_000, 1_001, 1_003)
            assert w.counts() == (3, 1, 0)

    in_virtual_time(story)


def test_a_new_run_restarts_the_sequence() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.send(7, 8)
            await w.send(0, 1, 3, run="two")
            assert w.counts() == (5, 1, 0)
            await w.send(0, run="three")
            assert w.counts() == (6, 1, 0)

    in_virtual_time(story)


def test_a_late_batch_of_the_previous_run_does_not_start_a_run() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.send(7, 8)
            await w.send(0, run="two")
            await w.send(6, 8)
            await w.send(1, run="two")
            assert w.seqs() == [("one", 7), ("one", 8), ("two", 0), ("two", 1)]
            assert w.counts() == (4, 0, 2)

    in_virtual_time(story)


def test_batches_of_overlapping_runs_are_both_accepted() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.send(7)
            for seq in range(5):
                await w.send(seq, run="two")
                await w.send(8 + seq)
            assert w.counts() == (11, 0, 0)

    in_virtual_time(story)


def test_malformed_and_foreign_batches_are_counted_and_dropped() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            subject = str(subjects.Telemetry(cluster="default", node="a.example"))
            await w.send(0, node="b")
            await w.agent.publish(subject, b"\xc1")
            await w.agent.publish(subject, b"")
            other = Batch(MAJOR + 1, "a.example", "uid", "boot", "one", 0, 0.0, "580", [])
            await w.agent.publish(subject, telemetry.encode(other))
            good = Batch(MAJOR, "a.example", "uid", "boot", "one", 0, 0.0, "580", [])
            await w.agent.publish(f"{subject}.more", telemetry.encode(good))
            await sim.clock.sleep(1.0)
            assert w.taken == []
            assert (w.fanin.foreign, w.fanin.malformed) == (1, 4)
            await w.send(0)
            assert w.counts() == (1, 0, 0)

    in_virtual_time(story)


def test_group_members_share_batches_and_count_no_gaps() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim, group="collectors") as w:
            other: list[Batch] = []
            second = TelemetryCollector(
                bus=w.server.connect(READER),
                cluster="default",
                on_batch=other.append,
                group="collectors",
            )
            async with second:
                await w.send(*range(100))
                assert sorted(batch.seq for batch in (*w.taken, *other)) == list(range(100))
                assert len(w.taken) > 0
                assert len(other) > 0
                assert w.fanin.missing == second.missing == 0

    in_virtual_time(story)


def test_a_forgotten_node_starts_over() -> None:
    async def story(sim: Sim) -> None:
        async with world(sim) as w:
            await w.send(0, 2)
            w.fanin.forget("a.example")
            assert w.fanin.missing_of("a.example") == 0
            await w.send(9)
            assert w.counts() == (3, 1, 0)

    in_virtual_time(story)


@pytest.mark.parametrize("seed", range(5))
def test_batches_stay_ordered_and_counted_despite_faults(seed: int) -> None:
    troubles = BusFaults(lost=0.1, repeated=0.1, reordered=0.1, delay=(0.0, 5.0))

    async def story(sim: Sim) -> None:
        async with world(sim, troubles) as w:
            sender = w.sender()
            for _ in range(500):
                await sender.send(driver_version="580", gpus=GPUS)
                await sim.clock.sleep(1.0)
            await sim.clock.sleep(10.0)
            seqs = [batch.seq for batch in w.taken]
            assert seqs == sorted(set(seqs))
            assert w.fanin.received == len(seqs)
            assert w.fanin.missing == seqs[-1] - seqs[0] + 1 - len(seqs)
            assert w.fanin.missing > 20
            assert w.fanin.late > 20

    run(story, seed=seed)
