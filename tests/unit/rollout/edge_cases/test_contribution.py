"""What one node comes to where two pools have to do with it, or what is written is not whole."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Order, Quiesce
from libs.contracts.node import MANAGER, NodeRecord
from libs.contracts.reports import Usage
from libs.contracts.rollout import InFlight
from libs.rollout.reconcile.contribution import EntryResult, NodeContribution, contribution_of
from libs.rollout.views.machine import Component
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    POOL,
    TOKEN,
    command,
    done,
    ended,
    failed,
    in_flight_node,
    label_of,
    lease,
    node,
    record,
    required,
    with_record,
    without_driver,
)

PLACE = InFlight(node="node-1", token=TOKEN, target=NEW, since=NOW - 30)
NEXT = replace(PLACE, token=TOKEN + 1)


def contribution(
    given: NodeView, place: InFlight | None = PLACE, *, pool: str = POOL
) -> NodeContribution:
    return contribution_of(given, place, pool, NOW)


def of_pool(given: NodeView, pool: str) -> NodeView:
    return with_record(given, pool=pool)


# Two pools: one of them selects the node, the other one has it in its records.


@pytest.mark.parametrize("selected", [POOL, "another", ""])
@pytest.mark.parametrize("more", [0, 1])
def test_a_record_of_another_pool_ends_no_later_entry_of_this_pool(
    selected: str, more: int
) -> None:
    given = replace(of_pool(required(), "another"), pool=selected)
    assert isinstance(given.record, NodeRecord)
    place = replace(PLACE, token=given.record.token + more)
    made = contribution(given, place)
    comes = selected == POOL and more > 0
    assert (made.entry, made.ending) == ((place, None) if comes else (None, EntryResult.REMOVED))
    assert made.counted_targets == ((place.target,) if comes else ())


@pytest.mark.parametrize("given", [done(), required(), failed(), in_flight_node()])
@pytest.mark.parametrize("selected", [POOL, "another", ""])
def test_an_entry_of_a_node_upgraded_by_another_pool_is_removed(
    given: NodeView, selected: str
) -> None:
    made = contribution(replace(of_pool(given, "another"), pool=selected))
    assert (made.ending, made.entry) == (EntryResult.REMOVED, None)
    assert (made.was_managed, made.leased, made.failed_on, made.proved_on) == (False, False, "", "")
    assert made.present is (selected == POOL)


@pytest.mark.parametrize(
    ("given", "ending"), [(done(), EntryResult.VALIDATED), (failed(), EntryResult.FAILED)]
)
def test_a_record_without_a_pool_belongs_to_the_pool_of_its_entry(
    given: NodeView, ending: EntryResult
) -> None:
    assert contribution(of_pool(given, "")).ending is ending


def test_a_node_that_left_in_an_upgrade_stays_in_flight_in_its_old_pool() -> None:
    left = replace(in_flight_node(), pool="another")
    made = contribution(left, None)
    assert (made.present, made.leased, made.was_managed) == (False, True, True)
    assert made.entry == InFlight(node="node-1", token=TOKEN, target=NEW, since=NOW - 60)
    assert made.unavailable == "in an upgrade"
    there = contribution(left, None, pool="another")
    assert (there.present, there.leased, there.was_managed, there.entry) == (
        True,
        False,
        False,
        None,
    )


def test_a_node_that_left_after_its_upgrade_is_no_member() -> None:
    made = contribution(done(pool="another"))
    assert (made.present, made.counts_for_base, made.ending) == (
        False,
        False,
        EntryResult.VALIDATED,
    )
    cordoned = contribution(required(pool="another", cordoned=True), NEXT)
    assert (cordoned.unavailable, cordoned.ending) == ("", None)


@pytest.mark.parametrize(
    ("given", "entered"),
    [(done(), True), (required(), True), (node(), False), (node(record=record()), False)],
)
def test_the_base_counts_nodes_that_were_done_in_this_pool(
    given: NodeView, *, entered: bool
) -> None:
    assert contribution(given, None).counts_for_base is entered


# A place that has not begun.


@pytest.mark.parametrize(
    ("given", "bare"),
    [
        (without_driver(node()), True),
        (node(modules_reported=False), False),
        (node(modules_reported=False, usage=Usage()), False),
        (done(record=None), False),
        (without_driver(done()), False),
    ],
)
def test_a_node_is_unoccupied_only_when_it_surely_runs_nothing(
    given: NodeView, *, bare: bool
) -> None:
    assert contribution(given, NEXT).is_unoccupied is bare


@pytest.mark.parametrize(
    ("changes", "counted"), [({}, (NEW,)), ({"target": ""}, ()), ({"outside": True}, ())]
)
def test_an_entry_counts_for_its_target(changes: dict[str, Any], counted: tuple[str, ...]) -> None:
    given = required(driver_label=label_of(OLD))
    assert contribution(given, replace(NEXT, **changes)).counted_targets == counted


# What a node and its machine say of themselves.


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (node(), False),
        (node(lease=lease()), True),
        (node(lease=MalformedAnnotation("{")), True),
        (node(field_managers={NodeField.CORDON: (MANAGER,)}), True),
        (
            node(
                field_managers={
                    NodeField.STATE: ("gpu-operator",),
                    NodeField.DRIVER: ("kubectl", MANAGER),
                }
            ),
            True,
        ),
        (node(state="upgrade-done", field_managers={NodeField.STATE: ("gpu-operator",)}), False),
        (node(field_managers={NodeField.STATE: ()}), False),
    ],
)
def test_a_lease_or_any_owned_field_marks_a_managed_node(given: NodeView, *, ours: bool) -> None:
    assert given.is_managed is ours


def test_a_component_returns_the_result_of_one_op_only() -> None:
    told = command(Quiesce(), order=(TOKEN, 2))
    part = Component(slot=told, result=ended(told))
    assert part.result_of(Order(TOKEN, 2)) == ended(told)
    assert (part.result_of(Order(TOKEN, 1)), part.result_of(Order(TOKEN + 1, 2))) == (None, None)
    assert Component(slot=told).result_of(told.order) is None
