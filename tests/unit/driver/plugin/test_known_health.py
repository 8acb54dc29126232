"""The verdict by which GPUs are offered: the telemetry agent's, or that of its last records."""

import pytest
from msgspec.structs import replace

from libs.contracts.gpus import RecoveryAction, XidCode
from libs.health.record import GpuRecord
from libs.health.tracks import XidTrack
from libs.policy.plugin_config.config import MigStrategy
from services.health_file import BEAT_EVERY, CURRENT_FOR, SHARED, HealthFile, Kept
from tests.builders.fake_machine import BOOT
from tests.unit.driver.plugin.builders import gpu
from tests.unit.driver.plugin.world import BOTH, NEITHER, ONE, SOON, World, in_world

WELL = Kept(gpus=(GpuRecord(uuid="GPU-0", index=0), GpuRecord(uuid="GPU-1", index=1)))
FAILED = Kept(gpus=(WELL.gpus[0], replace(WELL.gpus[1], xids={95: XidTrack(since=1.0)})))


class Telemetry:
    """The file of the telemetry agent, as that agent would keep it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._file = HealthFile(world.machine.tree, SHARED)

    def says(self, kept: Kept, *, boot_id: str = BOOT) -> None:
        assert self._file.write(kept, boot_id=boot_id)
        self.mark()

    def mark(self) -> None:
        self._file.mark(self._world.clock.now())

    async def judges_for(self, seconds: float) -> None:
        end = self._world.clock.monotonic() + seconds
        while self._world.clock.monotonic() < end:
            self.mark()
            await self._world.clock.sleep(BEAT_EVERY)


@in_world
async def test_what_only_a_measurement_shows_withdraws_a_gpu(world: World) -> None:
    async with world.agent():
        await world.offers(BOTH)
        world.driver.values = {"remap_failure": 1}
        await world.offers(NEITHER)


@pytest.mark.parametrize(
    ("switch", "xid"),
    [("", 95), ("13", 13)],
    ids=["one that counts", "one that the settings switch on"],
)
@in_world
async def test_an_xid_is_remembered_when_the_agent_is_replaced(
    world: World, switch: str, xid: int
) -> None:
    world.settings["dp_enable_healthchecks"] = switch
    async with world.agent():
        await world.offers(BOTH)
        world.driver.gpus.fail("GPU-1", xid)
        await world.offers(ONE)
    async with world.agent():
        await world.offers(ONE, after=60)
    world.settings["dp_disable_healthchecks"] = "95"
    async with world.agent():
        await world.offers(BOTH if xid == 95 else ONE)


@in_world
async def test_the_kernel_log_is_read_from_where_the_last_verdict_ends(world: World) -> None:
    telemetry = Telemetry(world)
    for until in (7, 9):
        telemetry.says(replace(WELL, logged_until=until))
        async with world.agent():
            await world.clock.sleep(SOON)
            assert world.driver.gpus.logged_until == until
    telemetry.says(replace(WELL, logged_until=3))
    async with world.agent():
        assert world.driver.gpus.logged_until == 9, "its own file has what came up to there"


@in_world
async def test_an_xid_of_a_mig_instance_withdraws_that_one_also_after_a_restart(
    world: World,
) -> None:
    divided = gpu(1, "1g.10gb", "1g.10gb")
    world.driver.gpus.change([divided])
    world.settings["mig_strategy"] = MigStrategy.MIXED
    world.put_specs("MIG-1-0", "MIG-1-1")
    for _ in range(2):
        async with world.agent():
            await world.clock.sleep(SOON)
            world.driver.gpus.fail("GPU-1", XidCode(48, divided.migs[1].gpu_instance))
            await world.offers({"nvidia.com/mig-1g.10gb": "MIG-1-0 MIG-1-1!"})


@in_world
async def test_while_the_telemetry_agent_judges_its_verdict_counts(world: World) -> None:
    telemetry = Telemetry(world)
    telemetry.says(FAILED)
    async with world.agent():
        await telemetry.judges_for(SOON)
        assert world.kubelet.last == ONE
        world.driver.values = {"remap_failure": 1}
        await telemetry.judges_for(SOON)
        assert world.kubelet.last == ONE, "the plugin measured although another judges"
        telemetry.says(WELL)
        await telemetry.judges_for(SOON)
        assert world.kubelet.last == BOTH


@in_world
async def test_an_xid_counts_at_once_and_until_the_telemetry_agent_has_judged_it(
    world: World,
) -> None:
    telemetry = Telemetry(world)
    telemetry.says(WELL)
    async with world.agent():
        await telemetry.judges_for(SOON)
        world.driver.gpus.fail("GPU-1", 79)
        await world.clock.sleep(1.0)
        assert world.kubelet.last == ONE
        await telemetry.judges_for(10.0)
        telemetry.says(WELL)
        await telemetry.judges_for(SOON)
        assert world.kubelet.last == BOTH
    assert len(world.kubelet.lists) == 3


@in_world
async def test_where_the_telemetry_agent_is_away_its_last_records_are_continued(
    world: World,
) -> None:
    telemetry = Telemetry(world)
    telemetry.says(FAILED)
    asking = gpu(1, recovery=RecoveryAction.GPU_RESET)
    well = [gpu(index, recovery=RecoveryAction.NONE) for index in (0, 1)]
    world.driver.gpus.change([well[0], asking])
    async with world.agent():
        await world.offers(ONE, after=CURRENT_FOR + SOON)
        world.driver.gpus.change(well)
        await world.until(lambda: world.kubelet.last == BOTH, within=120.0)
    # The file still says that the GPU failed, and nobody who judges stands behind it.
    async with world.agent():
        await world.offers(BOTH)
        world.driver.values = {"remap_failure": 1}
        await world.offers(NEITHER)


@in_world
async def test_a_verdict_of_another_boot_or_that_is_no_verdict_counts_for_nothing(
    world: World,
) -> None:
    telemetry = Telemetry(world)
    telemetry.says(FAILED, boot_id="another")
    async with world.agent():
        await telemetry.judges_for(SOON)
        assert world.kubelet.last == BOTH
        world.machine.tree.write(SHARED, b"[1")
        await telemetry.judges_for(SOON)
        assert world.kubelet.last == BOTH
