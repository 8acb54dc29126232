"""The device plugin's agent: it offers what pods can use, and withdraws it on command."""

import pytest

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.gpus import REMEDIES, GpuProblem
from libs.contracts.reports import Outcome
from libs.host.cdi import extras, published
from libs.host.deviceplugin.port import AllocationRefused
from libs.host.podresources.assignments import DeviceList, DeviceUse, PodContainer
from libs.policy.plugin_config.config import ListStrategy, MigStrategy
from services.driver.plugin.allocation import IMEX_CHANNEL
from services.driver.plugin.claimed import ANSWERS_WITHOUT_CLAIMS
from services.driver.plugin.current_config import READ_INTERVAL
from services.driver.plugin.offering import INSPECT_EVERY, NO_IMEX
from tests.builders.fake_machine import VERSION
from tests.builders.machine_files import put
from tests.unit.driver.plugin.builders import gpu
from tests.unit.driver.plugin.world import BOTH, GPU, NEITHER, ONE, SOON, World, in_world

SLICING = "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}"
SHARED = {f"{GPU}.shared": "GPU-0::0 GPU-0::1 GPU-1::0 GPU-1::1"}


@in_world
async def test_gpus_are_offered_and_given_to_pods(world: World) -> None:
    async with world.agent() as service:
        await world.offers(BOTH)
        assert service.unready_reasons() == []
        allocator = world.answers.allocator_for(GPU)
        assert allocator.prefer(["GPU-0", "GPU-1"], [], 1) == ("GPU-0",)
        assert allocator.allocate(["GPU-1"]).cdi_devices == ("nvidia.com/gpu=GPU-1",)
        with pytest.raises(AllocationRefused):
            world.answers.allocator_for("nvidia.com/other").allocate(["GPU-1"])


@in_world
async def test_a_failed_gpu_is_unhealthy_within_a_second(world: World) -> None:
    async with world.agent() as service:
        await world.clock.sleep(SOON)
        at = world.clock.monotonic()
        world.driver.gpus.fail("GPU-1", 79)
        await world.clock.sleep(1.0)
        assert world.kubelet.last == ONE
        assert world.kubelet.lists[-1][0] - at <= 1.0
        assert service.unready_reasons() == []
        with pytest.raises(AllocationRefused, match="GPU-1 cannot be used now"):
            world.answers.allocator_for(GPU).allocate(["GPU-1"])
        world.driver.gpus.change([gpu(0), gpu(1, problem=GpuProblem.RESET_REQUIRED)])
        await world.clock.sleep(SOON)
        world.driver.gpus.change([gpu(0), gpu(1)])
        await world.offers(ONE)
        await world.until(lambda: world.kubelet.last == BOTH, within=120.0)
    assert len(world.kubelet.lists) == 3


@in_world
async def test_xids_of_applications_and_those_of_the_settings_do_not_count(world: World) -> None:
    world.settings = {"dp_disable_healthchecks": "79"}
    async with world.agent():
        await world.clock.sleep(SOON)
        world.driver.gpus.fail("GPU-1", 79)
        world.driver.gpus.fail("0000:01:00", 31)
        await world.offers(BOTH)
        world.driver.gpus.fail("0000:02:00", 48)
        await world.offers(ONE)


@in_world
async def test_a_gpu_that_is_in_no_cdi_spec_is_unhealthy(world: World) -> None:
    world.put_specs("GPU-0")
    async with world.agent():
        await world.offers(ONE)
        world.put_specs("GPU-0", "GPU-1")
        await world.offers(BOTH)


@in_world
async def test_for_another_toolkit_gpus_need_no_cdi_spec(world: World) -> None:
    world.machine.tree.remove(published.GPU_FILE)
    world.settings = {"device_list_strategy": (ListStrategy.ENVVAR,)}
    async with world.agent() as service:
        await world.offers(BOTH)
        assert service.unready_reasons() == []
        given = world.answers.allocator_for(GPU).allocate(["GPU-1"])
        assert (given.env, given.cdi_devices) == ({"NVIDIA_VISIBLE_DEVICES": "GPU-1"}, ())


@in_world
async def test_quiesce_withdraws_the_gpus_before_it_releases_them(world: World) -> None:
    async with world.agent() as service:
        await world.clock.sleep(SOON)
        assert world.driver.held == 1
        assert (await world.carry_out(Quiesce())).outcome is Outcome.DONE
        assert world.driver.held == 0
        assert [(held, shown) for _, held, shown in world.kubelet.lists] == [
            (1, BOTH),
            (1, NEITHER),
        ]
        assert service.unready_reasons() == [
            "plugin: devices: the GPUs are released while the driver changes"
        ]
        with pytest.raises(AllocationRefused):
            world.answers.allocator_for(GPU).allocate(["GPU-0"])
        world.driver.set_version("")
        await world.clock.sleep(30)
        world.driver.set_version("595.1")
        world.driver.gpus.change([gpu(0), gpu(1, "1g.10gb")])
        await world.clock.sleep(30)
        assert world.kubelet.last == NEITHER
        world.driver.gpus.change([gpu(0), gpu(1)])
        await world.carry_out(Idle())
        assert world.kubelet.last == BOTH
        assert service.unready_reasons() == []


@in_world
async def test_quiesce_outlives_the_process(world: World) -> None:
    async with world.agent():
        await world.clock.sleep(SOON)
        await world.carry_out(Quiesce())
    world.kubelet.lists.clear()
    async with world.agent():
        await world.clock.sleep(30)
        assert world.kubelet.last == {}
        assert world.driver.held == 0
        await world.carry_out(Idle())
        assert world.kubelet.last == BOTH


@in_world
async def test_gpus_that_cannot_be_released_fail_the_command(world: World) -> None:
    async with world.agent():
        await world.clock.sleep(SOON)
        world.driver.gpus.is_stuck = True
        result = await world.carry_out(Quiesce())
        assert (result.outcome, result.code) == (Outcome.FAILED, "devices-open")
        assert world.kubelet.last == NEITHER


@in_world
async def test_without_a_driver_the_agent_waits(world: World) -> None:
    world.driver.set_version("")
    async with world.agent() as service:
        await world.offers({})
        assert service.unready_reasons() == [
            f"plugin: devices: {REMEDIES[GpuProblem.DRIVER_NOT_LOADED]}"
        ]
        world.driver.set_version(VERSION)
        await world.offers(BOTH)
        world.driver.set_version("")
        await world.offers(NEITHER)


@in_world
async def test_a_node_without_gpus_offers_nothing_and_is_ready(world: World) -> None:
    world.driver.gpus.change([])
    async with world.agent() as service:
        await world.clock.sleep(60)
        assert world.kubelet.lists == [(world.kubelet.lists[0][0], 1, {})]
        assert service.unready_reasons() == []


@in_world
async def test_the_configuration_file_is_followed(world: World) -> None:
    file = world.put_config("other", "")
    file = file.with_name("config")
    world.settings |= {"plugin_config": "config", "pass_device_specs": True}
    async with world.agent() as service:
        await world.offers({})
        (reason,) = service.unready_reasons()
        assert "the configuration config is not in use: the ConfigMap" in reason
        file.write_text(SLICING)
        await world.offers(SHARED, after=READ_INTERVAL + SOON)
        assert service.unready_reasons() == []
        allocator = world.answers.allocator_for(f"{GPU}.shared")
        assert allocator.prefer(["GPU-0::1", "GPU-1::0", "GPU-1::1"], [], 1) == ("GPU-1::0",)
        assert allocator.allocate(["GPU-1::0"]).cdi_devices == ("nvidia.com/gpu=GPU-1",)
        file.write_text("sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}")
        await world.offers(SHARED, after=READ_INTERVAL + SOON)
        (reason,) = service.unready_reasons()
        assert "Sluice does not support MPS" in reason
        file.write_text("")
        await world.offers(BOTH, after=READ_INTERVAL + SOON)
        assert service.unready_reasons() == []


@in_world
async def test_a_command_chooses_the_file_and_the_next_start_keeps_it(world: World) -> None:
    world.put_config("sliced", SLICING)
    async with world.agent() as service:
        await world.offers(BOTH)
        result = await world.carry_out(Idle(config="sliced"))
        assert (result.outcome, result.message) == (Outcome.DONE, "")
        assert world.kubelet.last == SHARED
        assert service.unready_reasons() == []
    world.kubelet.lists.clear()
    async with world.agent():
        await world.clock.sleep(SOON)
        assert [shown for _, _, shown in world.kubelet.lists] == [SHARED]
        await world.carry_out(Idle())
        assert world.kubelet.last == BOTH
    world.kubelet.lists.clear()
    async with world.agent():
        await world.clock.sleep(SOON)
        assert [shown for _, _, shown in world.kubelet.lists] == [BOTH]


@in_world
async def test_a_node_without_a_name_has_the_default_and_a_name_without_a_file_changes_nothing(
    world: World,
) -> None:
    world.put_config("sliced", SLICING)
    world.settings["plugin_config"] = "sliced"
    async with world.agent() as service:
        await world.offers(SHARED)
        for name in ("missing", "../config", ".."):
            result = await world.carry_out(Idle(config=name))
            assert result.outcome is Outcome.DONE
            assert f"the configuration {name} is not in use" in result.message
            assert world.kubelet.last == SHARED
            assert service.unready_reasons() == [f"plugin: devices: {result.message}"]
        world.put_config("missing", "")
        await world.carry_out(Idle(config="missing"))
        assert world.kubelet.last == BOTH
    world.kubelet.lists.clear()
    world.put_config("missing", "version: v2")
    async with world.agent() as service:
        await world.offers({})
        (reason,) = service.unready_reasons()
        assert "the configuration missing is not in use: version 'v2'" in reason


@in_world
async def test_where_the_policy_has_no_files_a_name_has_no_effect(world: World) -> None:
    async with world.agent() as service:
        await world.clock.sleep(SOON)
        await world.carry_out(Idle(config="sliced"))
        assert world.kubelet.last == BOTH
        assert service.unready_reasons() == []


@in_world
async def test_another_file_gives_no_devices_back_while_the_agent_is_quiesced(
    world: World,
) -> None:
    file = world.put_config("config", "")
    world.settings["plugin_config"] = "config"
    async with world.agent():
        await world.clock.sleep(SOON)
        await world.carry_out(Quiesce())
        file.write_text(SLICING)
        await world.clock.sleep(READ_INTERVAL + SOON)
        assert world.driver.held == 0
        (offered,) = world.kubelet.last.values()
        assert all(each.endswith("!") for each in offered.split())
        await world.carry_out(Idle())
        assert world.kubelet.last == SHARED


@in_world
async def test_nvlinks_are_read_once_per_load_of_the_driver(world: World) -> None:
    world.driver.gpus.change([gpu(0), gpu(1), gpu(2)])
    world.put_specs("GPU-0", "GPU-1", "GPU-2")
    gpus = world.driver.gpus
    gpus.link_ends = {"GPU-0": (gpu(2).pci,), "GPU-2": (gpu(0).pci,)}
    async with world.agent():
        await world.clock.sleep(SOON)
        names = ["GPU-0", "GPU-1", "GPU-2"]
        assert world.answers.allocator_for(GPU).prefer(names, [], 2) == ("GPU-0", "GPU-2")
        gpus.link_ends = {"GPU-1": (gpu(2).pci,), "GPU-2": (gpu(1).pci,)}
        await world.clock.sleep(10 * SOON)
        assert world.answers.allocator_for(GPU).prefer(names, [], 2) == ("GPU-0", "GPU-2")
        world.driver.set_version("")
        await world.clock.sleep(SOON)
        world.driver.set_version(VERSION)
        await world.clock.sleep(SOON)
        assert world.answers.allocator_for(GPU).prefer(names, [], 2) == ("GPU-1", "GPU-2")


@in_world
async def test_no_gpu_is_offered_without_the_imex_channel_that_is_required(world: World) -> None:
    file = world.put_config("config", "imex: {channelIDs: [0], required: true}")
    channel = world.machine.root / IMEX_CHANNEL[1:]
    world.settings["plugin_config"] = "config"
    async with world.agent() as service:
        await world.offers(NEITHER)
        assert service.unready_reasons() == [f"plugin: devices: {NO_IMEX}"]
        channel.parent.mkdir(parents=True)
        channel.touch()
        await world.offers(BOTH)
        assert service.unready_reasons() == []
        channel.unlink()
        file.write_text("imex: {channelIDs: [0]}")
        await world.offers(BOTH, after=READ_INTERVAL + SOON)


@in_world
async def test_an_imex_channel_of_the_driver_container_is_one(world: World) -> None:
    world.put_config("config", "imex: {channelIDs: [0], required: true}")
    world.settings["plugin_config"] = "config"
    put(world.machine.root, "/sys/module/nvidia/refcnt", "1")
    put(world.machine.root, f"/run/nvidia/driver{IMEX_CHANNEL}", "")
    spec = extras.find(world.machine.tree, "/run/nvidia/driver")[extras.IMEX]
    async with world.agent():
        await world.offers(NEITHER)
        published.put(world.machine.tree, published.file_of(extras.IMEX), spec)
        await world.offers(BOTH)


@in_world
async def test_mig_devices_are_offered_by_the_strategy_of_the_settings(world: World) -> None:
    world.settings = {"mig_strategy": MigStrategy.MIXED}
    world.driver.gpus.change([gpu(0), gpu(1, "1g.10gb", "1g.10gb")])
    world.put_specs("GPU-0", "MIG-1-0", "MIG-1-1")
    async with world.agent():
        await world.offers({GPU: "GPU-0", "nvidia.com/mig-1g.10gb": "MIG-1-0 MIG-1-1"})


def claimed(*devices: str) -> DeviceList:
    container = PodContainer("ml", "old", "main")
    return DeviceList(tuple(DeviceUse(each, container, claimed=True) for each in devices))


@in_world
async def test_a_gpu_that_a_pod_has_by_a_claim_is_not_offered_until_it_ends(world: World) -> None:
    """The node had the plugin for claims before; the kubelet would give that GPU twice."""
    world.uses = None
    async with world.agent() as service:
        await world.offers(NEITHER)
        assert "which GPUs pods have is unknown" in str(service.unready_reasons())
        world.uses = claimed("gpu-1")
        await world.offers(ONE)
        assert not service.unready_reasons()
        world.uses = None
        await world.offers(ONE)
        world.uses = DeviceList((DeviceUse("GPU-0", PodContainer("ml", "new", "main")),))
        await world.offers(BOTH)
        world.uses = claimed("GPU-0")
        await world.clock.sleep(SOON)
        assert world.kubelet.last == {GPU: "GPU-0! GPU-1"}, "a kubelet may know its pods late"


@in_world
async def test_a_kubelet_is_not_asked_for_claims_for_ever(world: World) -> None:
    async with world.agent():
        await world.offers(BOTH)
        await world.clock.sleep(ANSWERS_WITHOUT_CLAIMS * INSPECT_EVERY)
        assert world.asked == ANSWERS_WITHOUT_CLAIMS
        await world.clock.sleep(ANSWERS_WITHOUT_CLAIMS * INSPECT_EVERY)
        assert world.asked == ANSWERS_WITHOUT_CLAIMS


@in_world
async def test_a_kubelet_that_does_not_answer_makes_the_agent_unready(world: World) -> None:
    world.kubelet.problem = "there is no socket"
    async with world.agent() as service:
        await world.clock.sleep(SOON)
        assert service.unready_reasons() == ["plugin: devices: there is no socket"]
