"""Slots: growing orders, lapsed ops, and the epoch of a new leader."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import CommandKind, Idle, Order, Proven, Quiesce
from libs.contracts.reports import Refusal, RefusalCode
from libs.rollout import slots
from tests.unit.rollout.builders import BOOT, EPOCH, NOW, command, component, ended, instant, node

LATE = NOW + 5000


@pytest.mark.parametrize(
    ("slot", "highest", "op"),
    [
        (None, (0, 0), 1),
        ((7, 9), (7, 9), 1),
        ((8, 2), (8, 2), 3),
        ((8, 2), (8, 6), 7),
        ((7, 9), (8, 4), 5),
        (None, (9, 9), 1),
    ],
)
def test_an_op_is_one_above_slot_and_reports_of_its_token(
    slot: tuple[int, int] | None, highest: tuple[int, int], op: int
) -> None:
    held = None if slot is None else command(Idle(), order=slot)
    part = component(held, highest_order=Order(*highest))
    assert slots.next_order(part, 8) == Order(8, op)


def test_a_command_is_addressed_to_one_boot_of_one_node() -> None:
    write = slots.new_command(node(), "plugin", Quiesce(), instant(), token=8, deadline=LATE)
    sent = write.command
    assert (write.component, sent.kind, sent.open()) == ("plugin", CommandKind.QUIESCE, Quiesce())
    assert (sent.node, sent.node_uid, sent.boot_id) == ("node-1", "uid-node-1", BOOT)
    assert (sent.epoch, sent.order, sent.deadline) == (EPOCH, Order(8, 1), LATE)


def test_an_idle_command_does_not_expire() -> None:
    proven = Proven(label="l", kernel="k")
    write = slots.idle_command(node(), "driver", instant(), token=8, proven=proven)
    assert write.command.open() == Idle(proven=proven)
    assert write.command.deadline > NOW + 9 * 365 * 86400


def test_a_new_leader_renews_commands_of_earlier_epochs_only() -> None:
    view = node()
    old, own = command(Quiesce(), epoch=2), command(Idle(), epoch=3)
    parts = {"plugin": component(old), "driver": component(own), "telemetry": component()}
    view = replace(view, components=parts)
    (write,) = slots.renewed_epochs(view, instant(epoch=3))
    assert (write.component, write.command) == ("plugin", replace(old, epoch=3))


QUIESCE = command(Quiesce(), order=(8, 2), deadline=NOW + 100)


def refused(code: RefusalCode, op: int = 2) -> Refusal:
    return Refusal(code=code, message="too late", token=8, op=op)


@pytest.mark.parametrize(
    ("changes", "at", "lapsed"),
    [
        ({}, NOW, False),
        ({}, LATE, False),
        ({"result": ended(QUIESCE)}, NOW, False),
        ({"result": ended(QUIESCE, "failed")}, NOW, False),
        ({"result": ended(QUIESCE, "superseded")}, NOW, True),
        ({"result": ended(QUIESCE), "highest_order": Order(8, 9)}, NOW, False),
        ({"highest_order": Order(8, 3)}, NOW, True),
        ({"highest_order": Order(9, 1)}, NOW, False),
        ({"refusal": refused(RefusalCode.EXPIRED)}, NOW + 99, False),
        ({"refusal": refused(RefusalCode.EXPIRED)}, NOW + 100, True),
        ({"refusal": refused(RefusalCode.EXPIRED, op=1)}, NOW + 100, False),
        ({"refusal": refused(RefusalCode.OTHER_BOOT)}, NOW + 100, False),
    ],
)
def test_which_ops_have_lapsed(changes: dict[str, Any], at: float, lapsed: bool) -> None:
    part = component(QUIESCE, **changes)
    assert slots.is_lapsed(part, QUIESCE, instant(at)) == lapsed
    view = replace(node(), components={"plugin": part})
    held = slots.live_command(view, "plugin", 8, instant(at), CommandKind.QUIESCE)
    assert held == (None if lapsed else QUIESCE)


def test_a_held_command_is_found_by_token_and_kind() -> None:
    view = replace(node(), components={"plugin": component(QUIESCE), "driver": component()})
    assert slots.held_command(view, "plugin", 8) == QUIESCE
    assert slots.held_command(view, "plugin", 8, CommandKind.IDLE, CommandKind.QUIESCE) == QUIESCE
    assert slots.held_command(view, "plugin", 8, CommandKind.IDLE) is None
    assert slots.held_command(view, "plugin", 7) is None
    assert slots.held_command(view, "driver", 8) is None
    assert slots.held_command(view, "telemetry", 8) is None


def test_a_command_for_an_earlier_node_is_ignored() -> None:
    theirs = replace(QUIESCE, node_uid="of-another-node", epoch=1)
    view = replace(node(), components={"plugin": component(theirs)})
    assert slots.held_command(view, "plugin", 8) is None
    assert slots.renewed_epochs(view, instant(epoch=3)) == ()
    mine = replace(node(), components={"plugin": component(replace(QUIESCE, epoch=1))})
    assert [write.component for write in slots.renewed_epochs(mine, instant(epoch=3))] == ["plugin"]


def test_a_slot_result_belongs_to_one_op() -> None:
    other = command(Quiesce(), order=(8, 1))
    view = replace(node(), components={"plugin": component(QUIESCE, result=ended(other))})
    assert slots.slot_result(view, "plugin", QUIESCE) is None
    assert slots.slot_result(view, "plugin", None) is None
    assert slots.slot_result(view, "plugin", other) == ended(other)
    assert slots.slot_result(view, "plugin", command(Quiesce(), order=(7, 1))) is None


def test_a_refusal_is_quoted_for_its_own_op_only() -> None:
    part = component(QUIESCE, refusal=refused(RefusalCode.JOURNAL))
    assert slots.refusal_text(part, QUIESCE).endswith("refused quiesce 8.2: too late")
    assert slots.refusal_text(part, command(Quiesce(), order=(8, 3))) == ""
    assert slots.refusal_text(part, None) == ""
