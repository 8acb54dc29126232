"""Without a running operation, the gate opens only for the proven driver."""

import asyncio
from typing import Any

import pytest

from libs.contracts.commands import Command, CommandBody, Idle, Order, Proven, Quiesce, Swap
from libs.contracts.facts import Facts
from libs.host import gate
from libs.host.gate import GateAnswer
from services.driver.node.gate_keeper import GateKeeper
from services.driver.node.last_proven import LastProven, ProofFile
from tests.builders.agent_world import NODE, UID
from tests.builders.fake_machine import BOOT, KERNEL
from tests.unit.driver.node.world import World, in_world

OLD, NEW = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01", "0f5b7a0e-2222-4c1d-8f2e-0a1b2c3d4e02"
PROVEN = Idle(proven=Proven(label="d-1", kernel=KERNEL))


def shut_reason(world: World) -> str:
    """Return the last reported reason why the gate is shut."""
    gates = [facts.gate for facts in world.reported(Facts) if facts.gate]
    return gates[-1].why if gates else ""


@in_world
async def test_the_gate_opens_for_the_proven_driver(world: World) -> None:
    async with world.agent():
        await world.send_command(PROVEN)
        await world.admit(NEW, "d-1")
        await world.clock.sleep(10)
        assert shut_reason(world) == ""


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
@in_world
async def test_the_gate_stays_shut_and_the_reason_is_reported(
    world: World, body: CommandBody | None, label: str, expected: str
) -> None:
    async with world.agent():
        if body is not None:
            await world.send_command(body)
        world.machine.add_gate_request(NEW, label, at=1.0)
        await world.until(lambda: expected in shut_reason(world))
        assert not world.machine.is_gate_open_to(NEW, label)


@in_world
async def test_the_gate_stays_shut_while_a_process_cannot_be_inspected(world: World) -> None:
    machine = world.machine
    gate.put_answer(machine.tree, GateAnswer(pod_uid=OLD, label="d-1", at=1.0))
    async with world.agent():
        await world.send_command(PROVEN)
        await world.clock.sleep(10)
        machine.make_unreadable(100)
        machine.add_gate_request(NEW, "d-1", at=2.0)
        await world.until(lambda: "/proc/100/cgroup cannot be read" in shut_reason(world))
        await world.clock.sleep(10)
        assert not machine.is_gate_open_to(NEW, "d-1")
        machine.remove_process(100)
        await world.until(lambda: machine.is_gate_open_to(NEW, "d-1"))


@in_world
async def test_no_pod_is_admitted_beside_a_running_driver(world: World) -> None:
    machine = world.machine
    gate.put_answer(machine.tree, GateAnswer(pod_uid=OLD, label="d-1", at=1.0))
    machine.add_process(100, OLD, comm="nvidia-driver")
    async with world.agent():
        await world.send_command(PROVEN)
        machine.add_gate_request(NEW, "d-1", at=2.0)
        await world.until(lambda: "are still on the machine" in shut_reason(world))
        assert not machine.is_gate_open_to(NEW, "d-1")
        machine.remove_process(100)
        await world.until(lambda: machine.is_gate_open_to(NEW, "d-1"))
    assert [each.pod_uid for each in gate.list_answers(machine.tree)] == [NEW]


@in_world
async def test_a_restarted_agent_opens_the_gate_only_after_reading_its_slot(world: World) -> None:
    async with world.agent():
        await world.send_command(PROVEN)
        await world.clock.sleep(5)
    world.server.stop()
    async with world.agent():
        world.machine.add_gate_request(NEW, "d-1", at=1.0)
        await world.clock.sleep(120)
        assert not world.machine.is_gate_open_to(NEW, "d-1")
        world.server.start()
        await world.until(lambda: world.machine.is_gate_open_to(NEW, "d-1"))


@in_world
async def test_the_next_idle_without_a_proof_shuts_the_gate(world: World) -> None:
    async with world.agent():
        await world.send_command(PROVEN)
        await world.admit(NEW, "d-1")
        await world.send_command(Idle())
        world.machine.add_gate_request(OLD, "d-1", at=world.clock.now())
        await world.until(lambda: "no driver is validated" in shut_reason(world))
        assert not world.machine.is_gate_open_to(OLD, "d-1")


@in_world
async def test_a_request_older_than_that_of_the_admitted_pod_is_ignored(world: World) -> None:
    async with world.agent():
        world.machine.add_gate_request(OLD, "d-1", at=world.clock.now() - 60)
        world.machine.add_gate_request(NEW, "d-1", at=world.clock.now())
        await world.send_command(PROVEN)
        await world.until(lambda: world.machine.is_gate_open_to(NEW, "d-1"))
        await world.clock.sleep(60)
        assert [each.pod_uid for each in gate.list_answers(world.machine.tree)] == [NEW]
        assert shut_reason(world) == ""


class Commands:
    """The receiver of commands, as far as the gate needs it."""

    def __init__(self, body: CommandBody) -> None:
        self.slot_lock = asyncio.Lock()
        self.last_error = ""
        self.has_read_slot = True
        self.current: Command | None = None
        self.put(body)

    def put(self, body: CommandBody) -> None:
        self.current = Command.of(
            body,
            node=NODE,
            node_uid=UID,
            boot_id=BOOT,
            epoch=1,
            order=Order(1, 1),
            deadline=2e9,
        )


@pytest.mark.parametrize(
    "body",
    [PROVEN, Idle(), Quiesce(), Idle(proven=Proven(label="d-2", kernel=KERNEL)), Swap(label="d-1")],
    ids=["the same", "no proof", "quiesce", "another proof", "swap"],
)
@in_world
async def test_a_command_that_arrives_while_the_gate_is_checked_counts(
    world: World, body: CommandBody
) -> None:
    commands: Any = Commands(PROVEN)
    machine = world.machine.machine
    file = ProofFile(world.state_dir / "proven", tree=machine.tree, node_uid=UID)
    last_proven = LastProven(file, machine.offload)
    keeper = GateKeeper(
        machine=machine, commands=commands, last_proven=last_proven, clock=world.clock
    )
    await keeper.check()
    world.machine.add_gate_request(NEW, "d-1", at=1.0)
    async with commands.slot_lock:  # as while a command begins
        check = asyncio.create_task(keeper.check())
        await world.clock.sleep(1)
        assert keeper.shut_reason == ""
        commands.put(body)
    await check
    assert world.machine.is_gate_open_to(NEW, "d-1") is (body is PROVEN)
