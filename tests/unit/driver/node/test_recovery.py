"""While NATS is away, the gate opens for what was last proven on this machine, and nothing else."""

import shutil
from collections.abc import Callable
from functools import partial

import pytest

from libs.contracts.commands import CommandBody, Idle, Proven, Quiesce, Swap
from libs.contracts.facts import Facts
from libs.contracts.reports import Refusal, RefusalCode
from libs.host import gate
from services.driver.node.gate_keeper import SLOT_WAIT
from tests.builders.fake_machine import KERNEL
from tests.builders.machine_files import put
from tests.unit.driver.node.world import World, in_world

OLD, NEW = "0f5b7a0e-1111-4c1d-8f2e-0a1b2c3d4e01", "0f5b7a0e-2222-4c1d-8f2e-0a1b2c3d4e02"
PROVEN = Idle(proven=Proven(label="d-1", kernel=KERNEL, install_digest="i-1"))
HARDWARE = "/sys/class/dmi/id/product_uuid"
Change = Callable[[World], object]


def ask(world: World, *, label: str = "d-1", digest: str = "i-1", uid: str = NEW) -> None:
    world.machine.add_gate_request(uid, label, at=world.clock.now(), digest=digest)


async def prove(world: World, *later: CommandBody) -> None:
    """Let an agent take the proof, and commands after it, then kill it."""
    async with world.agent():
        for body in (PROVEN, *later):
            order = await world.send_command(body)
            await world.until(lambda order=order: world.result(order) is not None)
        await world.clock.sleep(2)


async def is_open_without_nats(world: World) -> bool:
    """Start again while NATS is away; return whether the gate opens, late enough."""
    world.server.stop()
    async with world.agent():
        await world.clock.sleep(SLOT_WAIT - 1)
        assert not gate.list_answers(world.machine.tree)
        await world.clock.sleep(60)
        return [each.pod_uid for each in gate.list_answers(world.machine.tree)] == [NEW]


def set_kernel(world: World) -> None:
    put(world.machine.root, "/proc/sys/kernel/osrelease", "6.8.0-50-generic")
    ask(world)


def move_disk(world: World) -> None:
    """Let the disk be in a machine that another Node stands for."""
    world.settings = {"node_uid": "uid-2"}
    ask(world)


def change_hardware(world: World) -> None:
    """Let the disk be in another machine, which takes the Node over with it."""
    put(world.machine.root, HARDWARE, "4c4c4544-0000-0000-0000-000000000002\n")
    ask(world)


def damage(world: World) -> None:
    path = world.state_dir / "proven"
    path.write_bytes(path.read_bytes()[:-7])
    ask(world)


def lose(world: World) -> None:
    shutil.rmtree(world.state_dir)
    ask(world)


@pytest.mark.parametrize(
    ("change", "opens"),
    [
        pytest.param(ask, True, id="the same"),
        pytest.param(set_kernel, False, id="another kernel"),
        pytest.param(partial(ask, label="d-2"), False, id="another label"),
        pytest.param(partial(ask, digest="i-2"), False, id="another digest"),
        pytest.param(partial(ask, digest=""), False, id="no digest"),
        pytest.param(move_disk, False, id="a disk of another node"),
        pytest.param(change_hardware, False, id="a disk of another machine"),
        pytest.param(damage, False, id="a damaged file"),
        pytest.param(lose, False, id="no file"),
    ],
)
@in_world
async def test_the_gate_opens_for_exactly_what_was_last_proven_here(
    world: World, change: Change, opens: bool
) -> None:
    put(world.machine.root, HARDWARE, "4c4c4544-0000-0000-0000-000000000001\n")
    await prove(world)
    change(world)
    assert await is_open_without_nats(world) is opens


@pytest.mark.parametrize(
    ("later", "opens"),
    [
        pytest.param(Quiesce(), True, id="quiesced"),
        pytest.param(Idle(), False, id="failed"),
        pytest.param(Idle(proven=Proven(label="d-2", kernel=KERNEL)), False, id="another"),
    ],
)
@in_world
async def test_a_later_command_counts(world: World, later: CommandBody, opens: bool) -> None:
    await prove(world, later)
    ask(world)
    assert await is_open_without_nats(world) is opens


@in_world
async def test_a_swap_erases_what_was_proven_before_it_is_begun(world: World) -> None:
    await prove(world)
    async with world.agent():
        await world.send_command(Swap(label="d-2", old_pod_uid=OLD))
        await world.until(lambda: any(each.command == "swap" for each in world.entries))
        assert not (world.state_dir / "proven").exists()
    ask(world)
    assert not await is_open_without_nats(world)


@in_world
async def test_a_node_that_failed_while_its_agent_was_silent_gets_the_driver_that_it_ran(
    world: World,
) -> None:
    await prove(world)
    await world.send_command(Idle())
    ask(world)
    assert await is_open_without_nats(world)
    async with world.agent():
        world.server.start()
        await world.until(lambda: not (world.state_dir / "proven").exists())
        await world.clock.sleep(60)
    ask(world, uid=OLD)
    world.server.stop()
    async with world.agent():
        await world.clock.sleep(60)
        assert OLD not in [each.pod_uid for each in gate.list_answers(world.machine.tree)]


@in_world
async def test_a_swap_is_refused_where_the_proof_cannot_be_erased(world: World) -> None:
    await prove(world)
    path = world.state_dir / "proven"
    path.unlink()
    path.mkdir()
    async with world.agent():
        await world.send_command(Swap(label="d-2"))
        await world.until(lambda: bool(world.reported(Refusal)))
        assert {each.code for each in world.reported(Refusal)} == {RefusalCode.JOURNAL}
        assert "cannot be erased" in world.reported(Refusal)[0].message
        assert all(each.phase != "started" or each.command == "idle" for each in world.entries)


@in_world
async def test_a_slot_that_is_read_late_counts_before_the_disk(world: World) -> None:
    await prove(world, PROVEN)
    await world.send_command(Idle())
    ask(world)
    world.server.stop()
    async with world.agent():
        await world.clock.sleep(SLOT_WAIT - 5)
        world.server.start()
        await world.clock.sleep(60)
        assert not gate.list_answers(world.machine.tree)
        gates = [facts.gate for facts in world.reported(Facts) if facts.gate]
        assert gates[-1].why.startswith("no driver is validated")
