"""The plugin for claims: it publishes what claims can have, prepares them, and keeps its word."""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.gpus import GpuProblem
from libs.contracts.reports import Outcome
from libs.host.dra.port import ClaimFailed
from libs.host.podresources.assignments import DeviceList
from services.driver.dra.offering import CHECK_EVERY
from tests.builders.agent_world import NODE, UID
from tests.builders.fake_machine import VERSION
from tests.unit.driver.dra.world import SLICES, World, in_world
from tests.unit.driver.plugin.builders import gpu

SOON = 2 * CHECK_EVERY
BOTH = ("gpu-0", "gpu-1")


@in_world
async def test_a_node_publishes_its_gpus_and_prepares_a_claim(world: World) -> None:
    async with world.agent() as service:
        await world.until_published(*BOTH)
        found = await world.slice()
        assert found is not None
        (owner,) = found.metadata.owner_references
        assert (owner.kind, owner.name, owner.uid) == ("Node", NODE, UID)
        assert found.spec["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        assert service.unready_reasons() == []
        claim = await world.allocate("a", "gpu-1")
        assert await world.prepare(claim) == ["nvidia.com/gpu=GPU-1"]


@in_world
async def test_nothing_is_published_before_the_kubelet_knows_the_plugin(world: World) -> None:
    world.kubelet.is_registered = False
    async with world.agent():
        await world.clock.sleep(SOON)
        assert await world.published() is None
        world.kubelet.is_registered = True
        await world.until_published(*BOTH)


@in_world
async def test_a_slice_that_is_deleted_or_changed_is_written_again(world: World) -> None:
    async with world.agent():
        await world.until_published(*BOTH)
        found = await world.slice()
        assert found is not None
        await world.person.delete(SLICES, found.metadata.name, uid=found.metadata.uid)
        await world.until_published(*BOTH)
        found = await world.slice()
        assert found is not None
        await world.person.merge(
            SLICES,
            found.metadata.name,
            {"spec": {"devices": []}},
            resource_version=found.metadata.resource_version,
        )
        await world.until_published(*BOTH)
        revision = (await world.slice() or found).metadata.resource_version
        await world.clock.sleep(60.0)
        assert (await world.slice() or found).metadata.resource_version == revision


@in_world
async def test_while_gpus_are_released_nothing_is_published_nor_prepared(world: World) -> None:
    async with world.agent():
        await world.until_published(*BOTH)
        early, late = await world.allocate("early", "gpu-0"), await world.allocate("late", "gpu-1")
        await world.prepare(early)
        assert (await world.carry_out(Quiesce())).outcome is Outcome.DONE
        assert await world.published() == []
        assert world.driver.held == 0
        for claim, device in ((early, "gpu-0"), (late, "gpu-1")):
            with pytest.raises(ClaimFailed, match=f"{device}.* released while the driver changes"):
                await world.prepare(claim)
    async with world.agent():
        await world.clock.sleep(SOON)
        assert await world.published() == []
        assert (await world.carry_out(Idle())).outcome is Outcome.DONE
        await world.until_published(*BOTH)
        assert await world.prepare(early) == ["nvidia.com/gpu=GPU-0"]


@in_world
async def test_what_is_prepared_outlives_the_process_and_belongs_to_one_claim(
    world: World,
) -> None:
    async with world.agent():
        await world.until_published(*BOTH)
        first, second = await world.allocate("first", "gpu-0"), await world.allocate("b", "gpu-0")
        await world.prepare(first)
    async with world.agent():
        await world.clock.sleep(SOON)
        with pytest.raises(ClaimFailed, match="GPU-0 is prepared for the claim ml/first"):
            await world.prepare(second)
        watching = await world.allocate("watching", "gpu-0", adminAccess=True)
        assert await world.prepare(watching) == ["nvidia.com/gpu=GPU-0"]
        await world.kubelet.driver.unprepare(first)
        await world.kubelet.driver.unprepare(first)
        assert await world.prepare(second) == ["nvidia.com/gpu=GPU-0"]


@in_world
async def test_a_prepared_claim_that_is_gone_holds_nothing(world: World) -> None:
    async with world.agent():
        await world.until_published(*BOTH)
        first, second = await world.allocate("first", "gpu-0"), await world.allocate("b", "gpu-0")
        await world.prepare(first)
        await world.delete(first)
        with pytest.raises(ClaimFailed, match="is not there any more"):
            await world.prepare(replace(first, uid="another"))
        assert await world.prepare(second) == ["nvidia.com/gpu=GPU-0"]


@in_world
async def test_a_gpu_of_the_device_plugin_is_left_out_until_its_pod_ends(world: World) -> None:
    world.give("GPU-1")
    async with world.agent():
        await world.until_published("gpu-0")
        claim = await world.allocate("a", "gpu-1")
        with pytest.raises(ClaimFailed, match="the device plugin gave it to the pod ml/old"):
            await world.prepare(claim)
        world.uses = None
        await world.clock.sleep(SOON)
        assert await world.published() == ["gpu-0"]
        world.uses = DeviceList()
        await world.until_published(*BOTH)


@in_world
async def test_without_an_answer_of_the_kubelet_nothing_is_published(world: World) -> None:
    world.uses = None
    async with world.agent() as service:
        await world.clock.sleep(SOON)
        assert await world.published() == []
        assert "which GPUs pods have is unknown" in str(service.unready_reasons())


@in_world
async def test_gpus_that_fail_or_have_no_spec_are_left_out(world: World) -> None:
    async with world.agent() as service:
        await world.until_published(*BOTH)
        world.driver.gpus.change([gpu(0), gpu(1, problem=GpuProblem.RESET_REQUIRED)])
        await world.until_published("gpu-0")
        assert service.unready_reasons() == []
        world.put_specs("GPU-1")
        await world.until_published()
        (reason,) = service.unready_reasons()
        assert "no GPU of this node can be claimed: no container can get it" in reason
        world.put_specs("GPU-0", "GPU-1")
        await world.until_published("gpu-0")
        assert service.unready_reasons() == []
        world.driver.gpus.change([])
        await world.until_published()
        (reason,) = service.unready_reasons()
        assert reason.endswith("can be claimed: the driver shows none")
        world.driver.set_version("")
        await world.until_published()
        world.driver.set_version(VERSION)


@in_world
async def test_a_claim_of_another_pool_or_without_devices_fails(world: World) -> None:
    async with world.agent():
        await world.until_published(*BOTH)
        for claim, why in (
            (await world.allocate("a", "gpu-0", pool="other"), "one of the pool other"),
            (await world.allocate("b"), "no device of this driver is allocated"),
            (await world.allocate("c", "gpu-7"), "gpu-7 .* has no such device now"),
        ):
            with pytest.raises(ClaimFailed, match=why):
                await world.prepare(claim)


@in_world
async def test_what_ends_gives_nothing_new_and_takes_back_what_pods_have(world: World) -> None:
    async with world.agent():
        await world.until_published(*BOTH)
        early, late = await world.allocate("early", "gpu-0"), await world.allocate("late", "gpu-1")
        await world.prepare(early)
    world.ends, held = True, world.driver.held
    async with world.agent() as service:
        await world.until_published()
        assert service.unready_reasons() == []
        assert world.driver.held == held
        assert await world.prepare(early) == ["nvidia.com/gpu=GPU-0"]
        with pytest.raises(ClaimFailed, match=r"spec\.dra\.enabled is false"):
            await world.prepare(late)
        assert (await world.carry_out(Quiesce())).outcome is Outcome.DONE
        assert await world.prepare(early) == ["nvidia.com/gpu=GPU-0"]
        await world.kubelet.driver.unprepare(early)
        with pytest.raises(ClaimFailed, match=r"spec\.dra\.enabled is false"):
            await world.prepare(early)


@in_world
async def test_what_is_known_against_a_gpu_withdraws_it_and_outlives_the_agent(
    world: World,
) -> None:
    async with world.agent():
        await world.until_published(*BOTH)
        world.driver.gpus.fail("GPU-1", 95)
        await world.until_published("gpu-0")
    async with world.agent():
        await world.clock.sleep(SOON)
        await world.until_published("gpu-0")
        world.driver.values = {"remap_failure": 1}
        await world.until_published()
