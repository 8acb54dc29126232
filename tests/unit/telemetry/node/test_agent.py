"""The telemetry agent: it exports current values only, and releases the GPUs on command."""

from itertools import pairwise

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.gpus import REMEDIES, GpuProblem
from libs.contracts.reports import Outcome
from services.telemetry.exposition import LATE
from services.telemetry.node.publisher import CHANGE_INTERVAL, RETRY_INTERVAL
from services.telemetry.node.sampler import STALE_AFTER
from tests.builders.agent_world import BOOT, NODE, UID
from tests.builders.fake_machine import VERSION, gpu
from tests.unit.telemetry.node.world import INTERVAL, World, in_world

TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
XID = "DCGM_FI_DEV_XID_ERRORS"
REPORT_INTERVAL = 30.0
SOON = CHANGE_INTERVAL + 2 * INTERVAL


@in_world
async def test_gpus_are_measured_every_second_and_sent_every_half_minute(world: World) -> None:
    async with world.received_batches() as batches, world.agent() as service:
        await world.clock.sleep(10 * REPORT_INTERVAL + 0.5)
        assert service.unready_reasons() == []
        assert world.values(TEMPERATURE) == {"0": 40, "1": 41}
        world.driver.silent.add(1)
        await world.clock.sleep(INTERVAL)
        assert (world.values(TEMPERATURE), world.values(LATE)) == ({"0": 40, "1": 41}, {"1": 1})
        world.driver.silent.clear()
        await world.clock.sleep(INTERVAL)
        labels = world.families()[TEMPERATURE].samples[1].labels
        assert labels["device"] == "nvidia5"
        assert labels["pci_bus_id"] == "00000000:01:00.0"
        assert labels["hostname"] == NODE
        assert labels["DCGM_FI_DRIVER_VERSION"] == VERSION
    assert [batch.seq for batch in batches] == list(range(11))
    last = batches[-1]
    assert (last.node, last.node_uid, last.boot_id) == (NODE, UID, BOOT)
    assert (last.driver_version, last.xids) == (VERSION, 0)
    assert [each.temperature_c for each in last.gpus] == [40, 41]
    assert [(each.minor, each.model) for each in last.gpus] == [
        (4, "NVIDIA H100 80GB HBM3"),
        (5, "NVIDIA H100 80GB HBM3"),
    ]
    assert [round(after.at - before.at) for before, after in pairwise(batches)] == 10 * [30]
    assert world.counted("sluice_telemetry_sweeps_total", outcome="measured") == 303
    assert world.counted("sluice_telemetry_sweeps_total", outcome="waiting") == 0


@in_world
async def test_a_gpu_that_is_late_keeps_its_last_sample_which_is_marked_until_it_is_stale(
    world: World,
) -> None:
    async with world.received_batches() as batches, world.agent():
        await world.clock.sleep(1)
        world.driver.silent.add(1)
        await world.clock.sleep(STALE_AFTER)
        assert world.values(TEMPERATURE) == {"0": 40, "1": 41}
        assert world.values(LATE) == {"1": STALE_AFTER}
        await world.clock.sleep(INTERVAL)
        assert (world.values(TEMPERATURE), world.values(LATE)) == ({"0": 40}, {})
        world.driver.silent.clear()
        await world.clock.sleep(INTERVAL)
        assert (world.values(TEMPERATURE), world.values(LATE)) == ({"0": 40, "1": 41}, {})
    assert all(len(batch.gpus) == 2 for batch in batches)


@in_world
async def test_without_a_driver_the_agent_is_unready_and_starts_once_one_is_loaded(
    world: World,
) -> None:
    world.driver.set_version("")
    async with world.received_batches() as batches, world.agent() as service:
        await world.clock.sleep(1)
        assert service.unready_reasons() == [
            f"telemetry: gpus: {REMEDIES[GpuProblem.DRIVER_NOT_LOADED]}"
        ]
        assert world.page().body == b""
        assert (batches[-1].driver_version, batches[-1].gpus) == ("", [])
        world.driver.set_version(VERSION)
        await world.clock.sleep(RETRY_INTERVAL)
        assert service.unready_reasons() == []
        assert world.values(TEMPERATURE) == {"0": 40, "1": 41}
        world.driver.set_version("")
        await world.clock.sleep(INTERVAL)
        assert world.page().body == b""
        assert world.driver.held == 0
    assert world.counted("sluice_telemetry_sweeps_total", outcome="waiting") == 2


@in_world
async def test_a_driver_that_cannot_be_used_is_tried_every_five_seconds(world: World) -> None:
    """Each try may start a process."""
    tried: list[float] = []
    world.driver.set_version("")
    world.driver.on_open = lambda: tried.append(world.clock.now())
    async with world.agent():
        await world.clock.sleep(60.5)
    assert [round(after - before) for before, after in pairwise(tried)] == [5] * 12


@in_world
async def test_quiesce_releases_the_gpus_and_drops_the_last_sweep(world: World) -> None:
    async with world.received_batches() as batches:
        async with world.agent() as service:
            await world.clock.sleep(5)
            assert world.driver.held == 1
            await world.carry_out(Quiesce())
            assert world.driver.held == 0
            assert world.page().body == b""
            assert batches[-1].gpus == []
            assert "are released while the driver changes" in service.unready_reasons()[0]
            await world.clock.sleep(4 * STALE_AFTER)
            assert world.driver.held == 0
            assert world.page().body == b""
            (reason,) = service.unready_reasons()
            assert "are released while the driver changes" in reason
        async with world.agent():
            await world.clock.sleep(4 * STALE_AFTER)
            assert world.driver.held == 0
            assert world.page().body == b""
            await world.carry_out(Idle())
            assert world.driver.held == 1
            assert world.values(TEMPERATURE) == {"0": 40, "1": 41}
            assert len(batches[-1].gpus) == 2


@in_world
async def test_quiesce_fails_while_the_kernel_holds_a_device_open(world: World) -> None:
    async with world.agent() as service:
        await world.clock.sleep(5)
        world.driver.gpus.is_stuck = True
        result = await world.carry_out(Quiesce())
        assert (result.outcome, result.code) == (Outcome.FAILED, "devices-open")
        assert world.page().body == b""
        await world.clock.sleep(INTERVAL)
        assert service.unready_reasons() == [f"telemetry: gpus: {REMEDIES[GpuProblem.DRIVER_HUNG]}"]
        world.driver.gpus.is_stuck = False
        await world.clock.sleep(RETRY_INTERVAL)
        assert world.driver.held == 0


@in_world
async def test_a_gpu_that_fell_off_the_bus_keeps_its_error_and_no_reading(world: World) -> None:
    async with world.received_batches() as batches, world.agent() as service:
        await world.clock.sleep(1)
        assert world.values(XID) == {}
        world.driver.silent.add(1)
        world.driver.gpus.change([gpu(0), gpu(1, problem=GpuProblem.LOST)])
        world.driver.gpus.fail(gpu(1).uuid, 79)
        await world.clock.sleep(SOON)
        assert world.values(TEMPERATURE) == {"0": 40}
        assert world.values(XID) == {"1": 79}
        labels = world.families()[XID].samples[0].labels
        assert (labels["err_code"], labels["err_msg"]) == ("79", "GPU has fallen off the bus")
        assert service.unready_reasons() == []
        world.driver.gpus.change([gpu(0)])
        await world.clock.sleep(SOON)
        assert world.values(TEMPERATURE) == {"0": 40}
        assert world.values(XID) == {}
    assert [len(batch.gpus) for batch in batches] == [2, 2, 1]
    assert [batch.xids for batch in batches] == [0, 1, 1]


@in_world
async def test_each_report_of_an_xid_counts_once(world: World) -> None:
    async with world.received_batches() as batches, world.agent():
        await world.clock.sleep(1)
        world.driver.gpus.fail("GPU-0", 31)
        world.driver.gpus.fail("GPU-0", 31)
        await world.clock.sleep(3 * REPORT_INTERVAL)
        world.driver.gpus.fail("GPU-0", 13)
        await world.clock.sleep(3 * REPORT_INTERVAL)
        assert world.values(XID) == {"0": 13}
        name = "sluice_telemetry_xid_errors_total"
        assert world.counted(name, uuid="GPU-0", xid="31") == 2
        assert world.counted(name, uuid="GPU-0", xid="13") == 1
    assert [batch.xids for batch in batches] == [0, 2, 2, 2, 3, 3, 3]


@in_world
async def test_an_xid_counts_although_no_reading_succeeds_afterwards(world: World) -> None:
    async with world.received_batches() as batches, world.agent() as service:
        await world.clock.sleep(1)
        world.driver.gpus.fail("GPU-1", 79)
        world.driver.fails_reads = True
        await world.clock.sleep(SOON)
        assert world.page().body == b""
        assert service.unready_reasons() == [f"telemetry: gpus: {REMEDIES[GpuProblem.NO_ANSWER]}"]
        world.driver.fails_reads = False
        await world.clock.sleep(SOON)
        assert world.values(XID) == {"1": 79}
    assert [batch.xids for batch in batches] == [0, 1, 1]


@in_world
async def test_counters_continue_after_a_quiesce(world: World) -> None:
    energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    counted = "sluice_telemetry_xid_errors_total"
    async with world.received_batches() as batches, world.agent():
        world.driver.values = {"energy_mj": 5_000, "power_violation_ns": 7}
        world.driver.gpus.fail("GPU-0", 31)
        await world.clock.sleep(SOON)
        assert world.values(energy) == {"0": 5_000, "1": 5_000}
        await world.carry_out(Quiesce())
        assert (world.page().body, batches[-1].xids) == (b"", 1)
        world.driver.gpus.fail("GPU-0", 13)  # the kernel's log tells it while NVML is closed
        world.driver.values = {"energy_mj": 6_000, "power_violation_ns": 8}
        await world.clock.sleep(SOON)
        assert batches[-1].xids == 2
        await world.carry_out(Idle())
        assert world.values(energy) == {"0": 6_000, "1": 6_000}
        assert world.values(XID) == {"0": 13}
        assert [world.counted(counted, uuid="GPU-0", xid=xid) for xid in ("31", "13")] == [1, 1]
        last = batches[-1].gpus[0]
        assert (last.energy_mj, last.power_violation_ns) == (6_000, 8)
        assert {batch.run for batch in batches} == {batches[0].run}


@in_world
async def test_a_restart_begins_another_run_without_earlier_xids(
    world: World,
) -> None:
    async with world.received_batches() as batches:
        async with world.agent():
            world.driver.gpus.fail("GPU-0", 31)
            await world.clock.sleep(SOON)
            assert world.values(XID) == {"0": 31}
        async with world.agent():
            await world.clock.sleep(1)
            assert world.values(XID) == {}
    first, second = batches
    assert first.run != second.run
    assert [first.seq, second.seq] == [0, 0]
    assert [first.xids, second.xids] == [1, 0]


@in_world
async def test_during_an_outage_of_the_bus_the_page_is_served_and_batches_are_counted(
    world: World,
) -> None:
    async with world.received_batches() as batches, world.agent():
        await world.clock.sleep(1)
        world.server.stop()
        await world.clock.sleep(2 * REPORT_INTERVAL)
        assert world.values(TEMPERATURE) == {"0": 40, "1": 41}
        assert world.counted("sluice_telemetry_unsent_batches_total") == 2
        world.server.start()
        await world.clock.sleep(REPORT_INTERVAL)
        assert [batch.seq for batch in batches] == [0, 3]


@in_world
async def test_the_agent_also_serves_a_health_page_and_an_index(
    world: World,
) -> None:
    async with world.agent():
        await world.clock.sleep(1)
        assert set(world.pages) == {"/", "/metrics", "/health"}
        assert (world.page("/health").status, world.page("/health").body) == (200, b"OK")
        assert world.page().content_type.startswith("text/plain; version=0.0.4")
        assert b'href="/metrics"' in world.page("/").body
