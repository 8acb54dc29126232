"""The step `plugin`: pods can have exactly the GPUs that work."""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Validate
from libs.contracts.gpus import GpuIdentity
from libs.contracts.reports import Evidence, Outcome, Progress, Resource
from libs.host.podresources.allocatable import Allocatable
from libs.policy.kinds.mig import MigStrategy
from services.validator.node.plugin_check import check_plugin, offerable
from services.validator.node.probe import Probe
from services.validator.node.status_files import FOLDER
from services.validator.node.validation import ASK_INTERVAL
from tests.builders.gpus import gpu
from tests.unit.validator.node.kubelet import Kubelet
from tests.unit.validator.node.test_agent import REQUEST, World, in_world

GPU = "nvidia.com/gpu"


def names(*devices: str, resource: str = GPU) -> dict[str, frozenset[str]]:
    return {resource: frozenset(devices)}


def outcome(offered: Allocatable, *wanted: str) -> Probe:
    sound = tuple(gpu(int(uuid[-1])) for uuid in wanted)
    return check_plugin(Probe(sound=sound), offered, MigStrategy.MIXED)


def test_a_divided_gpu_is_offered_in_its_instances_of_all_compute_slices() -> None:
    gpus = (gpu(0), gpu(1, "1g.10gb", "1c.2g.20gb", ""), gpu(2, mig_mode=True))
    assert offerable(gpus, MigStrategy.MIXED) == ("GPU-0", "MIG-1-0")
    assert offerable(gpus, MigStrategy.SINGLE) == ("GPU-0", "MIG-1-0")
    assert offerable(gpus, MigStrategy.NONE) == ("GPU-0",)


@pytest.mark.parametrize(
    ("offered", "counts"),
    [
        (names("GPU-0", "GPU-1"), {GPU: 2}),
        (names("GPU-0", "GPU-1", "GPU-9"), {GPU: 3}),
        (
            names("GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1", resource=f"{GPU}.shared"),
            {f"{GPU}.shared": 4},
        ),
        (
            names("GPU-0") | names("GPU-1", resource="nvidia.com/mig-1g.10gb"),
            {GPU: 1, "nvidia.com/mig-1g.10gb": 1},
        ),
        (names("GPU-0", "GPU-1") | names("eth0", resource="nvidia.com/nic"), {GPU: 2}),
    ],
)
def test_each_device_is_to_be_allocatable(offered: Allocatable, counts: dict[str, int]) -> None:
    found = outcome(offered, "GPU-0", "GPU-1")
    assert found.problem == ""
    assert found.allocatable == tuple(Resource(name=name, count=counts[name]) for name in counts)
    text = ", ".join(f"{count} {name}" for name, count in counts.items())
    assert found.found == {"plugin": f"pods can have {text}"}


@pytest.mark.parametrize(
    ("offered", "text"),
    [
        ({}, "GPU-0 and 1 more: the device plugin has offered no GPU"),
        (names("GPU-9"), "GPU-0 and 1 more: the device plugin has offered no GPU"),
        (names("GPU-0"), "GPU-1: the device plugin has offered 1 nvidia.com/gpu"),
    ],
)
def test_a_device_that_is_not_allocatable_is_named(offered: Allocatable, text: str) -> None:
    found = outcome(offered, "GPU-0", "GPU-1")
    assert found.problem == f"pods cannot have {text} to the kubelet; its log says why"
    assert found.allocatable == ()


def use(world: World) -> Kubelet:
    """Give the machine a kubelet."""
    kubelet = Kubelet({})
    world.machine.machine = replace(world.machine.machine, devices=kubelet)
    return kubelet


def request(**changes: object) -> Validate:
    return replace(REQUEST, plugin=True, **changes)


@in_world
async def test_the_step_waits_until_pods_can_have_the_gpus(world: World) -> None:
    kubelet = use(world)
    kubelet.answer = "the kubelet is away"
    ready = world.machine.root / FOLDER[1:] / "plugin-ready"
    async with world.agent():
        order = await world.send_command(request())
        await world.until(lambda: kubelet.questions == 2)
        assert world.result(order) is None
        (last,) = world.reported(Progress)[-1:]
        assert (last.phase, last.detail) == ("plugin", "the kubelet is away")
        kubelet.answer = names("GPU-0")
        await world.until(lambda: kubelet.questions == 4)
        assert "GPU-1" in world.reported(Progress)[-1].detail
        assert not ready.exists()
        kubelet.answer = names("GPU-0", "GPU-1")
        assert (await world.wait_for_result(order)).outcome is Outcome.DONE
    evidence = world.reported(Evidence)[-1]
    assert [step.name for step in evidence.steps] == ["driver", "gpus", "cuda", "plugin"]
    assert evidence.passed
    assert evidence.allocatable == (Resource(name=GPU, count=2),)
    assert evidence.steps[-1].message == "pods can have 2 nvidia.com/gpu"
    assert evidence.steps[-1].seconds >= 3 * ASK_INTERVAL
    assert ready.exists()


@in_world
async def test_the_kubelet_is_asked_only_where_our_plugin_offers_the_gpus(world: World) -> None:
    kubelet = use(world)
    async with world.agent():
        assert (await world.carry_out(REQUEST)).outcome == "done"
    assert kubelet.questions == 0
    assert world.reported(Evidence)[-1].steps[-1].name == "cuda"


@in_world
async def test_another_command_ends_the_wait(world: World) -> None:
    kubelet = use(world)
    async with world.agent():
        order = await world.send_command(request(), deadline=1000.0)
        await world.until(lambda: kubelet.questions == 300)
        assert world.result(order) is None
        await world.carry_out(Idle())
    assert world.reported(Evidence) == []
    assert kubelet.questions < 303


@in_world
async def test_a_gpu_that_had_failed_before_need_not_be_allocatable(world: World) -> None:
    use(world).answer = names("GPU-1")
    async with world.agent():
        before = (GpuIdentity(uuid="GPU-0"),)
        await world.carry_out(request(failed_gpus=before))
    assert world.reported(Evidence)[-1].passed
