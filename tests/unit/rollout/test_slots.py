"""Slots: growing orders, lapsed ops, and the epoch of a new leader."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from libs.contracts.commands import Command, CommandKind, Idle, Order, Proven, Quiesce, Swap
from libs.contracts.node import LeaseOwner, NodeLease, UpgradeState
from libs.contracts.numbers import LIMIT
from libs.contracts.reports import Refusal, RefusalCode
from libs.rollout import slots
from libs.rollout.decision import Step, WriteSlot
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import (
    BOOT,
    COMPONENTS,
    EPOCH,
    KERNEL,
    NEW,
    NOW,
    OLD,
    TOKEN,
    apply_step,
    command,
    component,
    done,
    ended,
    evidence,
    failed,
    instant,
    lease,
    node,
    pool,
    proven_of,
    required,
    step_at_rest,
    with_record,
)
from tests.unit.rollout.outcomes import only_action, step_of

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
        ((8, 2), (8, LIMIT), 3),
    ],
)
def test_an_op_is_one_above_slot_and_reports_of_its_token(
    slot: tuple[int, int] | None, highest: tuple[int, int], op: int
) -> None:
    slot_command = None if slot is None else command(Idle(), order=slot)
    part = component(slot_command, highest_order=Order(*highest))
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
    live = slots.live_command(view, "plugin", 8, instant(at), CommandKind.QUIESCE)
    assert live == (None if lapsed else QUIESCE)


def test_a_held_command_is_found_by_token_and_kind() -> None:
    view = replace(node(), components={"plugin": component(QUIESCE), "driver": component()})
    assert slots.held_command(view, "plugin", 8) == QUIESCE
    assert slots.held_command(view, "plugin", 8, CommandKind.IDLE, CommandKind.QUIESCE) == QUIESCE
    assert slots.held_command(view, "plugin", 8, CommandKind.IDLE) is None
    assert slots.held_command(view, "plugin", 7) is None
    assert slots.held_command(view, "driver", 8) is None
    assert slots.held_command(view, "telemetry", 8) is None


def test_a_command_for_an_earlier_node_is_ignored() -> None:
    foreign_command = replace(QUIESCE, node_uid="of-another-node", epoch=1)
    view = replace(node(), components={"plugin": component(foreign_command)})
    assert slots.held_command(view, "plugin", 8) is None
    assert slots.renewed_epochs(view, instant(epoch=3)) == ()
    own_node = replace(node(), components={"plugin": component(replace(QUIESCE, epoch=1))})
    assert [write.component for write in slots.renewed_epochs(own_node, instant(epoch=3))] == [
        "plugin"
    ]


def test_a_slot_result_belongs_to_one_op() -> None:
    other = command(Quiesce(), order=(8, 1))
    view = replace(node(), components={"plugin": component(QUIESCE, result=ended(other))})
    assert slots.slot_result(view, "plugin", QUIESCE) is None
    assert slots.slot_result(view, "plugin", None) is None
    assert slots.slot_result(view, "plugin", other) == ended(other)
    assert slots.slot_result(view, "plugin", command(Quiesce(), order=(7, 1))) is None


def test_a_refusal_is_quoted_for_its_own_op_only() -> None:
    part = component(QUIESCE, refusal=refused(RefusalCode.JOURNAL))
    assert slots.refusal_text(part, QUIESCE).endswith("(command quiesce 8.2): too late")
    assert slots.refusal_text(part, command(Quiesce(), order=(8, 3))) == ""
    assert slots.refusal_text(part, None) == ""


# Slots of nodes at rest: idle, with the proven label (docs/states.md#gate-3).


def with_slot(node: NodeView, name: str, slot: Command | None, **changes: object) -> NodeView:
    part = replace(component(slot), **changes)
    return replace(node, components={**node.components, name: part})


def sent(step: object) -> dict[str, Idle]:
    assert isinstance(step, Step)
    assert all(isinstance(action, WriteSlot) for action in step.actions)
    text: dict[str, Idle] = {}
    for action in step.actions:
        assert isinstance(action, WriteSlot)
        body = action.command.open()
        assert isinstance(body, Idle)
        text[action.component] = body
    return text


PROVEN = Idle(proven=proven_of(NEW))

BAD = {
    "gone": ("driver", None),
    "a swap": ("driver", command(Swap(label="x"))),
    "nothing proven": ("driver", command(Idle())),
    "another label proven": ("validator", command(Idle(proven=Proven(label="x", kernel=KERNEL)))),
    "another kernel proven": (
        "driver",
        command(Idle(proven=proven_of(NEW, kernel="5"))),
    ),
    "another installation proven": (
        "driver",
        command(Idle(proven=replace(proven_of(NEW), install_digest="x"))),
    ),
    "a quiesce": ("plugin", command(Quiesce())),
    "something proven": ("telemetry", command(PROVEN)),
    "of an earlier node": ("discovery", command(Idle(), node="earlier")),
}


@pytest.mark.parametrize("case", BAD)
def test_a_slot_with_other_contents_is_rewritten(case: str) -> None:
    name, slot = BAD[case]
    node = with_slot(done(), name, slot)
    step = step_at_rest(node)
    assert sent(step) == {name: PROVEN if name in {"driver", "validator"} else Idle()}
    assert isinstance(step, Step)
    assert step_at_rest(apply_step(node, step)) is None
    single_component = replace(done(), components={name: component(slot)})
    assert list(sent(step_at_rest(single_component))) == [name]


def test_slots_below_the_highest_order_are_rewritten() -> None:
    parts = done().components
    higher = {
        name: replace(part, highest_order=Order(TOKEN + 1, 1)) for name, part in parts.items()
    }
    assert sent(step_at_rest(done(components=higher))).keys() == parts.keys()


def test_a_rewritten_slot_gets_the_next_order() -> None:
    node = with_slot(
        done(), "driver", command(Swap(label="x"), order=(TOKEN, 4)), highest_order=Order(TOKEN, 6)
    )
    action = only_action(step_of(step_at_rest(node, pool(), instant(epoch=9))), WriteSlot)
    assert (action.command.order, action.command.epoch) == (Order(TOKEN, 7), 9)


def test_an_outdated_idle_gets_a_new_order() -> None:
    node = with_slot(done(), "plugin", command(Idle()), highest_order=Order(TOKEN + 2, 5))
    action = only_action(step_of(step_at_rest(node)), WriteSlot)
    assert action.command.order == Order(TOKEN + 2, 6)


def test_a_slot_that_differs_in_encoding_only_is_left_alone() -> None:
    slot = command(PROVEN)
    spaced = msgspec.json.format(bytes(slot.body), indent=1)
    node = with_slot(done(), "driver", replace(slot, body=msgspec.Raw(spaced)))
    assert step_at_rest(node) is None


def test_slots_name_the_proven_label_only_where_it_is_proven() -> None:
    halted_pool = pool(constraints={"halted": {NEW: "1 of 1 failures"}})
    no_slots = {name: component() for name in COMPONENTS}
    assert set(sent(step_at_rest(failed(components=no_slots), halted_pool)).values()) == {Idle()}
    idles = sent(step_at_rest(required(components=no_slots)))
    runs = Idle(proven=proven_of(OLD))
    assert idles == {
        name: runs if name in {"driver", "validator"} else Idle() for name in COMPONENTS
    }


def test_a_new_epoch_alone_rewrites_no_idle_slot() -> None:
    assert step_at_rest(done(), pool(), instant(epoch=99)) is None


def test_a_node_that_was_never_ours_has_only_its_commands_ended() -> None:
    quiet = with_slot(node(), "driver", command(Idle()))
    assert not isinstance(step_at_rest(quiet), Step)
    told_to = with_slot(node(), "plugin", command(Quiesce(), order=(2, 1)))
    assert sent(step_at_rest(told_to)) == {"plugin": Idle()}


@pytest.mark.parametrize("owner", [LeaseOwner.REPAIR, LeaseOwner.MIG])
def test_slots_under_a_foreign_lease_are_left_alone(owner: LeaseOwner) -> None:
    held: NodeLease = lease(owner=owner)
    node = with_slot(done(lease=held), "driver", command(Swap(label="x")))
    assert step_at_rest(node) is None


def test_idle_is_sent_to_a_node_that_a_person_has_unless_its_operation_was_cut_off() -> None:
    held = lease(owner=LeaseOwner.HUMAN)
    node = with_slot(done(lease=held), "driver", command(Swap(label="x")))
    assert isinstance(sent(step_at_rest(node))["driver"], Idle)
    waiting = with_slot(required(lease=held), "plugin", command(Quiesce(), order=(2, 1)))
    assert sent(step_at_rest(waiting)) == {"plugin": Idle()}
    cut_off = with_record(node, state=UpgradeState.POD_RESTART_REQUIRED)
    assert not isinstance(step_at_rest(cut_off), Step)


def test_no_slot_is_written_during_a_bus_outage() -> None:
    node = with_slot(done(), "driver", None)
    assert step_at_rest(node, pool(), instant(bus_down_since=NOW - 5)) is None


# The configuration of the device plugin, as the label of the node names it.


def test_the_plugin_alone_is_told_its_configuration() -> None:
    labelled = replace(done(), plugin_config="shared")
    step = step_of(step_at_rest(labelled))
    assert sent(step) == {"plugin": Idle(config="shared")}
    told = apply_step(labelled, step)
    assert step_at_rest(told) is None
    back = step_of(step_at_rest(replace(told, plugin_config="")))
    assert sent(back) == {"plugin": Idle()}
    only_action(back, WriteSlot)
    unlabelled = required(components={name: component() for name in COMPONENTS})
    idles = sent(step_at_rest(replace(unlabelled, plugin_config="shared")))
    assert {name for name, body in idles.items() if body.config} == {"plugin"}


def test_what_is_proven_names_the_installation_also_without_a_driver_pod() -> None:
    proven = evidence(NEW, driver_pod_uid="", driver_digest="i-1")
    assert slots.proven_by(proven).install_digest == "i-1"
    assert slots.proven_by(replace(proven, driver_digest="none")).install_digest == ""
