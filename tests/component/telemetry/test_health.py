"""The verdict on the GPUs of a stand-in, which the real pynvml reads; the agent's time is virtual.

A sweep waits in real time for a GPU that hangs, and not longer than the reader's deadline.
"""

import fcntl
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager

from msgspec.structs import replace

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.gpus import REMEDIES, GpuProblem
from libs.contracts.health import Health, HealthFinding, HealthRule, HealthState
from libs.contracts.reports import BEAT_PERIOD, Outcome
from libs.contracts.telemetry import Batch
from libs.health.record import XID_END
from libs.host.kernel_log import slot_of
from services.telemetry.node.publisher import RETRY_INTERVAL
from tests.component.gpus.machine import StandInMachine
from tests.unit.host.gpus_suite import LONGEST_WAIT
from tests.unit.telemetry.node.world import INTERVAL, World, in_world

OK, FAILED = HealthState.OK, HealthState.FAILED
HEALED = XID_END + RETRY_INTERVAL + 2 * INTERVAL
"""Seconds after which a GPU that is back counts as healthy."""


def use(world: World, bench: StandInMachine) -> None:
    """Let the agent's machine have the GPUs of the stand-in."""
    world.machine.machine = replace(world.machine.machine, gpus=bench.gpus)
    world.driver.gpus = bench.gpus  # pyright: ignore[reportAttributeAccessIssue]


def states(world: World) -> list[HealthState]:
    return [gpu.state for gpu in world.reported(Health)[-1].gpus]


def all_but(index: int) -> list[HealthState]:
    return [FAILED if each == index else OK for each in range(8)]


def findings(world: World, index: int) -> dict[HealthRule, HealthFinding]:
    return {each.rule: each for each in world.reported(Health)[-1].gpus[index].findings}


def measured(batch: Batch) -> list[int]:
    return [gpu.index for gpu in batch.gpus if gpu.temperature_c is not None]


@in_world
async def test_an_nvml_process_that_crashes_costs_neither_a_sample_nor_a_verdict(
    world: World, bench: StandInMachine
) -> None:
    use(world, bench)
    async with world.received_batches() as batches, world.agent():
        await world.clock.sleep(1)
        for number in range(3):
            os.kill(bench.processes[-1].pid, signal.SIGSEGV)
            assert bench.processes[-1].has_ended(within=LONGEST_WAIT)
            await world.clock.sleep(INTERVAL)
            assert len(bench.processes) == number + 2
        assert states(world) == [OK] * 8
        assert len(world.reported(Health)) == 1
    assert [measured(batch) for batch in batches] == [list(range(8))] * len(batches)


@in_world
async def test_an_xid_alone_outlives_the_agent_and_ends_with_the_driver(
    world: World, bench: StandInMachine
) -> None:
    use(world, bench)
    async with world.agent():
        await world.clock.sleep(1)
        bench.stand_in.gpus[7].report_xid(119)
        bench.stand_in.gpus[0].report_xid(13)
        bench.settle()
        await world.clock.sleep(2 * INTERVAL)
        assert states(world) == all_but(7)
        await world.clock.sleep(10 * INTERVAL)
        assert states(world) == all_but(7)
    async with world.agent():
        await world.clock.sleep(10 * INTERVAL)
        assert states(world) == all_but(7)
        bench.unload()
        await world.clock.sleep(INTERVAL)
        assert states(world) == all_but(7)
        bench.load("580.95.05")
        await world.clock.sleep(HEALED)
        assert states(world) == [OK] * 8


@contextmanager
def kernel_log(bench: StandInMachine, *texts: str) -> Generator[None]:
    """Let the kernel log hold these records for those who open it."""
    path = bench.root / "dev/kmsg"
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    file = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_NONBLOCK | os.O_DIRECT)  # a record per read
    for sequence, text in enumerate(texts):
        os.write(file, f"3,{sequence},1000000,-;{text}\n".encode())
    yield
    os.close(file)
    path.unlink()


@in_world
async def test_xids_since_the_drivers_load_count_which_came_while_no_agent_ran(
    world: World, bench: StandInMachine
) -> None:
    bench.gpus.open()
    slots = [slot_of(gpu.pci) for gpu in bench.gpus.describe()]
    bench.restart_reader()

    def xid(index: int, code: int) -> str:
        return f"NVRM: Xid (PCI:{slots[index]}): {code}, pid=1, x"

    log = [xid(5, 95), "NVRM: loading NVIDIA UNIX Open Kernel Module", xid(2, 95), "usb 1-1: x"]
    world.set_load_time(1_000.0)
    with kernel_log(bench, *log):
        use(world, bench)
        async with world.agent():
            await world.clock.sleep(1 + INTERVAL)
            assert states(world) == all_but(2)
            xids = world.families()["DCGM_FI_DEV_XID_ERRORS"].samples
            assert [(each.labels["gpu"], each.value) for each in xids] == [("2", 95.0)]
            world.set_load_time(2_000.0)
            await world.clock.sleep(HEALED)
            assert states(world) == [OK] * 8
    bench.restart_reader()
    with kernel_log(bench, *log):
        use(world, bench)
        async with world.agent():
            await world.clock.sleep(HEALED)
            assert states(world) == [OK] * 8, "the same record counts once"
    bench.restart_reader()
    world.set_load_time(3_000.0)
    with kernel_log(bench, *log, xid(4, 79), log[1], xid(6, 79)):
        use(world, bench)
        async with world.agent():
            await world.clock.sleep(HEALED)
            assert states(world) == all_but(6), "it came after the new load"


@in_world
async def test_a_gpu_with_uncorrectable_errors_heals_when_it_is_reset(
    world: World, bench: StandInMachine
) -> None:
    use(world, bench)
    async with world.received_batches() as batches, world.agent():
        await world.clock.sleep(1)
        gpu = bench.stand_in.gpus[5]
        gpu.health.ecc_volatile.uncorrected_dram = 1
        gpu.health.remap_pending = 1
        gpu.report_xid(48)
        bench.settle()
        await world.clock.sleep(INTERVAL)
        assert states(world) == all_but(5)
        assert findings(world, 5).keys() == {HealthRule.XID, HealthRule.ECC, HealthRule.ROW_REMAP}
        gpu.reset()
        await world.clock.sleep(HEALED)
        assert states(world) == [OK] * 8
    assert all(measured(batch) == list(range(8)) for batch in batches)


@in_world
async def test_a_driver_that_hangs_is_named_while_the_agent_is_alive_and_quiesces_nothing(
    world: World, bench: StandInMachine
) -> None:
    use(world, bench)
    beats: list[str] = []
    world.server.add_tracer(
        lambda record: beats.append(record.subject) if ".beat." in record.subject else None
    )
    async with world.agent() as service:
        await world.clock.sleep(1)
        bench.stand_in.machine.one_lock = 1
        bench.stand_in.gpus[3].hang()
        bench.hold_back(stuck=True)
        await world.clock.sleep(INTERVAL)
        assert states(world) == [FAILED] * 8
        assert {findings(world, index)[HealthRule.UNUSABLE].remedy for index in range(8)} <= {
            REMEDIES[GpuProblem.DRIVER_HUNG],
            REMEDIES[GpuProblem.NO_ANSWER],
        }
        assert REMEDIES[GpuProblem.DRIVER_HUNG] in service.unready_reasons()[0]
        result = await world.wait_for_result(await world.send_command(Quiesce()))
        assert (result.outcome, result.code) == (Outcome.FAILED, "devices-open")
        count = len(beats)
        await world.clock.sleep(300.0)
        assert len(beats) - count >= 300.0 / BEAT_PERIOD - 1
        assert states(world) == [FAILED] * 8
        assert len(world.reported(Health)) == 2
        bench.stand_in.gpus[3].release()
        bench.stand_in.machine.one_lock = 0
        bench.hold_back(stuck=False)
        await world.wait_for_result(await world.send_command(Idle()))
        await world.clock.sleep(HEALED)
        assert states(world) == [OK] * 8
        assert service.unready_reasons() == []
