"""Refusals of commands."""

from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from libs.bus.commands.executor import Op, OpDone
from libs.bus.journal import JournalContent, JournalUnusable
from libs.contracts.commands import Command, CommandKind
from libs.contracts.journal import Entry, EntryPhase
from libs.contracts.message import encode
from libs.contracts.reports import Outcome, RefusalCode
from tests.unit.bus.command_world import IDLE, SWAP, World, command, every_kind, in_world

CASES = {
    "other node": (command(9, epoch=5, uid="uid-9"), RefusalCode.OTHER_NODE, "uid-9"),
    "another node's name": (
        replace(command(9, epoch=5), node="b.example"),
        RefusalCode.OTHER_NODE,
        "the command is for node b.example",
    ),
    "another node's name for the op that ended": (
        replace(command(4, epoch=5, token=3), node="b.example"),
        RefusalCode.OTHER_NODE,
        "the command is for node b.example",
    ),
    "older epoch": (command(9, epoch=4), RefusalCode.OLDER_EPOCH, "newer leader (epoch 5)"),
    "older epoch for another node": (
        command(9, epoch=4, uid="uid-9"),
        RefusalCode.OLDER_EPOCH,
        "epoch 5",
    ),
    "older token": (command(9, epoch=5, token=2), RefusalCode.OLDER_TOKEN, "has seen token 3"),
    "older op": (command(3, epoch=5, token=3), RefusalCode.OLDER_OP, "has seen 3.4"),
    "the same order for something else": (
        command(4, IDLE, epoch=6, token=3),
        RefusalCode.OLDER_OP,
        "3.4 was started as a different quiesce",
    ),
    "other boot": (
        command(5, epoch=5, token=3, boot="boot-9"),
        RefusalCode.OTHER_BOOT,
        "boot boot-9",
    ),
    "not for this component": (
        command(5, SWAP, epoch=5, token=3),
        RefusalCode.NOT_FOR_ME,
        "driver supports only quiesce, idle",
    ),
    "unknown kind": (
        replace(command(5, epoch=5, token=3), kind=CommandKind("polish")),
        RefusalCode.UNKNOWN_KIND,
        "upgrade the agent",
    ),
    "unreadable body": (
        replace(command(5, IDLE, epoch=5, token=3), body=msgspec.Raw(b'{"proven":7}')),
        RefusalCode.UNREADABLE,
        "proven",
    ),
    "expired": (
        command(5, epoch=5, token=3, deadline=1.7e9),
        RefusalCode.EXPIRED,
        "not started before its deadline",
    ),
}


@pytest.mark.parametrize("case", CASES)
@in_world
async def test_an_inadmissible_command_is_refused_once_and_journalled(
    world: World, case: str
) -> None:
    invalid, code, text = CASES[case]

    agent = world.agent()
    await world.put(command(4, epoch=5, token=3))
    await world.until(lambda: len(world.results()) == 1)
    await world.refusal_of(invalid)
    await world.clock.sleep(300.0)
    (refused,) = world.refusals()
    assert (refused.code, refused.epoch, refused.order) == (code, invalid.epoch, invalid.order)
    assert refused.command == invalid.kind
    assert text in refused.message
    assert len(world.ops) == 1
    last = world.entries[-1]
    assert last.phase is EntryPhase.REFUSED
    assert last.detail.startswith(f"{code}: ")
    # The token and op of another node's command do not count as seen.
    await world.put(command(6, epoch=6, token=3))
    await world.until(lambda: len(world.results()) == 2)
    assert (agent.receiver.seen.epoch, agent.receiver.seen.order) == (6, (3, 6))


@in_world
async def test_a_malformed_slot_is_refused_each_time_it_is_written(world: World) -> None:
    world.agent()
    for content in (b"nonsense", b'{"v":2}', b'{"v":2}'):
        await world.refusal_of(content)
    await world.clock.sleep(300.0)
    assert [each.code for each in world.refusals()] == [RefusalCode.UNREADABLE] * 3
    assert "version 2; this process reads version 1" in world.refusals()[-1].message


@in_world
async def test_a_restarted_agent_refuses_the_same_commands(world: World) -> None:
    first = world.agent()
    await world.refusal_of(command(4, epoch=5, token=3, boot="boot-9"))
    await first.kill()
    await world.put(command(9, epoch=5, token=2))
    second = world.agent()
    await world.until(lambda: len(world.refusals()) == 2)
    assert world.refusals()[1].code is RefusalCode.OLDER_TOKEN
    assert (second.receiver.seen.epoch, second.receiver.seen.order) == (5, (3, 4))
    await second.kill()
    await world.put(command(9, epoch=4, token=7))
    third = world.agent()
    await world.until(lambda: len(world.refusals()) == 3)
    assert world.refusals()[2].code is RefusalCode.OLDER_EPOCH
    assert (third.receiver.seen.epoch, third.receiver.seen.order) == (5, (3, 4))


@in_world
async def test_a_refused_newer_command_supersedes_the_running_op(world: World) -> None:
    world.agent(every_kind(world.unload))
    await world.put(command(1, SWAP))
    await world.until(lambda: len(world.entries) == 2)
    await world.put(command(2, uid="uid-2"))
    await world.until(lambda: len(world.results()) == 1)
    assert world.results()[0].outcome is Outcome.SUPERSEDED
    assert "uid-2" in world.results()[0].message
    assert world.ops == []


@in_world
async def test_a_deposed_leaders_command_only_pauses_the_running_op(world: World) -> None:
    world.agent(every_kind(world.unload))
    wanted = command(1, SWAP, epoch=2)
    await world.put(wanted)
    await world.until(lambda: len(world.entries) == 2)
    await world.put(command(7, epoch=1))
    await world.clock.sleep(60.0)
    assert world.ops == []
    await world.put(wanted)
    await world.until(lambda: len(world.results()) == 1)
    assert world.results()[0].outcome is Outcome.DONE


class BrokenJournal:
    """A journal of a newer release, or on a full disk, until it is repaired."""

    def __init__(self, entries: list[Entry], *, opens: bool) -> None:
        self.entries = entries
        self.opens = opens
        self.repaired = False

    async def open(self) -> Sequence[Entry]:
        if not self.repaired and not self.opens:
            raise JournalUnusable("journal j is of version 2: run the release that wrote it")
        return tuple(self.entries)

    async def append(self, entry: Entry) -> None:
        if not self.repaired:
            raise JournalUnusable("journal j cannot be written (disk full)")
        self.entries.append(entry)

    async def read(self) -> JournalContent:
        return JournalContent(await self.open(), None)


@pytest.mark.parametrize("opens", [False, True])
@in_world
async def test_every_command_is_refused_while_the_journal_is_unusable(
    world: World, opens: bool
) -> None:
    broken = BrokenJournal(world.entries, opens=opens)
    agent = world.agent(journal=broken)
    refused = await world.refusal_of(command(1))
    assert (refused.code, refused.order) == (RefusalCode.JOURNAL, (1, 1))
    assert "journal j" in refused.message
    assert "journal j" in agent.receiver.last_error
    assert agent.receiver.current is None
    assert world.ops == []
    broken.repaired = True
    await world.until(lambda: len(world.results()) == 1)
    assert agent.receiver.last_error == ""


@in_world
async def test_a_result_is_reported_only_after_it_is_journalled(world: World) -> None:
    broken = BrokenJournal(world.entries, opens=True)
    broken.repaired = True

    async def breaks(op: Op) -> OpDone:
        broken.repaired = False
        return OpDone()

    world.agent(every_kind(breaks), journal=broken)
    await world.put(command(1))
    await world.until(lambda: any("disk full" in encode(each).decode() for each in world.reports))
    await world.clock.sleep(300.0)
    assert world.results() == []
    broken.repaired = True
    await world.until(lambda: len(world.results()) == 1)
    assert world.entries[-1].result == world.results()[0]


def test_the_cases_cover_every_refusal_code() -> None:
    covered = {code for _, code, _ in CASES.values()} | {RefusalCode.JOURNAL}
    assert covered == set(RefusalCode)


@in_world
async def test_a_refusal_is_repeated_after_another_refusal(world: World) -> None:
    world.agent()
    first: Command = command(1, uid="uid-8")
    second: Command = command(1, uid="uid-9", epoch=1, token=2)
    for invalid in (first, second, first):
        await world.refusal_of(invalid)
    assert "uid-8" in world.refusals()[-1].message
