"""`swap` from any point on: who was let in stays in, the kernel decides, nothing is done twice."""

from libs.contracts.commands import Idle, Proven, Swap
from libs.contracts.reports import Outcome, Progress
from libs.host import driver_files, gate
from libs.host.gate import GateAnswer
from tests.unit.driver.node.world import AgentWorld, play
from tests.unit.fake_machine import KERNEL
from tests.unit.host.builders import put

OLD, NEW = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01", "0f5b7a0e-2222-4c1d-8f2e-0a1b2c3d4e02"
JOB = "0f5b7a0e-3333-4c1d-8f2e-0a1b2c3d4e03"
SWAP = Swap(label="d-2", old_pod_uid=OLD)


def with_old_driver(ground: AgentWorld) -> None:
    """Its pod was let in, its modules are loaded, and its process lives."""
    ground.fake_machine.load_driver("550.54")
    gate.put_answer(ground.fake_machine.tree, GateAnswer(pod_uid=OLD, label="d-1", at=1.0))
    ground.fake_machine.add_process(100, OLD, comm="nvidia-driver")


async def whole_swap(ground: AgentWorld) -> None:
    with_old_driver(ground)
    box = ground.fake_machine
    async with ground.agent():
        order = await ground.send_command(SWAP)
        await ground.until(lambda: "old-driver" in ground.phases(order))
        assert box.unloaded == []
        box.remove_process(100)
        await ground.until(lambda: "gate" in ground.phases(order))
        assert box.unloaded == ["nvidia_uvm", "nvidia"]
        assert box.unmounted == [driver_files.ROOT]
        assert not box.tree.exists(driver_files.READY)
        box.add_gate_request(NEW, "d-2", at=ground.clock.now())
        await ground.until(lambda: box.is_gate_open_to(NEW, "d-2"))
        assert [one.pod_uid for one in gate.list_answers(box.tree)] == [NEW]
        await ground.until(lambda: "driver-start" in ground.phases(order))
        assert ground.result(order) is None
        box.load_driver("570.86.15")
        await ground.until(lambda: ground.result(order))
        result = ground.result(order)
        assert result is not None
        assert result.outcome is Outcome.DONE
        assert "570.86.15" in result.message
    assert ground.phases(order) == ["old-driver", "gate", "driver-start"]


def test_the_old_driver_goes_before_the_new_one_comes() -> None:
    play(whole_swap)


async def busy(ground: AgentWorld) -> None:
    box = ground.fake_machine
    box.load_driver("550.54")
    box.add_process(4711, JOB, "/dev/nvidia0", comm="train.py")
    async with ground.agent():
        order = await ground.send_command(SWAP, deadline=120.0)
        box.add_gate_request(NEW, "d-2", at=ground.clock.now())
        began = ground.clock.now()
        await ground.until(lambda: ground.result(order))
        result = ground.result(order)
        assert result is not None
        assert (result.outcome, result.code) == (Outcome.FAILED, "busy")
        assert f"train.py (pid 4711, pod {JOB})" in result.message
        assert "Device or resource busy" in result.message
        assert 120 <= result.finished - began <= 123
    assert box.unloaded == []
    assert not box.is_gate_open_to(NEW, "d-2")


def test_a_driver_that_somebody_holds_stays_and_the_holder_is_named() -> None:
    play(busy)


async def freed_in_time(ground: AgentWorld) -> None:
    box = ground.fake_machine
    box.load_driver("550.54")
    box.add_process(4711, JOB, "/dev/nvidia0")
    async with ground.agent():
        order = await ground.send_command(SWAP)
        await ground.until(lambda: "unload" in ground.phases(order))
        box.remove_process(4711)
        await ground.until(lambda: "gate" in ground.phases(order))
    assert box.unloaded == ["nvidia_uvm", "nvidia"]


def test_a_holder_that_ends_in_time_is_waited_for() -> None:
    play(freed_in_time)


async def kept(ground: AgentWorld) -> None:
    with_old_driver(ground)
    box = ground.fake_machine
    box.remove_process(100)
    async with ground.agent():
        order = await ground.send_command(Swap(label="d-2", old_pod_uid=OLD, keep=True))
        box.add_gate_request(NEW, "d-2", at=ground.clock.now())
        await ground.until(lambda: box.is_gate_open_to(NEW, "d-2"))
        assert not box.tree.exists(driver_files.READY)  # what the old container said is no news
        assert ground.result(order) is None
        put(box.root, driver_files.READY, "")
        await ground.until(lambda: ground.result(order))
    assert (box.unloaded, box.unmounted) == ([], [])


def test_with_keep_the_modules_stay() -> None:
    play(kept)


async def removed(ground: AgentWorld) -> None:
    with_old_driver(ground)
    ground.fake_machine.remove_process(100)
    async with ground.agent():
        order = await ground.send_command(Swap(label="", old_pod_uid=OLD))
        await ground.until(lambda: ground.result(order))
        result = ground.result(order)
        assert result is not None
        assert result.outcome is Outcome.DONE
    assert ground.fake_machine.unloaded == ["nvidia_uvm", "nvidia"]


def test_without_a_label_nothing_comes_after() -> None:
    play(removed)


async def killed_after_the_gate(ground: AgentWorld) -> None:
    box = ground.fake_machine
    async with ground.agent():
        order = await ground.send_command(SWAP)
        box.add_gate_request(NEW, "d-2", at=ground.clock.now())
        await ground.until(lambda: box.is_gate_open_to(NEW, "d-2"))
    box.add_process(200, NEW, comm="nvidia-driver")
    box.set_modules("nvidia")
    async with ground.agent():
        await ground.clock.sleep(30)
        assert ground.result(order) is None
        box.load_driver("570.86.15")
        await ground.until(lambda: ground.result(order))
    assert box.unloaded == []
    assert box.unmounted == [driver_files.ROOT]


def test_an_op_begun_again_never_unloads_under_its_own_new_driver() -> None:
    play(killed_after_the_gate)


async def crashed_in_back_off(ground: AgentWorld) -> None:
    box = ground.fake_machine
    async with ground.agent():
        order = await ground.send_command(SWAP)
        box.add_gate_request(NEW, "d-2", at=ground.clock.now())
        await ground.until(lambda: box.is_gate_open_to(NEW, "d-2"))
    box.set_modules("nvidia")  # its container crashed: no process of it is left, the pod is
    async with ground.agent():
        await ground.clock.sleep(60)
        assert ground.phases(order)[-1] == "driver-start"
    assert box.unloaded == []


def test_who_was_let_in_counts_as_running_while_its_container_is_down() -> None:
    play(crashed_in_back_off)


async def replaced_pod(ground: AgentWorld) -> None:
    box, newer = ground.fake_machine, NEW.replace("2222", "9999")
    async with ground.agent():
        order = await ground.send_command(SWAP)
        box.add_gate_request(NEW, "d-2", at=ground.clock.now())
        await ground.until(lambda: box.is_gate_open_to(NEW, "d-2"))
        again = await ground.send_command(Swap(label="d-2", old_pod_uid=NEW))
        await ground.until(lambda: ground.result(order))
        box.add_gate_request(newer, "d-2", at=ground.clock.now())
        await ground.until(lambda: box.is_gate_open_to(newer, "d-2"))
        assert not box.is_gate_open_to(NEW, "d-2")
        box.load_driver("570.86.15")
        await ground.until(lambda: ground.result(again))
        first = ground.result(order)
        assert first is not None
        assert first.outcome is Outcome.SUPERSEDED


def test_a_pod_named_as_old_is_replaced_by_another_with_the_same_label() -> None:
    play(replaced_pod)


async def deleted_midway(ground: AgentWorld) -> None:
    box, newer = ground.fake_machine, NEW.replace("2222", "9999")
    async with ground.agent():
        order = await ground.send_command(SWAP)
        box.add_gate_request(NEW, "d-2", at=ground.clock.now())
        await ground.until(lambda: box.is_gate_open_to(NEW, "d-2"))
        box.load_driver("570.86.15")
        box.tree.at(driver_files.READY).unlink()  # its container is stopped before it was up
        await ground.clock.sleep(5)
        box.add_gate_request(newer, "d-2", at=ground.clock.now())
        await ground.until(lambda: box.is_gate_open_to(newer, "d-2"))
        assert box.unloaded[-1] == "nvidia"
        assert [one.pod_uid for one in gate.list_answers(box.tree)] == [newer]
        box.load_driver("570.86.15")
        await ground.until(lambda: ground.result(order))
        result = ground.result(order)
        assert result is not None
        assert result.outcome is Outcome.DONE


def test_a_pod_that_is_deleted_before_its_driver_is_up_makes_room_for_the_next() -> None:
    play(deleted_midway)


async def stale_root(ground: AgentWorld) -> None:
    ground.fake_machine.unmount_error = "umount /run/nvidia/driver: Device or resource busy"
    async with ground.agent():
        order = await ground.send_command(SWAP)
        await ground.until(lambda: ground.result(order))
        result = ground.result(order)
        assert result is not None
        assert (result.outcome, result.code) == (Outcome.FAILED, "stale-root")


def test_a_root_that_cannot_be_unmounted_is_a_failure_with_its_reason() -> None:
    play(stale_root)


async def other_label(ground: AgentWorld) -> None:
    async with ground.agent():
        order = await ground.send_command(SWAP)
        ground.fake_machine.add_gate_request(NEW, "d-9", at=ground.clock.now())
        await ground.clock.sleep(30)
        assert not ground.fake_machine.is_gate_open_to(NEW, "d-9")
        details = [one.detail for one in ground.reports if isinstance(one, Progress)]
        assert details[-1] == "waiting for the new driver pod (d-2) to reach the gate"
        assert ground.result(order) is None


def test_a_pod_with_another_label_is_not_let_in() -> None:
    play(other_label)


async def shut_during_an_op(ground: AgentWorld) -> None:
    box = ground.fake_machine
    async with ground.agent():
        await ground.send_command(Idle(proven=Proven(label="d-1", kernel=KERNEL)))
        order = await ground.send_command(SWAP)
        await ground.until(lambda: ground.phases(order))
        box.add_gate_request(OLD, "d-1", at=ground.clock.now())
        await ground.clock.sleep(30)
        assert not box.is_gate_open_to(OLD, "d-1")


def test_what_was_proven_opens_nothing_once_a_swap_was_told() -> None:
    play(shut_during_an_op)
