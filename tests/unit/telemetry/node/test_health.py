"""The verdict that the agent reports: on change, over restarts, boots and a quiesce."""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.gpus import REMEDIES, GpuProblem, RecoveryAction
from libs.contracts.health import Health, HealthRule, HealthState
from libs.health.record import XID_END, GpuRecord
from libs.health.tracks import XidTrack
from libs.host.kernel_log import SwitchError
from services.health_file import BEAT_EVERY, NAME, OFFERING, HealthFile, Kept
from services.telemetry.node.publisher import RETRY_INTERVAL
from tests.builders.fake_machine import BOOT, gpu
from tests.builders.machine_files import put
from tests.unit.telemetry.node.world import INTERVAL, World, in_world

BACK = XID_END + RETRY_INTERVAL + 2 * INTERVAL
"""Seconds after which a GPU that is back counts as healthy."""
OK, DEGRADED, FAILED = HealthState.OK, HealthState.DEGRADED, HealthState.FAILED


def states(health: Health) -> list[HealthState]:
    return [each.state for each in health.gpus]


def verdicts(world: World) -> list[list[HealthState]]:
    """Return the states of the reported verdicts, the oldest first."""
    return [states(health) for health in world.reported(Health)]


@in_world
async def test_one_verdict_is_reported_while_nothing_changes(world: World) -> None:
    async with world.agent():
        await world.clock.sleep(5 * INTERVAL)
        assert verdicts(world) == [[OK, OK]]


@in_world
async def test_nothing_is_reported_of_gpus_that_were_never_seen(world: World) -> None:
    world.driver.set_version("")
    async with world.agent():
        await world.clock.sleep(5 * INTERVAL)
        assert verdicts(world) == []


@in_world
async def test_an_xid_fails_its_gpu_within_the_sweep_and_for_later_processes(
    world: World,
) -> None:
    async with world.agent():
        await world.clock.sleep(1)
        world.driver.gpus.fail("GPU-1", 79)
        await world.clock.sleep(INTERVAL)
        assert verdicts(world) == [[OK, OK], [OK, FAILED]]
    async with world.agent():
        await world.clock.sleep(5 * INTERVAL)
        assert verdicts(world) == [[OK, OK], [OK, FAILED], [OK, FAILED]]
        finding = world.reported(Health)[-1].gpus[1].findings[0]
        assert (finding.rule, finding.xid) == (HealthRule.XID, 79)
        assert finding.since == world.reported(Health)[1].gpus[1].findings[0].since


@in_world
async def test_an_xid_of_the_kernel_log_names_its_gpu_by_slot(world: World) -> None:
    async with world.agent():
        await world.clock.sleep(1)
        world.driver.gpus.fail("0000:01:00", 119)
        world.driver.gpus.fail("0000:77:00", 119)
        await world.clock.sleep(INTERVAL)
        assert verdicts(world)[-1] == [OK, FAILED]


@in_world
async def test_a_fatal_error_of_an_nvswitch_degrades_all_gpus_and_another_none(
    world: World,
) -> None:
    error = SwitchError(slot="0000:c1:00", code=20034, is_fatal=False, text="LTSSM", at=1.0)
    async with world.agent():
        await world.clock.sleep(1)
        world.driver.gpus.fail_switch(error)
        await world.clock.sleep(INTERVAL)
        assert verdicts(world) == [[OK, OK]]
        world.driver.gpus.fail_switch(replace(error, is_fatal=True))
        await world.clock.sleep(INTERVAL)
        assert verdicts(world) == [[OK, OK], [DEGRADED, DEGRADED]]


@in_world
async def test_a_reload_of_the_driver_heals_once_the_gpu_was_back_for_a_while(
    world: World,
) -> None:
    world.machine.set_modules("nvidia")
    async with world.agent():
        await world.clock.sleep(1)
        world.driver.gpus.fail("GPU-0", 119)
        await world.clock.sleep(INTERVAL)
        assert verdicts(world)[-1] == [FAILED, OK]
        await world.clock.sleep(10 * INTERVAL)
        assert verdicts(world)[-1] == [FAILED, OK]
        world.set_load_time(1_000_000.0)
        await world.clock.sleep(INTERVAL)
        assert verdicts(world)[-1] == [FAILED, OK]
        await world.clock.sleep(BACK)
        assert verdicts(world)[-1] == [OK, OK]


@in_world
async def test_a_reload_while_no_agent_ran_counts(world: World) -> None:
    world.set_load_time(1_000.0)
    async with world.agent():
        world.driver.gpus.fail("GPU-0", 119)
        await world.clock.sleep(INTERVAL + 1)
    world.set_load_time(2_000.0)
    async with world.agent():
        await world.clock.sleep(1)
        assert verdicts(world)[-1] == [FAILED, OK]
        await world.clock.sleep(BACK)
        assert verdicts(world)[-1] == [OK, OK]


@in_world
async def test_the_verdict_stays_while_the_gpus_are_released(world: World) -> None:
    async with world.agent():
        await world.clock.sleep(1)
        world.driver.gpus.fail("GPU-1", 48)
        await world.carry_out(Quiesce())
        await world.clock.sleep(10 * INTERVAL)
        assert verdicts(world) == [[OK, OK], [OK, FAILED]]
    async with world.agent():
        await world.clock.sleep(10 * INTERVAL)
        assert verdicts(world)[2:] == [[OK, FAILED]]
        await world.carry_out(Idle())
        await world.clock.sleep(INTERVAL)
        assert verdicts(world)[2:] == [[OK, FAILED]]


@in_world
async def test_another_boot_begins_anew(world: World) -> None:
    async with world.agent():
        world.driver.gpus.fail("GPU-1", 79)
        await world.clock.sleep(INTERVAL + 1)
        assert verdicts(world)[-1] == [OK, FAILED]
    put(world.machine.root, "/proc/sys/kernel/random/boot_id", "boot-2")
    async with world.agent():
        await world.clock.sleep(1)
        assert verdicts(world)[-1] == [OK, OK]


@in_world
async def test_gpus_that_do_not_answer_are_failed_and_heal(world: World) -> None:
    async with world.agent():
        await world.clock.sleep(1)
        world.driver.fails_reads = True
        await world.clock.sleep(INTERVAL)
        health = world.reported(Health)[-1]
        assert states(health) == [FAILED, FAILED]
        finding = health.gpus[0].findings[0]
        assert (finding.rule, finding.remedy) == (
            HealthRule.UNUSABLE,
            REMEDIES[GpuProblem.NO_ANSWER],
        )
        world.driver.fails_reads = False
        await world.clock.sleep(BACK)
        assert verdicts(world) == [[OK, OK], [FAILED, FAILED], [OK, OK]]


@in_world
async def test_a_driver_that_is_not_loaded_says_nothing_against_the_gpus(world: World) -> None:
    async with world.agent():
        await world.clock.sleep(1)
        world.driver.set_version("")
        await world.clock.sleep(5 * INTERVAL)
        assert verdicts(world) == [[OK, OK]]


@in_world
async def test_a_gpu_that_is_not_listed_any_more_is_failed_until_it_is(world: World) -> None:
    async with world.agent():
        await world.clock.sleep(1)
        world.driver.gpus.change([gpu(0)])
        await world.clock.sleep(INTERVAL)
        assert verdicts(world)[-1] == [OK, FAILED]
        asks = gpu(1, recovery=RecoveryAction.DRAIN_P2P)
        world.driver.gpus.change([gpu(0), asks])
        await world.clock.sleep(BACK)
        assert verdicts(world)[-1] == [OK, DEGRADED]


@pytest.mark.parametrize("content", [b"", b"nonsense", b'{"health":2}', b"\xff"])
@in_world
async def test_a_file_that_cannot_be_read_is_replaced(world: World, content: bytes) -> None:
    world.state_dir.mkdir(parents=True)
    file = world.state_dir / NAME
    file.write_bytes(content)
    async with world.agent():
        world.driver.gpus.fail("GPU-1", 79)
        await world.clock.sleep(1)
        assert verdicts(world) == [[OK, FAILED]]
        await world.clock.sleep(INTERVAL)
    async with world.agent():
        await world.clock.sleep(1)
        assert verdicts(world)[-1] == [OK, FAILED]


@in_world
async def test_a_file_that_cannot_be_written_does_not_stop_the_agent(world: World) -> None:
    world.state_dir.parent.mkdir(parents=True)
    world.state_dir.touch()
    async with world.agent() as service:
        world.driver.gpus.fail("GPU-1", 79)
        await world.clock.sleep(INTERVAL + 1)
        assert verdicts(world)[-1] == [OK, FAILED]
        assert service.unready_reasons() == []


@in_world
async def test_an_xid_that_only_the_device_plugin_was_told_of_is_taken_over(world: World) -> None:
    record = GpuRecord(uuid="GPU-1", index=1, xids={95: XidTrack(since=5.0)})
    file = HealthFile(world.machine.tree, OFFERING[0])
    async with world.agent():
        await world.clock.sleep(1)
        file.write(Kept(gpus=(record,)), boot_id=BOOT)
        file.mark(world.clock.now() - 1)
    async with world.agent():
        await world.clock.sleep(1)
        assert verdicts(world)[-1] == [OK, OK], "it is older than what this agent knows"
    file.mark(world.clock.now() + 1)
    async with world.agent():
        await world.clock.sleep(1)
        assert verdicts(world)[-1] == [OK, FAILED]
        assert world.reported(Health)[-1].gpus[1].findings[0].since == 5.0


@in_world
async def test_the_file_is_marked_while_the_agent_judges(world: World) -> None:
    file, marks = HealthFile.beside_journal(world.state_dir), set[float | None]()
    async with world.agent():
        for _ in range(12):
            await world.clock.sleep(BEAT_EVERY)
            marks.add(file.marked_at)
    assert None not in marks
    assert len(marks) >= 10
