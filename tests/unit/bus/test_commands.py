"""Execution of commands by an agent."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from libs.bus.commands.executor import MAX_MESSAGE_LENGTH, Op, OpFailed
from libs.bus.commands.receiver import PERIOD
from libs.bus.journal import JournalUnusable
from libs.contracts.commands import CommandKind, Order
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.reports import Outcome, Progress, RefusalCode
from libs.contracts.subjects import COMMANDS, STATE
from libs.testing.bus import BusFaults
from libs.testing.bus.memory_journal import MemoryJournal
from tests.unit.bus.command_world import (
    AGENT,
    IDLE,
    SLOT,
    SWAP,
    World,
    command,
    every_kind,
    in_world,
    world_of,
)
from tests.unit.bus.simulated import in_simulation


def orders(world: World) -> list[Order]:
    return [op.command.order for op in world.ops]


@in_world
async def test_a_command_is_executed_once_journalled_and_reported(world: World) -> None:
    agent = world.agent()
    await world.execute(command(1))
    result = world.results()[0]
    assert (result.order, result.outcome, result.command) == ((1, 1), Outcome.DONE, "quiesce")
    phases = [entry.phase for entry in world.entries]
    assert phases == [EntryPhase.STEP, EntryPhase.STARTED, EntryPhase.FINISHED]
    await world.clock.sleep(10 * PERIOD)
    assert orders(world) == [(1, 1)]
    assert agent.receiver.command_in_effect is CommandKind.QUIESCE
    assert (agent.receiver.seen.epoch, agent.receiver.seen.order) == (1, (1, 1))
    assert agent.receiver.current == command(1)
    assert agent.receiver.last_error == ""
    assert agent.receiver.known_kinds == ("idle", "journal", "quiesce")


async def seconds_until_executed(world: World) -> float:
    world.agent()
    await world.clock.sleep(5.0)
    began = world.clock.monotonic()
    await world.slots.write(SLOT, command(1))
    await world.until(lambda: len(world.ops) == 1)
    return world.clock.monotonic() - began


@in_world
async def test_the_slot_is_read_on_notification(world: World) -> None:
    assert await seconds_until_executed(world) < 0.2


@in_simulation(partial(world_of, faults=BusFaults(lost=1.0)))
async def test_the_slot_is_read_every_period(world: World) -> None:
    assert PERIOD / 2 < await seconds_until_executed(world) < 1.3 * PERIOD


@in_world
async def test_the_command_in_effect_is_known_without_the_bus(world: World) -> None:
    first = world.agent()
    await world.execute(command(1))
    await first.kill()
    world.server.cut(AGENT)
    second = world.agent()
    await world.clock.sleep(120.0)
    assert second.receiver.command_in_effect is CommandKind.QUIESCE
    assert second.receiver.current is None
    assert "unreachable" in second.receiver.last_error
    world.server.restore(AGENT)
    await world.until(lambda: second.receiver.current == command(1))
    assert second.receiver.last_error == ""
    assert orders(world) == [(1, 1)]


@in_world
async def test_a_finished_op_is_reported_again_with_the_same_bytes(world: World) -> None:
    first = world.agent()
    await world.execute(command(1))
    await first.kill()
    world.server.lose_stream(STATE, remade=True)
    world.agent()
    await world.until(lambda: len(world.results()) == 2)
    assert world.raw[0] == world.raw[1]
    assert orders(world) == [(1, 1)]


@in_world
async def test_a_newer_epoch_alone_does_not_repeat_an_op(world: World) -> None:
    agent = world.agent()
    await world.execute(command(1))
    await world.execute(command(1, epoch=4))
    assert world.raw[0] == world.raw[1]
    assert orders(world) == [(1, 1)]
    assert (agent.receiver.seen.epoch, agent.receiver.seen.order) == (4, (1, 1))
    assert max(entry.epoch for entry in world.entries) == 4
    refusal = await world.refusal_of(command(2, epoch=3))
    assert refusal.code is RefusalCode.OLDER_EPOCH


@in_world
async def test_the_result_of_an_adopted_op_has_the_newer_epoch(world: World) -> None:
    world.agent(every_kind(world.unload))
    await world.slots.write(SLOT, command(1, SWAP))
    await world.until(lambda: len(world.entries) == 2)
    await world.execute(command(1, SWAP, epoch=2))
    assert world.results()[0].epoch == 2
    assert world.results()[0].outcome is Outcome.DONE
    assert len(world.ops) == 1


@in_world
async def test_a_restarted_agent_resumes_its_op_with_the_journalled_steps(world: World) -> None:
    first = world.agent(every_kind(world.stuck))
    await world.slots.write(SLOT, command(1, SWAP))
    await world.until(lambda: any(entry.detail == "unload" for entry in world.entries))
    await first.kill()
    world.agent(every_kind(world.done))
    await world.until(lambda: len(world.results()) == 1)
    assert orders(world) == [(1, 1)]
    assert [entry.phase for entry in world.entries].count(EntryPhase.STARTED) == 1
    assert world.results()[0].outcome is Outcome.DONE


@in_world
async def test_a_newer_command_supersedes_a_running_op_at_its_next_checkpoint(world: World) -> None:
    world.agent(every_kind(world.unload))
    await world.slots.write(SLOT, command(1, SWAP))
    await world.until(lambda: len(world.entries) == 2)
    for op in (2, 3):
        await world.slots.write(SLOT, command(op))
        await world.clock.sleep(1.0)
    await world.until(lambda: len(world.results()) == 2)
    assert [(each.order.op, each.outcome) for each in world.results()] == [
        (1, Outcome.SUPERSEDED),
        (3, Outcome.DONE),
    ]
    assert "quiesce 1.3" in world.results()[0].message
    assert orders(world) == [(1, 3)]


@in_world
async def test_an_outage_delays_a_step_and_extends_its_deadline(world: World) -> None:
    world.agent(every_kind(world.unload))
    await world.slots.write(SLOT, command(1, SWAP, deadline=world.clock.now() + 60.0))
    await world.until(lambda: bool(world.entries))
    world.server.cut(AGENT)
    await world.clock.sleep(3600.0)
    assert world.ops == []
    world.server.restore(AGENT)
    await world.until(lambda: len(world.results()) == 1)
    assert world.results()[0].outcome is Outcome.DONE


@in_world
async def test_a_step_waits_for_a_lost_slot_and_fails_past_the_deadline(
    world: World,
) -> None:
    world.agent(every_kind(world.unload))
    await world.slots.write(SLOT, command(1, SWAP, deadline=world.clock.now() + 60.0))
    await world.until(lambda: bool(world.entries))
    world.server.lose_stream(COMMANDS, remade=True)
    await world.until(lambda: len(world.results()) == 1)
    result = world.results()[0]
    assert (result.outcome, result.code) == (Outcome.FAILED, "deadline")
    assert 60.0 <= result.finished - world.clock.now() + world.clock.monotonic() < 70.0
    waits = [body for body in world.bodies() if isinstance(body, Progress)]
    assert [each.phase for each in waits] == ["unload"]
    assert "does not hold 1.1" in waits[0].detail
    assert world.ops == []


@in_world
async def test_a_step_proceeds_once_a_lost_slot_is_written_again(world: World) -> None:
    world.agent(every_kind(world.unload))
    wanted = command(1, SWAP)
    await world.slots.write(SLOT, wanted)
    await world.until(lambda: bool(world.entries))
    world.server.lose_stream(COMMANDS, remade=True)
    await world.clock.sleep(60.0)
    await world.execute(wanted)
    assert world.results()[0].outcome is Outcome.DONE


@in_world
async def test_failures_and_defects_are_results(world: World) -> None:
    async def fails(op: Op) -> OpFailed:
        if op.command.op == 2:
            raise RuntimeError("no such module")
        if op.command.op == 3:
            raise asyncio.CancelledError
        return OpFailed("busy", "pid 7 holds nvidia0")

    agent = world.agent(every_kind(fails))
    for op in (1, 2, 3):
        await world.execute(command(op))
    assert [(each.outcome, each.code, each.message) for each in world.results()] == [
        (Outcome.FAILED, "busy", "pid 7 holds nvidia0"),
        (Outcome.FAILED, "defect", "RuntimeError: no such module"),
        (Outcome.FAILED, "defect", "a task of the handler was cancelled"),
    ]
    assert agent.receiver.command_in_effect is None


@in_world
async def test_a_reboot_fails_the_running_op_and_ends_effects(world: World) -> None:
    first = world.agent(every_kind(world.stuck))
    await world.slots.write(SLOT, command(1, SWAP))
    await world.until(lambda: len(world.entries) > 2)
    await first.kill()
    second = world.agent(boot="boot-2")
    await world.until(lambda: len(world.results()) == 1 and len(world.refusals()) == 1)
    assert (world.results()[0].outcome, world.results()[0].code) == (Outcome.FAILED, "reboot")
    assert world.refusals()[0].code is RefusalCode.OTHER_BOOT
    await second.kill()
    await world.put(command(2, boot="boot-2"))
    third = world.agent(boot="boot-2")
    await world.until(lambda: len(world.results()) == 3)
    assert third.receiver.command_in_effect is CommandKind.QUIESCE
    await third.kill()
    fourth = world.agent(boot="boot-3")
    await world.clock.sleep(100.0)
    assert fourth.receiver.command_in_effect is None


@in_world
async def test_idle_is_accepted_after_reboots_lost_journals_and_its_deadline(world: World) -> None:
    first = world.agent()
    at_rest = command(1, IDLE, deadline=world.clock.now() + 60.0)
    await world.execute(at_rest)
    await first.kill()
    await world.clock.sleep(86_400.0)
    second = world.agent(boot="boot-2")
    await world.until(lambda: second.receiver.current == at_rest)
    assert second.receiver.command_in_effect is CommandKind.IDLE
    await second.kill()
    world.entries.clear()
    third = world.agent(boot="boot-3")
    await world.until(lambda: third.receiver.current == at_rest)
    await world.until(lambda: third.receiver.command_in_effect is CommandKind.IDLE)
    assert world.refusals() == []


@in_world
async def test_a_refused_command_withdraws_the_accepted_one(world: World) -> None:
    agent = world.agent()
    await world.execute(command(1, IDLE))
    refusal = await world.refusal_of(command(2, SWAP))
    assert refusal.code is RefusalCode.NOT_FOR_ME
    assert agent.receiver.current is None
    await world.refusal_of(command(1, IDLE, epoch=0))
    await world.slots.write(SLOT, command(3, IDLE))
    await world.until(lambda: agent.receiver.current == command(3, IDLE))
    # A deposed leader's command changes nothing.
    await world.refusal_of(command(9, IDLE, epoch=0))
    assert agent.receiver.current == command(3, IDLE)


@in_world
async def test_a_result_is_stored_before_the_next_op_starts(world: World) -> None:
    world.agent()
    await world.execute(command(1))
    world.server.lose_stream(STATE)
    await world.slots.write(SLOT, command(2))
    await world.until(lambda: len(world.ops) == 2)
    await world.slots.write(SLOT, command(3))
    await world.clock.sleep(300.0)
    assert orders(world) == [(1, 1), (1, 2)]
    await world.writer.ensure(STATE)
    await world.until(lambda: len(world.results()) == 3)
    assert [each.order.op for each in world.results()] == [1, 2, 3]


@in_world
async def test_a_long_result_is_truncated_and_reported(world: World) -> None:
    async def verbose(op: Op) -> OpFailed:
        return OpFailed("install", "x" * 600_000)

    world.agent(handlers={CommandKind.SWAP: verbose})
    for op in (1, 2):
        await world.execute(command(op, SWAP))
    assert [len(result.message) for result in world.results()] == [
        MAX_MESSAGE_LENGTH,
        MAX_MESSAGE_LENGTH,
    ]


@in_world
async def test_a_handler_that_swallows_its_cancellation_is_stopped(world: World) -> None:
    async def stubborn(op: Op) -> OpFailed:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return OpFailed("stopped", "it was stopped")

    agent = world.agent(handlers={CommandKind.QUIESCE: stubborn})
    await world.slots.write(SLOT, command(1))
    await world.clock.sleep(5.0)
    await agent.kill()
    assert [entry.phase for entry in world.entries][-1] is EntryPhase.STARTED


@in_world
async def test_a_result_is_reported_once_the_journal_is_readable(world: World) -> None:
    class Late(MemoryJournal):
        refused = False

        async def open(self) -> Sequence[Entry]:
            if not self.refused:
                self.refused = True
                raise JournalUnusable("it is not mounted yet")
            return await super().open()

    first = world.agent()
    await world.execute(command(1))
    await first.kill()
    world.server.lose_stream(STATE, remade=True)
    world.agent(journal=Late(world.entries, pause=lambda: world.clock.sleep(0.001)))
    await world.until(lambda: len(world.results()) == 2)
    assert world.results()[0] == world.results()[1]
