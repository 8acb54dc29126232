"""Telemetry of a fleet decoded into a table, compared with an empty callback."""

import asyncio
import sys
import time

import nats

from bench.report import BenchReport, ratio
from libs.bus.nats.bus import connect
from libs.bus.telemetry import TelemetryCollector
from libs.contracts import subjects, telemetry
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import MAJOR
from libs.contracts.telemetry import Batch, GpuSample
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env

TITLE = "8-GPU batches decoded into a table; an empty nats-py callback beside it (CPU seconds)"
NODES = 1_000
BATCHES = 20
ROUNDS = 3


async def run(report: BenchReport) -> None:
    """Measure both in turns; another process sends."""
    ours: list[float] = []
    baseline: list[float] = []
    async with NatsServer() as server:
        for turn in range(ROUNDS):
            baseline.append(await _plain(server))
            ours.append(await _fan_in(server, f"run-{turn}"))
    total = NODES * BATCHES
    report.figure("empty callback", total / min(baseline), "/cpu s")
    report.figure("fan-in", total / min(ours), "/cpu s", note=f"{8 * total / min(ours):,.0f} GPUs")
    report.at_least("fan-in, in rate of the empty callback", 1 / ratio(ours, baseline), 0.4, "x")


async def _fan_in(server: NatsServer, run_id: str) -> float:
    table: dict[str, Batch] = {}
    done = asyncio.Event()

    def take(batch: Batch) -> None:
        table[batch.node] = batch
        if batch.seq == BATCHES - 1 and batch.node == _node(NODES - 1):
            done.set()

    identity = Identity(writer=Writer.TELEMETRY_CLUSTER)
    async with (
        connect(
            url=server.url,
            identity=identity,
            env=make_env(),
        ) as bus,
        TelemetryCollector(bus=bus, cluster="default", on_batch=take) as fan_in,
    ):
        seconds = await _time_receiving(server, run_id, done)
        assert (fan_in.received, fan_in.missing, len(table)) == (NODES * BATCHES, 0, NODES)
    return seconds


async def _plain(server: NatsServer) -> float:
    client = await nats.connect(server.url)
    done = asyncio.Event()
    count = 0

    async def received(_: object) -> None:
        nonlocal count
        count += 1
        if count == NODES * BATCHES:
            done.set()

    await client.subscribe(subjects.cluster_pattern(subjects.Telemetry, "default"), cb=received)
    await client.flush()
    seconds = await _time_receiving(server, "plain", done)
    await client.close()
    return seconds


async def _time_receiving(server: NatsServer, run_id: str, done: asyncio.Event) -> float:
    """Return the CPU seconds of this process while it receives the batches of another process."""
    started = time.process_time()
    sender = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.fanin", server.url, run_id
    )
    await done.wait()
    seconds = time.process_time() - started
    await sender.wait()
    return seconds


def _node(n: int) -> str:
    return f"gpu-{n}.example"


def _batch(n: int, seq: int, run_id: str) -> bytes:
    gpus = [
        GpuSample(
            uuid=f"GPU-{n:08x}-1234-5678-9abc-{gpu:012x}",
            index=gpu,
            pci=f"00000000:{gpu:02X}:00.0",
            sm_clock_mhz=1980,
            memory_clock_mhz=2619,
            memory_temperature_c=58,
            temperature_c=51,
            power_w=412.5,
            energy_mj=123456789012,
            pcie_replays=0,
            gpu_utilization=97,
            memory_utilization=61,
            encoder_utilization=0,
            decoder_utilization=0,
            framebuffer_free_mib=12034,
            framebuffer_used_mib=128812,
            framebuffer_reserved_mib=625,
            nvlink_mb_per_s=81234,
            remapped_uncorrectable=0,
            remapped_correctable=0,
            remap_failure=0,
            graphics_active=0.97,
            tensor_active=0.41,
            dram_active=0.62,
            pcie_tx_bytes_per_s=123456789,
            pcie_rx_bytes_per_s=98765432,
            pod_uid=f"8d9c1e1e-0000-4000-8000-{n:012d}",
        )
        for gpu in range(8)
    ]
    return telemetry.encode(
        Batch(
            v=MAJOR,
            node=_node(n),
            node_uid=f"uid-{n}",
            boot_id=f"boot-{n}",
            run=run_id,
            seq=seq,
            at=1.0,
            driver_version="580.95.05",
            gpus=gpus,
        )
    )


async def _send(url: str, run_id: str) -> None:
    client = await nats.connect(url)
    for seq in range(BATCHES):
        for n in range(NODES):
            subject = subjects.Telemetry(cluster="default", node=_node(n))
            await client.publish(str(subject), _batch(n, seq, run_id))
        await client.flush()
    await client.drain()


if __name__ == "__main__":
    asyncio.run(_send(sys.argv[1], sys.argv[2]))
