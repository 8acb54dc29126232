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
    without_driver,
)

PLACE = InFlight(node="node-1", token=TOKEN, target=NEW, since=NOW - 30)
NEXT = replace(PLACE, token=TOKEN + 1)


def borne(given: NodeView, place: InFlight | None = PLACE, *, pool: str = POOL) -> NodeContribution:
    return contribution_of(given, place, pool, NOW)


def of_pool(given: NodeView, pool: str) -> NodeView:
    """The node, with its record made in this pool."""
    assert isinstance(given.record, NodeRecord)
    return replace(given, record=replace(given.record, pool=pool))


# Two pools: one of them selects the node, the other one has it in its records.


@pytest.mark.parametrize("selected", [POOL, "another", ""])
@pytest.mark.parametrize("more", [0, 1])
def test_a_record_that_was_made_in_another_pool_ends_no_place_that_was_given_here_after_it(
    selected: str, more: int
) -> None:
    given = replace(of_pool(required(), "another"), pool=selected)
    assert isinstance(given.record, NodeRecord)
    place = replace(PLACE, token=given.record.token + more)
    made = borne(given, place)
    comes = selected == POOL and more > 0
    assert (made.entry, made.ending) == ((place, None) if comes else (None, EntryResult.REMOVED))
    assert made.counted_targets == ((place.target,) if comes else ())


@pytest.mark.parametrize("given", [done(), required(), failed(), in_flight_node()])
@pytest.mark.parametrize("selected", [POOL, "another", ""])
def test_a_place_of_who_was_begun_in_another_pool_returns(given: NodeView, selected: str) -> None:
    made = borne(replace(of_pool(given, "another"), pool=selected))
    assert (made.ending, made.entry) == (EntryResult.REMOVED, None)
    assert (made.was_managed, made.leased, made.failed_on, made.proved_on) == (False, False, "", "")
    assert made.present is (selected == POOL)


@pytest.mark.parametrize(
    ("given", "ending"), [(done(), EntryResult.VALIDATED), (failed(), EntryResult.FAILED)]
)
def test_a_record_that_names_no_pool_is_at_home_where_it_has_its_place(
    given: NodeView, ending: EntryResult
) -> None:
    assert borne(of_pool(given, "")).ending is ending


def test_who_left_its_pool_in_an_upgrade_stays_in_flight_there_though_its_place_is_lost() -> None:
    left = replace(in_flight_node(), pool="another")
    made = borne(left, None)
    assert (made.present, made.leased, made.was_managed) == (False, True, True)
    assert made.entry == InFlight(node="node-1", token=TOKEN, target=NEW, since=NOW - 60)
    assert made.unavailable == "in an upgrade"
    there = borne(left, None, pool="another")
    assert (there.present, there.leased, there.was_managed, there.entry) == (
        True,
        False,
        False,
        None,
    )


def test_who_left_its_pool_after_an_upgrade_is_no_more_of_its_nodes() -> None:
    made = borne(done(pool="another"))
    assert (made.present, made.counts_for_base, made.ending) == (
        False,
        False,
        EntryResult.VALIDATED,
    )
    cordoned = borne(required(pool="another", cordoned=True), NEXT)
    assert (cordoned.unavailable, cordoned.ending) == ("", None)


@pytest.mark.parametrize(
    ("given", "entered"),
    [(done(), True), (required(), True), (node(), False), (node(record=record()), False)],
)
def test_for_the_base_counts_who_was_done_here_before(given: NodeView, *, entered: bool) -> None:
    assert borne(given, None).counts_for_base is entered


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
def test_only_where_surely_nothing_runs_is_nothing_taken_away(
    given: NodeView, *, bare: bool
) -> None:
    assert borne(given, NEXT).is_unoccupied is bare


@pytest.mark.parametrize(
    ("changes", "counted"), [({}, (NEW,)), ({"target": ""}, ()), ({"outside": True}, ())]
)
def test_a_place_counts_for_its_target_if_it_has_one(
    changes: dict[str, Any], counted: tuple[str, ...]
) -> None:
    given = required(driver_label=label_of(OLD))
    assert borne(given, replace(NEXT, **changes)).counted_targets == counted


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
def test_a_node_bears_our_sign_by_a_lease_or_by_anything_that_we_own(
    given: NodeView, *, ours: bool
) -> None:
    assert given.is_managed is ours


def test_a_component_says_how_an_op_ended_of_that_op_only() -> None:
    told = command(Quiesce(), order=(TOKEN, 2))
    part = Component(slot=told, result=ended(told))
    assert part.result_of(Order(TOKEN, 2)) == ended(told)
    assert (part.result_of(Order(TOKEN, 1)), part.result_of(Order(TOKEN + 1, 2))) == (None, None)
    assert Component(slot=told).result_of(told.order) is None
