"""Outside of an op the gate opens for what is proven, and for nothing else."""

from collections.abc import Callable

import pytest

from libs.contracts.commands import CommandBody, Idle, Proven, Quiesce
from libs.contracts.facts import Facts
from libs.host import gate
from libs.host.gate import GateAnswer
from tests.unit.driver.node.world import AgentWorld, play
from tests.unit.fake_machine import KERNEL

OLD, NEW = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01", "0f5b7a0e-2222-4c1d-8f2e-0a1b2c3d4e02"
PROVEN = Idle(proven=Proven(label="d-1", kernel=KERNEL))


def why(ground: AgentWorld) -> str:
    """What the agent last said of its gate."""
    gates = [one.gate for one in ground.reports if isinstance(one, Facts) and one.gate]
    return gates[-1].why if gates else ""


async def opened(ground: AgentWorld) -> None:
    async with ground.agent():
        await ground.send_command(PROVEN)
        ground.fake_machine.add_gate_request(NEW, "d-1", at=1.0)
        await ground.until(lambda: ground.fake_machine.is_gate_open_to(NEW, "d-1"))
        await ground.clock.sleep(10)
        assert why(ground) == ""


def test_it_opens_for_what_is_proven() -> None:
    play(opened)


def shut(body: CommandBody | None, label: str, expected: str) -> Callable[[AgentWorld], object]:
    async def story(ground: AgentWorld) -> None:
        async with ground.agent():
            if body is not None:
                await ground.send_command(body)
            ground.fake_machine.add_gate_request(NEW, label, at=1.0)
            await ground.until(lambda: expected in why(ground))
            assert not ground.fake_machine.is_gate_open_to(NEW, label)

    return story


@pytest.mark.parametrize(
    ("body", "label", "expected"),
    [
        (None, "d-1", "the slot of this agent cannot be read: it is empty"),
        (Idle(), "d-1", "no driver is validated on this node"),
        (Quiesce(), "d-1", "no driver is validated on this node"),
        (PROVEN, "d-2", "the waiting pod has driver d-2, but d-1 is validated"),
        (
            Idle(proven=Proven(label="d-1", kernel="6.8.0-50-generic")),
            "d-1",
            "kernel 6.8.0-48-generic runs, but the driver is validated with 6.8.0-50-generic",
        ),
    ],
)
def test_it_stays_shut_and_says_why(body: CommandBody | None, label: str, expected: str) -> None:
    play(shut(body, label, expected))  # type: ignore[arg-type]


async def one_at_a_time(ground: AgentWorld) -> None:
    box = ground.fake_machine
    gate.put_answer(box.tree, GateAnswer(pod_uid=OLD, label="d-1", at=1.0))
    box.add_process(100, OLD, comm="nvidia-driver")
    async with ground.agent():
        await ground.send_command(PROVEN)
        box.add_gate_request(NEW, "d-1", at=2.0)
        await ground.until(lambda: "are still on the machine" in why(ground))
        assert not box.is_gate_open_to(NEW, "d-1")
        box.remove_process(100)
        await ground.until(lambda: box.is_gate_open_to(NEW, "d-1"))
    assert [one.pod_uid for one in gate.list_answers(box.tree)] == [NEW]


def test_no_pod_is_admitted_beside_a_running_driver() -> None:
    play(one_at_a_time)


async def not_read_since_the_start(ground: AgentWorld) -> None:
    async with ground.agent():
        await ground.send_command(PROVEN)
        await ground.clock.sleep(5)
    ground.server.stop()
    async with ground.agent():
        ground.fake_machine.add_gate_request(NEW, "d-1", at=1.0)
        await ground.clock.sleep(120)
        assert not ground.fake_machine.is_gate_open_to(NEW, "d-1")
        ground.server.start()
        await ground.until(lambda: ground.fake_machine.is_gate_open_to(NEW, "d-1"))


def test_what_an_earlier_process_read_opens_nothing() -> None:
    play(not_read_since_the_start)


async def reads_late(ground: AgentWorld) -> None:
    async with ground.agent():
        await ground.send_command(PROVEN)
        ground.fake_machine.add_gate_request(NEW, "d-1", at=1.0)
        await ground.until(lambda: ground.fake_machine.is_gate_open_to(NEW, "d-1"))
        await ground.send_command(Idle())
        ground.fake_machine.add_gate_request(OLD, "d-1", at=ground.clock.now())
        await ground.until(lambda: "no driver is validated" in why(ground))
        assert not ground.fake_machine.is_gate_open_to(OLD, "d-1")


def test_what_was_proven_is_taken_back_by_the_next_idle() -> None:
    play(reads_late)


async def asked_before(ground: AgentWorld) -> None:
    async with ground.agent():
        ground.fake_machine.add_gate_request(OLD, "d-1", at=ground.clock.now() - 60)
        ground.fake_machine.add_gate_request(NEW, "d-1", at=ground.clock.now())
        await ground.send_command(PROVEN)
        await ground.until(lambda: ground.fake_machine.is_gate_open_to(NEW, "d-1"))
        await ground.clock.sleep(60)
        assert [one.pod_uid for one in gate.list_answers(ground.fake_machine.tree)] == [NEW]
        assert why(ground) == ""


def test_a_request_older_than_the_admitted_pod_is_gone() -> None:
    play(asked_before)
