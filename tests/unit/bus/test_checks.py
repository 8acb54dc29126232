"""Checks are answered once each, beside any op, or refused."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from libs.bus.commands.executor import Op, OpDone
from libs.contracts import subjects
from libs.contracts.commands import (
    CHECK_VALID_SECONDS,
    Check,
    CheckBody,
    CheckKind,
    CommandKind,
    HoldersCheck,
    PreflightCheck,
)
from libs.contracts.identities import Writer
from libs.contracts.reports import Holders, Refusal, RefusalCode, StateKind
from tests.unit.bus.command_world import AGENT, BOOT, NODE, UID, World, command, in_world


def slot() -> subjects.Check:
    return subjects.Check(
        cluster="default", node=NODE, component=Writer.DRIVER, asker=Writer.SCHEDULER
    )


def check(world: World, **changes: object) -> Check:
    valid = Check.of(
        HoldersCheck(), id="id-1", node=NODE, node_uid=UID, boot_id=BOOT, now=world.clock.now()
    )
    return replace(valid, **changes)


class SlowCheckHandler:
    """A handler that records its checks and answers after a delay."""

    def __init__(self, world: World, *, seconds: float = 0.0) -> None:
        self.world = world
        self.seconds = seconds
        self.received: list[str] = []

    async def __call__(self, check: Check, body: CheckBody) -> Holders:
        assert isinstance(body, HoldersCheck)
        self.received.append(check.id)
        await self.world.clock.sleep(self.seconds)
        return Holders(check=check.id)


def answers(world: World) -> list[Holders]:
    return [body for body in world.bodies() if isinstance(body, Holders)]


@in_world
async def test_a_check_is_answered_once_to_its_asker(world: World) -> None:
    handler = SlowCheckHandler(world)
    world.agent(checks={CheckKind.HOLDERS: handler})
    await world.clock.sleep(5.0)
    first = check(world)
    await world.put(first, slot=slot())
    await world.until(lambda: len(answers(world)) == 1)
    await world.put(first, slot=slot())
    other = check(world, id="id-2")
    await world.put(other, slot=slot())
    await world.until(lambda: len(answers(world)) == 2)
    await world.clock.sleep(300.0)
    assert handler.received == ["id-1", "id-2"]


@in_world
async def test_a_check_without_its_notification_is_found_after_a_reconnect(world: World) -> None:
    handler = SlowCheckHandler(world)
    world.agent(checks={CheckKind.HOLDERS: handler})
    await world.clock.sleep(5.0)
    world.server.cut(AGENT)
    await world.put(check(world), slot=slot())
    await world.clock.sleep(20.0)
    assert handler.received == []
    world.server.restore(AGENT)
    await world.until(lambda: len(answers(world)) == 1)


@in_world
async def test_a_check_is_answered_beside_an_op(world: World) -> None:
    end = asyncio.Event()

    async def long(op: Op) -> OpDone:
        world.ops.append(op)
        await end.wait()
        return OpDone()

    handler = SlowCheckHandler(world, seconds=10.0)
    world.agent({CommandKind.QUIESCE: long}, checks={CheckKind.HOLDERS: handler})
    await world.put(command(1))
    await world.until(lambda: len(world.ops) == 1)
    await world.put(check(world), slot=slot())
    await world.until(lambda: len(answers(world)) == 1)
    assert world.results() == []
    end.set()
    await world.until(lambda: len(world.results()) == 1)


@pytest.mark.parametrize(
    ("wrong", "code", "words"),
    [
        ({"node_uid": "uid-9"}, RefusalCode.OTHER_NODE, "uid-9"),
        ({"node": "b.example"}, RefusalCode.OTHER_NODE, "b.example"),
        ({"boot_id": "boot-9"}, RefusalCode.OTHER_BOOT, "boot-9"),
        ({"kind": CheckKind("mood")}, RefusalCode.UNKNOWN_KIND, "mood"),
        ({"kind": CheckKind.PREFLIGHT}, RefusalCode.NOT_FOR_ME, "driver does not answer it"),
        ({"body": msgspec.Raw(b"7")}, RefusalCode.UNREADABLE, "HoldersCheck"),
        (
            {"expires": 1.7e9, "valid_seconds": 0.0},
            RefusalCode.EXPIRED,
            "expired before it was read",
        ),
    ],
)
@in_world
async def test_an_invalid_check_is_refused_to_its_asker(
    world: World, wrong: dict[str, object], code: RefusalCode, words: str
) -> None:
    handler = SlowCheckHandler(world)
    world.agent(checks={CheckKind.HOLDERS: handler})
    refused = await world.refusal_of(check(world, **wrong), slot=slot())
    assert (refused.code, refused.check) == (code, "id-1")
    assert words in refused.message
    assert handler.received == []
    state = subjects.State(
        cluster="default",
        node=NODE,
        component=Writer.DRIVER,
        kind=StateKind.REFUSAL,
        asker=Writer.SCHEDULER,
    )
    assert world.stored_under[-1] == str(state)


@in_world
async def test_a_malformed_check_is_refused(world: World) -> None:
    world.agent()
    refusal = await world.refusal_of(b"nonsense", slot=slot())
    assert refusal.code is RefusalCode.UNREADABLE


@in_world
async def test_a_check_that_expires_is_refused_and_the_next_is_answered(world: World) -> None:
    handler = SlowCheckHandler(world, seconds=1e6)
    world.agent(checks={CheckKind.HOLDERS: handler})
    await world.refusal_of(check(world), slot=slot())
    assert world.clock.monotonic() >= CHECK_VALID_SECONDS
    refused: Refusal = world.refusals()[0]
    assert (refused.code, refused.check) == (RefusalCode.EXPIRED, "id-1")
    handler.seconds = 1.0
    await world.put(check(world, id="id-2"), slot=slot())
    await world.until(lambda: [each.check for each in answers(world)] == ["id-2"])


@in_world
async def test_a_preflight_uses_the_slot_of_its_asker(world: World) -> None:
    received: list[CheckBody] = []

    async def preflight(check: Check, body: CheckBody) -> Holders:
        received.append(body)
        return Holders(check=check.id)

    world.agent(checks={CheckKind.PREFLIGHT: preflight})
    await world.slots.put_check(
        slot(), PreflightCheck(label="blue"), id="id-3", node_uid=UID, boot_id=BOOT
    )
    await world.until(lambda: len(answers(world)) == 1)
    assert received == [PreflightCheck(label="blue")]
