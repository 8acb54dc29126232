"""Telemetry on both implementations."""

from libs.bus.port import Bus
from libs.bus.telemetry import TelemetryCollector, TelemetrySender
from libs.contracts.identities import Identity, Writer
from libs.contracts.telemetry import Batch, GpuSample
from libs.testing.simulation import make_env
from tests.component.bus.servers import MakeBus, ServerControl
from tests.support import eventually

READER = Identity(writer=Writer.TELEMETRY_CLUSTER)
GPUS = [GpuSample(uuid=f"GPU-{index}", index=index, pci="0000:01:00.0") for index in range(8)]


def agent_of(node: str) -> Identity:
    return Identity(writer=Writer.TELEMETRY, node=node)


def sender_of(bus: Bus) -> TelemetrySender:
    return TelemetrySender(bus=bus, env=make_env(), node_uid="uid", boot_id="boot")


async def test_batches_of_many_nodes_arrive_in_order(make_bus: MakeBus) -> None:
    reader = await make_bus(READER)
    taken: list[Batch] = []
    nodes = [f"node-{index}.example" for index in range(5)]
    async with TelemetryCollector(bus=reader, cluster="default", on_batch=taken.append) as fanin:
        senders = [sender_of(await make_bus(agent_of(node))) for node in nodes]
        for _ in range(50):
            for sender in senders:
                await sender.send(driver_version="580.1", gpus=GPUS)
        await eventually(lambda: len(taken) == 250)
        for node in nodes:
            assert [batch.seq for batch in taken if batch.node == node] == list(range(50))
        assert taken[0].gpus == GPUS
        assert (taken[0].node_uid, taken[0].driver_version) == ("uid", "580.1")
        assert (fanin.received, fanin.missing, fanin.late) == (250, 0, 0)
        assert (fanin.malformed, fanin.foreign) == (0, 0)


async def test_batches_of_an_outage_are_missing(make_bus: MakeBus, trouble: ServerControl) -> None:
    reader, agent = await make_bus(READER), await make_bus(agent_of("a.example"))
    taken: list[Batch] = []
    async with TelemetryCollector(bus=reader, cluster="default", on_batch=taken.append) as fanin:
        sender = sender_of(agent)
        await sender.send(driver_version="580.1", gpus=GPUS)
        await eventually(lambda: len(taken) == 1)
        await trouble.stop()
        await eventually(lambda: not agent.link.is_up)
        for _ in range(3):
            await sender.send(driver_version="580.1", gpus=GPUS)
        assert sender.unsent == 3
        await trouble.start()
        await eventually(lambda: agent.link.is_up and reader.link.is_up)
        await sender.send(driver_version="580.1", gpus=GPUS)
        await eventually(lambda: len(taken) == 2)
        assert [batch.seq for batch in taken] == [0, 4]
        assert fanin.missing == fanin.missing_of("a.example") == 3


async def test_each_batch_reaches_one_group_member(make_bus: MakeBus) -> None:
    agent = await make_bus(agent_of("a.example"))
    one, other = await make_bus(READER), await make_bus(READER)
    taken: list[int] = []

    def take(batch: Batch) -> None:
        taken.append(batch.seq)

    async with (
        TelemetryCollector(bus=one, cluster="default", on_batch=take, group="us") as first,
        TelemetryCollector(bus=other, cluster="default", on_batch=take, group="us") as second,
    ):
        sender = sender_of(agent)
        for _ in range(100):
            await sender.send(driver_version="580.1", gpus=GPUS)
        await eventually(lambda: len(taken) >= 100)
        assert sorted(taken) == list(range(100))
        assert first.received + second.received == 100
        assert first.missing == second.missing == 0
