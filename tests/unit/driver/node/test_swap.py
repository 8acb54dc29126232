"""`swap`, also after a restart: admitted pods stay admitted, and no step is repeated."""

from libs.contracts.commands import Idle, Proven, Swap
from libs.contracts.reports import Outcome, Progress
from libs.host import driver_files, gate
from libs.host.gate import GateAnswer
from tests.builders.fake_machine import KERNEL
from tests.builders.machine_files import add_program, put
from tests.unit.driver.node.world import World, in_world

OLD, NEW = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01", "0f5b7a0e-2222-4c1d-8f2e-0a1b2c3d4e02"
JOB = "0f5b7a0e-3333-4c1d-8f2e-0a1b2c3d4e03"
SWAP = Swap(label="d-2", old_pod_uid=OLD)


def with_old_driver(world: World) -> None:
    """Load the old driver, whose pod is admitted and whose process runs."""
    world.machine.load_driver("550.54")
    gate.put_answer(world.machine.tree, GateAnswer(pod_uid=OLD, label="d-1", at=1.0))
    world.machine.add_process(100, OLD, comm="nvidia-driver")


@in_world
async def test_the_old_driver_is_unloaded_before_the_new_pod_is_admitted(world: World) -> None:
    with_old_driver(world)
    machine = world.machine
    async with world.agent():
        order = await world.send_command(SWAP)
        await world.until(lambda: "old-driver" in world.phases(order))
        assert machine.unloaded == []
        machine.remove_process(100)
        await world.until(lambda: "gate" in world.phases(order))
        assert machine.unloaded == ["nvidia_uvm", "nvidia"]
        assert machine.unmounted == [driver_files.ROOT]
        assert not machine.tree.exists(driver_files.READY)
        await world.admit(NEW)
        assert [each.pod_uid for each in gate.list_answers(machine.tree)] == [NEW]
        await world.until(lambda: "driver-start" in world.phases(order))
        assert world.result(order) is None
        machine.load_driver("570.86.15")
        result = await world.wait_for_result(order)
        assert result.outcome is Outcome.DONE
        assert "570.86.15" in result.message
    assert world.phases(order) == ["old-driver", "gate", "driver-start"]


@in_world
async def test_a_driver_in_use_stays_and_its_holder_is_named(world: World) -> None:
    machine = world.machine
    machine.load_driver("550.54")
    machine.add_process(4711, JOB, "/dev/nvidia0", comm="train.py")
    async with world.agent():
        order = await world.send_command(SWAP, deadline=120.0)
        machine.add_gate_request(NEW, "d-2", at=world.clock.now())
        began = world.clock.now()
        result = await world.wait_for_result(order)
        assert (result.outcome, result.code) == (Outcome.FAILED, "busy")
        assert f"train.py (pid 4711, pod {JOB})" in result.message
        assert "Resource temporarily unavailable" in result.message
        assert 120 <= result.finished - began <= 123
    assert machine.unloaded == []
    assert not machine.is_gate_open_to(NEW, "d-2")


@in_world
async def test_a_driver_that_the_machine_came_with_is_never_unloaded(world: World) -> None:
    machine = world.machine
    machine.load_driver("550.54")
    add_program(machine.root, "/usr/bin/nvidia-smi")
    async with world.agent():
        for label in ("d-2", ""):
            result = await world.carry_out(Swap(label=label))
            assert (result.outcome, result.code) == (Outcome.FAILED, "host-driver")
            assert "nvidia.com/gpu.deploy.driver=pre-installed" in result.message
    assert (machine.unloaded, machine.unmounted) == ([], [])


@in_world
async def test_a_holder_that_ends_in_time_is_waited_for(world: World) -> None:
    machine = world.machine
    machine.load_driver("550.54")
    machine.add_process(4711, JOB, "/dev/nvidia0")
    async with world.agent():
        order = await world.send_command(SWAP)
        await world.until(lambda: "unload" in world.phases(order))
        await world.clock.sleep(5)
        machine.remove_process(4711)
        await world.until(lambda: "gate" in world.phases(order))
    assert machine.unloaded == ["nvidia_uvm", "nvidia"]
    answers = [each.detail for each in world.entries if each.detail.startswith("unload: ")]
    assert answers == ["unload: busy", "unload: ok"], "each answer of the kernel that is new"


@in_world
async def test_keep_leaves_the_modules_loaded(world: World) -> None:
    with_old_driver(world)
    machine = world.machine
    machine.remove_process(100)
    async with world.agent():
        order = await world.send_command(Swap(label="d-2", old_pod_uid=OLD, keep=True))
        put(machine.root, driver_files.DAEMONS, "NotReady")
        await world.admit(NEW)
        # What the old container said about itself does not count.
        assert not machine.tree.exists(driver_files.READY)
        assert not machine.tree.exists(driver_files.DAEMONS)
        assert world.result(order) is None
        put(machine.root, driver_files.READY, "")
        await world.wait_for_result(order)
    assert (machine.unloaded, machine.unmounted) == ([], [])


@in_world
async def test_without_a_label_the_swap_ends_after_the_unload(world: World) -> None:
    with_old_driver(world)
    world.machine.remove_process(100)
    async with world.agent():
        order = await world.send_command(Swap(label="", old_pod_uid=OLD))
        result = await world.wait_for_result(order)
        assert result.outcome is Outcome.DONE
    assert world.machine.unloaded == ["nvidia_uvm", "nvidia"]


@in_world
async def test_a_resumed_op_does_not_unload_its_own_new_driver(world: World) -> None:
    machine = world.machine
    async with world.agent():
        order = await world.send_command(SWAP)
        await world.admit(NEW)
    machine.add_process(200, NEW, comm="nvidia-driver")
    machine.set_modules("nvidia")
    async with world.agent():
        await world.clock.sleep(30)
        assert world.result(order) is None
        machine.load_driver("570.86.15")
        await world.wait_for_result(order)
    assert machine.unloaded == []
    assert machine.unmounted == [driver_files.ROOT]


@in_world
async def test_an_admitted_pod_counts_as_running_while_its_container_is_down(world: World) -> None:
    machine = world.machine
    async with world.agent():
        order = await world.send_command(SWAP)
        await world.admit(NEW)
    # The container crashed: it has no processes left, but its pod exists.
    machine.set_modules("nvidia")
    async with world.agent():
        await world.clock.sleep(60)
        assert world.phases(order)[-1] == "driver-start"
    assert machine.unloaded == []


@in_world
async def test_a_pod_named_as_old_is_replaced_by_another_with_the_same_label(world: World) -> None:
    machine, newer = world.machine, NEW.replace("2222", "9999")
    async with world.agent():
        order = await world.send_command(SWAP)
        await world.admit(NEW)
        replaced = await world.send_command(Swap(label="d-2", old_pod_uid=NEW))
        await world.wait_for_result(order)
        await world.admit(newer)
        assert not machine.is_gate_open_to(NEW, "d-2")
        machine.load_driver("570.86.15")
        await world.wait_for_result(replaced)
        first = world.result(order)
        assert first is not None
        assert first.outcome is Outcome.SUPERSEDED


@in_world
async def test_a_pod_deleted_before_its_driver_is_ready_is_replaced_by_the_next(
    world: World,
) -> None:
    machine, newer = world.machine, NEW.replace("2222", "9999")
    async with world.agent():
        order = await world.send_command(SWAP)
        await world.admit(NEW)
        machine.load_driver("570.86.15")
        # The container is stopped before it is ready.
        machine.tree.remove(driver_files.READY)
        await world.clock.sleep(5)
        await world.admit(newer)
        assert machine.unloaded[-1] == "nvidia"
        assert [each.pod_uid for each in gate.list_answers(machine.tree)] == [newer]
        machine.load_driver("570.86.15")
        result = await world.wait_for_result(order)
        assert result.outcome is Outcome.DONE


@in_world
async def test_a_root_that_cannot_be_unmounted_fails_the_swap(world: World) -> None:
    world.machine.unmount_error = "umount /run/nvidia/driver: Resource temporarily unavailable"
    async with world.agent():
        order = await world.send_command(SWAP)
        result = await world.wait_for_result(order)
        assert (result.outcome, result.code) == (Outcome.FAILED, "stale-root")


@in_world
async def test_a_pod_with_another_label_is_not_admitted(world: World) -> None:
    async with world.agent():
        order = await world.send_command(SWAP)
        world.machine.add_gate_request(NEW, "d-9", at=world.clock.now())
        await world.clock.sleep(30)
        assert not world.machine.is_gate_open_to(NEW, "d-9")
        details = [each.detail for each in world.reported(Progress)]
        assert details[-1] == "waiting for the new driver pod (d-2) to reach the gate"
        assert world.result(order) is None


@in_world
async def test_a_proven_driver_is_not_admitted_after_a_swap_command(world: World) -> None:
    machine = world.machine
    async with world.agent():
        await world.send_command(Idle(proven=Proven(label="d-1", kernel=KERNEL)))
        order = await world.send_command(SWAP)
        await world.until(lambda: world.phases(order))
        machine.add_gate_request(OLD, "d-1", at=world.clock.now())
        await world.clock.sleep(30)
        assert not machine.is_gate_open_to(OLD, "d-1")


@in_world
async def test_a_swap_waits_while_the_machine_cannot_be_inspected(world: World) -> None:
    with_old_driver(world)
    machine = world.machine
    async with world.agent():
        machine.make_unreadable(101)
        order = await world.send_command(SWAP)
        await world.until(lambda: "inspect" in world.phases(order))
        await world.clock.sleep(30)
        assert machine.unloaded == []
        machine.remove_process(101)
        machine.remove_process(100)
        await world.until(lambda: machine.unloaded == ["nvidia_uvm", "nvidia"])
