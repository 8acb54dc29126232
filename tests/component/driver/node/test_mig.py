"""The op `mig` through pynvml and the stand-in, by agents that are killed at every sub-step."""

from collections.abc import Sequence

import pytest

from libs.contracts.commands import REBOOT_REQUIRED, GpuGeometry, Mig
from libs.contracts.reports import Outcome, Result
from libs.host.gpus.nvml import NvmlGpus
from tests.component.gpus.conftest import bench
from tests.component.gpus.machine import StandInMachine, with_machine
from tests.unit.driver.node.mig_world import (
    MIXED,
    OFF,
    SEVEN,
    VERSION,
    KillingGpus,
    MigWorld,
    facts,
    in_world,
    uuids_of,
)

__all__ = ["bench"]

Wanted = Sequence[str] | None

TRANSITIONS = [(OFF, SEVEN), (SEVEN, MIXED), (MIXED, OFF), (OFF, MIXED), (MIXED, SEVEN)]


def use(world: MigWorld, bench: StandInMachine) -> NvmlGpus:
    """Give the world's machine the GPUs of the stand-in."""
    world.gpus = bench.gpus
    world.driver.gpus = bench.gpus  # type: ignore[assignment]
    return bench.gpus


@pytest.mark.parametrize(("before", "after"), TRANSITIONS)
@in_world
async def test_a_kill_at_any_call_ends_in_the_same_state(
    world: MigWorld, before: Wanted, after: Wanted
) -> None:
    """In memory: a kill before each call of the op that blocks, each in a run of its own."""
    kills, was_killed = 0, True
    while was_killed:
        world.mig.unload()
        await world.divide(before, OFF)
        result, was_killed = await world.divide_with_kills(after, after, after=kills)
        assert result.outcome is Outcome.DONE
        assert facts(world.gpus) == [after, after]
        kills += was_killed
    assert kills > 10


@in_world
async def test_a_failure_ends_in_the_state_before_it_after_a_kill_at_any_call(
    world: MigWorld,
) -> None:
    kills, was_killed = 0, True
    results = list[Result]()
    while was_killed:
        world.mig.unload()
        await world.divide(MIXED, OFF)
        result, was_killed = await world.divide_with_kills(SEVEN, ("1g.5gb",), after=kills)
        results.append(result)
        assert facts(world.gpus) == [MIXED, OFF]
        kills += was_killed
    assert kills > 20
    assert {(each.outcome, each.code) for each in results} == {(Outcome.FAILED, "unknown-profile")}
    assert len({each.message for each in results}) == 1


@in_world
async def test_geometries_through_nvml_with_a_kill_after_every_change(
    world: MigWorld, bench: StandInMachine
) -> None:
    gpus, kills = use(world, bench), list[int]()
    for wanted in (SEVEN, MIXED, OFF, MIXED, SEVEN, OFF):
        result, killed = await world.crawl(wanted, ("7g.80gb",))
        assert (result.outcome, result.message) == (Outcome.DONE, "the GPUs are divided as test")
        assert facts(gpus)[:3] == [wanted, ("7g.80gb",), OFF]
        assert not bench.held()
        kills.append(killed)
    assert kills == [10, 7, 5, 5, 7, 8]


@in_world
async def test_an_instance_that_a_killed_agent_left_halfway_is_completed(
    world: MigWorld, bench: StandInMachine
) -> None:
    gpus = use(world, bench)
    await world.divide(("3g.40gb",))
    # The driver made the GPU instance, but not its compute instance.
    gpus.open()
    division = gpus.division(gpus.describe()[0].uuid)
    (profile,) = [each for each in division.profiles if each.name == "3g.40gb"]
    gpus.create_instance(division.uuid, profile, start=4, compute=())
    gpus.close()
    assert (await world.divide(("3g.40gb",) * 2)).outcome is Outcome.DONE
    assert facts(gpus)[0] == ("3g.40gb", "3g.40gb")


@in_world
async def test_a_gpu_that_hangs_fails_the_op_and_the_others_are_as_before(
    world: MigWorld, bench: StandInMachine
) -> None:
    gpus = use(world, bench)
    await world.divide(MIXED, MIXED)
    uuids = uuids_of(gpus)
    bench.stand_in.gpus[1].hang()
    async with world.agent():
        order = await world.send_mig_to((uuids[0], SEVEN), (uuids[1], SEVEN))
        result = await world.wait_for_result(order)
    assert (result.outcome, result.code) == (Outcome.FAILED, "hung")
    assert "the GPU does not answer" in result.message
    assert not bench.held()
    bench.stand_in.gpus[1].release()
    assert facts(gpus)[:2] == [MIXED, MIXED]


@in_world
async def test_a_gpu_that_hangs_in_the_middle_of_a_change(
    world: MigWorld, bench: StandInMachine
) -> None:
    gpus, changing = use(world, bench), KillingGpus(bench.gpus)
    await world.divide(MIXED, MIXED)
    world.driver.gpus = changing  # type: ignore[assignment]
    changing.on_change = lambda: changing.changes == 9 and bench.stand_in.gpus[1].hang()
    result = await world.divide(SEVEN, SEVEN)
    assert (result.outcome, result.code) == (Outcome.FAILED, "hung")
    assert "not all GPUs could be divided as before: the GPU does not answer" in result.message
    assert not bench.held()
    bench.stand_in.gpus[1].release()
    found = facts(gpus)
    assert found[0] == MIXED
    assert found[1] not in (MIXED, SEVEN)
    assert (await world.divide(SEVEN, SEVEN)).outcome is Outcome.DONE
    assert facts(gpus)[:2] == [SEVEN, SEVEN]


@in_world
async def test_a_driver_that_hangs_for_all_gpus_is_named(
    world: MigWorld, bench: StandInMachine
) -> None:
    gpus = use(world, bench)
    await world.divide(SEVEN)
    for gpu in bench.stand_in.gpus:
        gpu.hang()
    async with world.agent():
        order = await world.send_command(
            Mig(config="test", digest="d", gpus=(GpuGeometry(uuid="GPU-x", index=0),))
        )
        result = await world.wait_for_result(order)
    assert (result.outcome, result.code) == (Outcome.FAILED, "no-answer")
    assert not bench.held()
    for gpu in bench.stand_in.gpus:
        gpu.release()
    assert facts(gpus)[0] == SEVEN


@pytest.mark.parametrize("code", ["in-use", "no-permission"])
@in_world
async def test_a_change_that_the_driver_refuses_leaves_the_gpus_as_before(
    world: MigWorld, bench: StandInMachine, code: str
) -> None:
    gpus = use(world, bench)
    await world.divide(MIXED, OFF)
    if code == "in-use":
        bench.use(1, used=True)
        world.machine.add_process(4711, "", "/dev/nvidia1", comm="Xorg")
    else:
        bench.forbid()
    result = await world.divide(SEVEN, SEVEN, deadline=8.0)
    assert (result.outcome, result.code) == (Outcome.FAILED, code)
    assert ("Xorg (pid 4711)" in result.message) == (code == "in-use")
    assert result.message.endswith("; the GPUs are divided as before")
    assert facts(gpus)[:2] == [MIXED, OFF]
    assert [gpu.mig.pending_mode for gpu in bench.stand_in.gpus[:2]] == [1, 0]


@with_machine(profile="A100-40GB")
@pytest.mark.parametrize("reboot", [True, False])
@in_world
async def test_a100s_are_divided_after_a_reboot(
    world: MigWorld, bench: StandInMachine, reboot: bool
) -> None:
    gpus, small = use(world, bench), ("1g.5gb",) * 7
    world.machine.set_modules("nvidia", "nvidia_drm", version=VERSION)
    result, kills = await world.crawl(small, small, reboot=reboot, kills=2)
    assert (result.outcome, result.code) == (Outcome.FAILED, REBOOT_REQUIRED)
    assert "because the kernel module nvidia_drm is loaded" in result.message
    assert kills == 2
    assert not bench.held()
    modes = [(gpu.mig.mode, gpu.mig.pending_mode) for gpu in bench.stand_in.gpus]
    assert modes == [(0, int(reboot))] * 2 + [(0, 0)] * 6
    assert result.message.endswith("divided as before") != reboot
    for gpu in bench.stand_in.gpus:
        gpu.reset()
    result = await world.divide(small, small)
    if reboot:
        assert result.outcome is Outcome.DONE
        assert facts(gpus)[:3] == [small, small, OFF]
    else:
        assert (result.code, facts(gpus)[0]) == (REBOOT_REQUIRED, OFF)
