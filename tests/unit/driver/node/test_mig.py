"""`mig`: the GPUs are divided as the command says, or as before; also after a kill at any point."""

import pytest

from libs.contracts.commands import REBOOT_REQUIRED, GpuGeometry, Mig, Order, Swap
from libs.contracts.gpus import GpuProblem
from libs.contracts.reports import Outcome
from libs.host import gate
from libs.host.gate import GateAnswer
from libs.host.gpus.division import Activation
from services.driver.node import mig_attempt
from tests.builders.fake_machine import gpu
from tests.unit.driver.node.mig_world import (
    MIXED,
    OFF,
    SEVEN,
    VERSION,
    MigWorld,
    facts,
    in_world,
)

POD, OTHER = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01", "0f5b7a0e-2222-4c1d-8f2e-0a1b2c3d4e02"


@in_world
async def test_gpus_are_divided_as_asked_and_others_keep_what_they_have(world: MigWorld) -> None:
    for wanted in (SEVEN, MIXED, OFF, MIXED):
        result = await world.divide(wanted)
        assert (result.outcome, result.message) == (Outcome.DONE, "the GPUs are divided as test")
        assert facts(world.gpus) == [wanted, OFF]
    await world.divide(OFF, SEVEN)
    assert facts(world.gpus) == [OFF, SEVEN]
    assert world.driver.held == 0


@in_world
async def test_a_right_geometry_changes_nothing(world: MigWorld) -> None:
    await world.divide(SEVEN)
    world.mig.is_permitted = False
    before = world.mig.division("GPU-0")
    entries = len(world.entries)
    result = await world.divide(SEVEN, OFF)
    assert result.outcome is Outcome.DONE
    assert result.message == "the GPUs are already divided as test"
    assert world.mig.division("GPU-0") is before
    steps = [entry for entry in world.entries[entries:] if entry.detail]
    assert [entry.phase for entry in steps] == ["started", "finished"]


@in_world
async def test_a_kill_halfway_ends_in_the_same_state(world: MigWorld) -> None:
    await world.divide(("3g.40gb", "3g.40gb"))
    result, was_killed = await world.divide_with_kills(("4g.40gb", "3g.40gb"), after=9)
    assert was_killed
    assert result.outcome is Outcome.DONE
    assert facts(world.gpus) == [("4g.40gb", "3g.40gb"), OFF]


@in_world
async def test_a_failure_restores_what_was_before_also_after_a_kill(world: MigWorld) -> None:
    await world.divide(SEVEN)
    # The second GPU has no such profile: that shows once its MIG mode is on.
    result, was_killed = await world.divide_with_kills(OFF, ("1g.5gb",), after=16)
    assert was_killed
    assert (result.outcome, result.code) == (Outcome.FAILED, "unknown-profile")
    assert "GPU 1 (GPU-1) has no MIG profile 1g.5gb" in result.message
    assert facts(world.gpus) == [SEVEN, OFF]


@pytest.mark.parametrize("names", [("1g.10gb",) * 8, ("4g.40gb", "4g.40gb")])
@in_world
async def test_what_does_not_fit_is_refused_before_anything_changes(
    world: MigWorld, names: tuple[str, ...]
) -> None:
    await world.divide(SEVEN)
    before = world.mig.division("GPU-0")
    result = await world.divide(names)
    assert (result.outcome, result.code) == (Outcome.FAILED, "no-room")
    assert world.mig.division("GPU-0") is before


@in_world
async def test_a_pod_with_a_gpu_open_is_waited_for_and_named(world: MigWorld) -> None:
    world.machine.add_process(4711, POD, "/dev/nvidia0", comm="train.py")
    async with world.agent():
        order = await world.send_mig(SEVEN)
        await world.until(lambda: "in-use" in world.phases(order))
        assert facts(world.gpus) == [OFF, OFF]
        world.machine.remove_process(4711)
        assert (await world.wait_for_result(order)).outcome is Outcome.DONE
    world.machine.add_process(4712, POD, "/dev/nvidia0", comm="train.py")
    result = await world.divide(OFF, deadline=20.0)
    assert (result.outcome, result.code) == (Outcome.FAILED, "in-use")
    assert f"train.py (pid 4712, pod {POD})" in result.message
    assert facts(world.gpus) == [SEVEN, OFF]


@in_world
async def test_processes_of_the_driver_pod_are_not_waited_for(world: MigWorld) -> None:
    gate.put_answer(world.machine.tree, GateAnswer(pod_uid=POD, label="d-1", at=1.0))
    world.machine.add_process(100, POD, "/dev/nvidia0", comm="nvidia-persiste")
    world.machine.add_process(101, "", "/dev/nvidia0", comm="nvidia-fabricma")
    assert (await world.divide(SEVEN)).outcome is Outcome.DONE


@in_world
async def test_the_driver_decides_whether_a_gpu_is_in_use(world: MigWorld) -> None:
    world.used.add("GPU-1")
    world.machine.add_process(4711, "", "/dev/nvidia1", comm="Xorg")
    async with world.agent():
        order = await world.send_mig(SEVEN, SEVEN)
        await world.until(lambda: "in-use" in world.phases(order))
        world.used.clear()
        assert (await world.wait_for_result(order)).outcome is Outcome.DONE
    world.used.add("GPU-1")
    result = await world.divide(OFF, OFF, deadline=20.0)
    assert (result.outcome, result.code) == (Outcome.FAILED, "in-use")
    assert "GPU 1 (GPU-1): destroy 1g.10gb at 0: the GPU is in use" in result.message
    assert "Xorg (pid 4711)" in result.message
    assert result.message.endswith("the GPUs are divided as before")
    assert facts(world.gpus) == [SEVEN, SEVEN]
    assert world.phases(Order(1, 2)) == ["dividing", "in-use", "restoring"]


@in_world
async def test_the_drivers_own_daemon_is_named_where_nothing_else_has_the_gpu(
    world: MigWorld,
) -> None:
    gate.put_answer(world.machine.tree, GateAnswer(pod_uid=POD, label="d-1", at=1.0))
    world.machine.add_process(100, POD, "/dev/nvidia0", comm="nvidia-persiste")
    world.used.add("GPU-0")
    result = await world.divide(SEVEN, deadline=20.0)
    assert (result.outcome, result.code) == (Outcome.FAILED, "in-use")
    assert f"the devices are open in nvidia-persiste (pid 100, pod {POD})" in result.message


@in_world
async def test_without_permission_the_op_fails_and_says_so(world: MigWorld) -> None:
    world.mig.is_permitted = False
    result = await world.divide(SEVEN)
    assert (result.outcome, result.code) == (Outcome.FAILED, "no-permission")
    assert "run the agent privileged" in result.message
    assert facts(world.gpus) == [OFF, OFF]


@pytest.mark.parametrize("reboot", [True, False])
@in_world
async def test_a_mode_that_changes_at_a_reset_is_left_pending_if_a_reboot_is_allowed(
    world: MigWorld, reboot: bool
) -> None:
    await world.divide(("7g.80gb",), ("7g.80gb",))
    world.mig.activation = Activation.RESET_REQUIRED
    result = await world.divide(OFF, OFF, reboot=reboot)
    assert (result.outcome, result.code) == (Outcome.FAILED, REBOOT_REQUIRED)
    found = [world.mig.division(uuid) for uuid in ("GPU-0", "GPU-1")]
    if reboot:
        assert "GPU 0 (GPU-0), GPU 1 (GPU-1) changes at a reset" in result.message
        assert [(each.mig, each.pending, each.instances) for each in found] == [
            (True, False, ())
        ] * 2
    else:
        assert result.message.endswith("; the GPUs are divided as before")
        assert [(each.mig, each.pending) for each in found] == [(True, True)] * 2
        assert facts(world.gpus) == [("7g.80gb",), ("7g.80gb",)]


@pytest.mark.parametrize(("capability", "code"), [((8, 0), REBOOT_REQUIRED), ((9, 0), "in-use")])
@in_world
async def test_a_module_that_blocks_the_reset_is_named(
    world: MigWorld, capability: tuple[int, int], code: str
) -> None:
    world.driver.gpus.change([gpu(index, compute_capability=capability) for index in (0, 1)])
    world.machine.set_modules("nvidia", "nvidia_drm", version=VERSION)
    world.used.add("GPU-0")
    result = await world.divide(SEVEN, reboot=True, deadline=20.0)
    assert (result.outcome, result.code) == (Outcome.FAILED, code)
    assert ("the kernel module nvidia_drm is loaded" in result.message) == (code != "in-use")
    assert world.mig.division("GPU-0").pending == (code != "in-use")


@in_world
async def test_a_driver_that_starts_late_is_waited_for(world: MigWorld) -> None:
    world.driver.set_version("")
    async with world.agent():
        order = await world.send_mig_to(("GPU-0", SEVEN))
        await world.until(lambda: "driver-start" in world.phases(order))
        world.driver.set_version(VERSION)
        assert (await world.wait_for_result(order)).outcome is Outcome.DONE
        world.driver.set_version("")
        order = await world.send_mig_to(("GPU-0", OFF), deadline=20.0)
        result = await world.wait_for_result(order)
    assert (result.outcome, result.code) == (Outcome.FAILED, "driver-not-loaded")


@in_world
async def test_a_driver_that_restarts_while_the_agent_is_down_is_waited_for(
    world: MigWorld,
) -> None:
    async with world.killable(after=12) as offload, world.agent():
        order = await world.send_mig(SEVEN)
        await world.until(lambda: offload.is_killed)
    world.driver.set_version("")
    world.mig.unload()
    async with world.agent():
        await world.until(lambda: "driver-start" in world.phases(order))
        world.driver.set_version(VERSION)
        assert (await world.wait_for_result(order)).outcome is Outcome.DONE
    assert facts(world.gpus) == [SEVEN, OFF]


@in_world
async def test_a_gpu_with_a_problem_or_of_another_machine_fails_the_op(world: MigWorld) -> None:
    world.driver.gpus.change([gpu(0), gpu(1, problem=GpuProblem.HUNG, hung=True)])
    result = await world.divide(SEVEN, SEVEN)
    assert (result.outcome, result.code) == (Outcome.FAILED, "hung")
    async with world.agent():
        order = await world.send_mig_to(("GPU-9", SEVEN))
        assert (await world.wait_for_result(order)).code == "unknown-gpu"
    assert facts(world.gpus) == [OFF, OFF]


@in_world
async def test_a_gpu_that_hangs_meanwhile_is_said_not_to_be_as_before(world: MigWorld) -> None:
    await world.divide(SEVEN, SEVEN)
    create = world.mig.create

    def hang_then_create(uuid: str, *args: object, **more: object) -> None:
        world.driver.gpus.change([gpu(0), gpu(1, problem=GpuProblem.HUNG, hung=True)])
        create(uuid, *args, **more)  # type: ignore[arg-type]

    world.mig.create = hang_then_create
    result = await world.divide(MIXED, MIXED)
    assert (result.outcome, result.code) == (Outcome.FAILED, "hung")
    assert "not all GPUs could be divided as before: the GPU does not answer" in result.message
    world.driver.gpus.change([gpu(0), gpu(1)])
    assert facts(world.gpus)[0] == SEVEN


@in_world
async def test_a_driver_that_hangs_for_good_is_not_waited_for(world: MigWorld) -> None:
    async with world.agent():
        order = await world.send_mig(SEVEN)
        world.driver.gpus.is_stuck = True
        result = await world.wait_for_result(order)
    assert (result.outcome, result.code) == (Outcome.FAILED, "driver-hung")
    assert "the node must be rebooted" in result.message
    assert result.finished - result.started < 1.0


@in_world
async def test_after_a_superseded_op_the_next_restores_what_was_before_both(
    world: MigWorld,
) -> None:
    await world.divide(SEVEN)
    async with world.killable(after=16) as offload, world.agent():
        await world.send_mig(MIXED)
        await world.until(lambda: offload.is_killed)
    assert facts(world.gpus)[0] not in (SEVEN, MIXED)
    async with world.agent():
        await world.wait_for_result(await world.send_mig(("no profile",)))
    assert facts(world.gpus)[0] == SEVEN


@in_world
async def test_a_malformed_file_is_none(world: MigWorld) -> None:
    tree = world.machine.tree
    for data in (b"", b"{}", b"\xff", b"[" * 10_000):
        tree.write(mig_attempt.PATH, data)
        assert mig_attempt.load(tree) is None
    assert (await world.divide(SEVEN)).outcome is Outcome.DONE
    attempt = mig_attempt.load(tree)
    assert attempt is not None
    assert attempt.ended
    assert attempt.before == (GpuGeometry(uuid="GPU-0", index=0),)


@in_world
async def test_the_agent_says_that_it_supports_mig(world: MigWorld) -> None:
    async with world.agent():
        assert (await world.carry_out(Mig(config="none", digest="none"))).outcome is Outcome.DONE
        assert world.result(await world.send_command(Swap(label="d-1"))) is None
