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


def collecting(bus: Bus, batches: list[Batch]) -> TelemetryCollector:
    return TelemetryCollector(bus=bus, cluster="default", on_batch=batches.append)


async def test_batches_of_many_nodes_arrive_in_order(make_bus: MakeBus) -> None:
    reader = await make_bus(READER)
    taken: list[Batch] = []
    nodes = [f"node-{index}.example" for index in range(5)]
    async with TelemetryCollector(
        bus=reader, cluster="default", on_batch=taken.append
    ) as collector:
        senders = [sender_of(await make_bus(agent_of(node))) for node in nodes]
        for _ in range(50):
            for sender in senders:
                await sender.send(driver_version="580.1", gpus=GPUS)
        await eventually(lambda: len(taken) == 250)
        for node in nodes:
            assert [batch.seq for batch in taken if batch.node == node] == list(range(50))
        assert taken[0].gpus == GPUS
        assert (taken[0].node_uid, taken[0].driver_version) == ("uid", "580.1")
        assert (collector.received, collector.missing, collector.late) == (250, 0, 0)
        assert (collector.malformed, collector.foreign) == (0, 0)


async def test_batches_of_an_outage_are_missing(make_bus: MakeBus, control: ServerControl) -> None:
    reader, agent = await make_bus(READER), await make_bus(agent_of("a.example"))
    taken: list[Batch] = []
    async with TelemetryCollector(
        bus=reader, cluster="default", on_batch=taken.append
    ) as collector:
        sender = sender_of(agent)
        await sender.send(driver_version="580.1", gpus=GPUS)
        await eventually(lambda: len(taken) == 1)
        await control.stop()
        await eventually(lambda: not agent.link.is_up)
        for _ in range(3):
            await sender.send(driver_version="580.1", gpus=GPUS)
        assert sender.unsent == 3
        await control.start()
        await eventually(lambda: agent.link.is_up and reader.link.is_up)
        await sender.send(driver_version="580.1", gpus=GPUS)
        await eventually(lambda: len(taken) == 2)
        assert [batch.seq for batch in taken] == [0, 4]
        assert collector.missing == 3
