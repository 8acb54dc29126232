"""Slots of nodes at rest: idle, with the proven label (docs/states.md#gate-3)."""

import msgspec
import pytest
from msgspec.structs import replace

from libs.contracts.commands import Command, Idle, Order, Proven, Quiesce, Swap
from libs.contracts.node import LeaseOwner, NodeLease
from libs.rollout.at_rest import step_at_rest
from libs.rollout.decision import Step, WriteSlot
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import (
    COMPONENTS,
    KERNEL,
    NEW,
    NOW,
    OLD,
    TOKEN,
    apply_step,
    command,
    component,
    done,
    failed,
    instant,
    label_of,
    lease,
    node,
    pool,
    required,
)
from tests.unit.rollout.outcomes import only_action, step_of


def with_slot(node: NodeView, name: str, slot: Command | None, **changes: object) -> NodeView:
    held = replace(component(slot), **changes)
    return replace(node, components={**node.components, name: held})


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


PROVEN = Idle(proven=Proven(label=label_of(NEW), kernel=KERNEL))

BAD = {
    "gone": ("driver", None),
    "a swap": ("driver", command(Swap(label="x"))),
    "nothing proven": ("driver", command(Idle())),
    "another label proven": ("validator", command(Idle(proven=Proven(label="x", kernel=KERNEL)))),
    "another kernel proven": (
        "driver",
        command(Idle(proven=Proven(label=label_of(NEW), kernel="5"))),
    ),
    "a quiesce": ("plugin", command(Quiesce())),
    "something proven": ("telemetry", command(PROVEN)),
    "of an earlier node": ("discovery", command(Idle(), node="earlier")),
}


@pytest.mark.parametrize("case", BAD)
def test_a_slot_with_other_contents_is_rewritten(case: str) -> None:
    name, slot = BAD[case]
    node = with_slot(done(), name, slot)
    step = step_at_rest(node, pool(), instant())
    assert sent(step) == {name: PROVEN if name in {"driver", "validator"} else Idle()}
    assert isinstance(step, Step)
    assert step_at_rest(apply_step(node, step), pool(), instant()) is None
    alone = replace(done(), components={name: component(slot)})
    assert list(sent(step_at_rest(alone, pool(), instant()))) == [name]


def test_slots_below_the_highest_order_are_rewritten() -> None:
    parts = done().components
    higher = {
        name: replace(part, highest_order=Order(TOKEN + 1, 1)) for name, part in parts.items()
    }
    assert sent(step_at_rest(done(components=higher), pool(), instant())).keys() == parts.keys()


def test_a_rewritten_slot_gets_the_next_order() -> None:
    node = with_slot(
        done(), "driver", command(Swap(label="x"), order=(TOKEN, 4)), highest_order=Order(TOKEN, 6)
    )
    action = only_action(step_of(step_at_rest(node, pool(), instant(epoch=9))), WriteSlot)
    assert (action.command.order, action.command.epoch) == (Order(TOKEN, 7), 9)


def test_an_outdated_idle_gets_a_new_order() -> None:
    node = with_slot(done(), "plugin", command(Idle()), highest_order=Order(TOKEN + 2, 5))
    action = only_action(step_of(step_at_rest(node, pool(), instant())), WriteSlot)
    assert action.command.order == Order(TOKEN + 2, 6)


def test_a_slot_that_differs_in_encoding_only_is_left_alone() -> None:
    slot = command(PROVEN)
    spaced = msgspec.json.format(bytes(slot.body), indent=1)
    node = with_slot(done(), "driver", replace(slot, body=msgspec.Raw(spaced)))
    assert step_at_rest(node, pool(), instant()) is None


def test_slots_name_the_proven_label_only_where_it_is_proven() -> None:
    shut = pool(standing={"halted": {NEW: "1 of 1 failures"}})
    no_slots = {name: component() for name in COMPONENTS}
    assert set(sent(step_at_rest(failed(components=no_slots), shut, instant())).values()) == {
        Idle()
    }
    idles = sent(step_at_rest(required(components=no_slots), pool(), instant()))
    runs = Idle(proven=Proven(label=label_of(OLD), kernel=KERNEL))
    assert idles == {
        name: runs if name in {"driver", "validator"} else Idle() for name in COMPONENTS
    }


def test_a_new_epoch_alone_rewrites_no_idle_slot() -> None:
    assert step_at_rest(done(), pool(), instant(epoch=99)) is None


def test_a_node_that_was_never_ours_has_only_its_commands_ended() -> None:
    quiet = with_slot(node(), "driver", command(Idle()))
    assert not isinstance(step_at_rest(quiet, pool(), instant()), Step)
    told_to = with_slot(node(), "plugin", command(Quiesce(), order=(2, 1)))
    assert sent(step_at_rest(told_to, pool(), instant())) == {"plugin": Idle()}


@pytest.mark.parametrize("owner", [LeaseOwner.HUMAN, LeaseOwner.REPAIR, LeaseOwner.MIG])
def test_slots_under_a_foreign_lease_are_left_alone(owner: LeaseOwner) -> None:
    held: NodeLease = lease(owner=owner)
    node = with_slot(done(lease=held), "driver", command(Swap(label="x")))
    assert step_at_rest(node, pool(), instant()) is None


def test_no_slot_is_written_during_a_bus_outage() -> None:
    node = with_slot(done(), "driver", None)
    assert step_at_rest(node, pool(), instant(bus_down_since=NOW - 5)) is None
