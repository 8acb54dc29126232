"""What one node comes to where two pools have to do with it, or what is written is not whole."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Order, Quiesce
from libs.contracts.node import MANAGER, Record
from libs.contracts.reports import Usage
from libs.contracts.rollout import InFlight
from libs.rollout.reconcile.bearing import Bearing, Ending, bearing
from libs.rollout.views.machine import Component
from libs.rollout.views.node import Field, Garbled, NodeView
from tests.unit.rollout.building import (
    NEW,
    NOW,
    OLD,
    POOL,
    TOKEN,
    command,
    done,
    ended,
    failed,
    label_of,
    lease,
    node,
    record,
    required,
    under_way,
    without_driver,
)

PLACE = InFlight(node="node-1", token=TOKEN, target=NEW, since=NOW - 30)
NEXT = replace(PLACE, token=TOKEN + 1)


def borne(given: NodeView, place: InFlight | None = PLACE, *, pool: str = POOL) -> Bearing:
    return bearing(given, place, pool, NOW)


def of_pool(given: NodeView, pool: str) -> NodeView:
    """The node, with its record made in this pool."""
    assert isinstance(given.record, Record)
    return replace(given, record=replace(given.record, pool=pool))


# Two pools: one of them selects the node, the other one has it in its records.


@pytest.mark.parametrize("selected", [POOL, "another", ""])
@pytest.mark.parametrize("more", [0, 1])
def test_a_record_that_was_made_in_another_pool_ends_no_place_that_was_given_here_after_it(
    selected: str, more: int
) -> None:
    given = replace(of_pool(required(), "another"), pool=selected)
    assert isinstance(given.record, Record)
    place = replace(PLACE, token=given.record.token + more)
    made = borne(given, place)
    comes = selected == POOL and more > 0
    assert (made.entry, made.ending) == ((place, None) if comes else (None, Ending.OUT))
    assert made.counted == ((place.target,) if comes else ())


@pytest.mark.parametrize("given", [done(), required(), failed(), under_way()])
@pytest.mark.parametrize("selected", [POOL, "another", ""])
def test_a_place_of_who_was_begun_in_another_pool_returns(given: NodeView, selected: str) -> None:
    made = borne(replace(of_pool(given, "another"), pool=selected))
    assert (made.ending, made.entry) == (Ending.OUT, None)
    assert (made.ours, made.leased, made.failed_on, made.proved_on) == (False, False, "", "")
    assert made.present is (selected == POOL)


@pytest.mark.parametrize(
    ("given", "ending"), [(done(), Ending.VALIDATED), (failed(), Ending.FAILED)]
)
def test_a_record_that_names_no_pool_is_at_home_where_it_has_its_place(
    given: NodeView, ending: Ending
) -> None:
    assert borne(of_pool(given, "")).ending is ending


def test_who_left_its_pool_in_an_upgrade_stays_in_flight_there_though_its_place_is_lost() -> None:
    left = replace(under_way(), pool="another")
    made = borne(left, None)
    assert (made.present, made.leased, made.ours) == (False, True, True)
    assert made.entry == InFlight(node="node-1", token=TOKEN, target=NEW, since=NOW - 60)
    assert made.unavailable == "in an upgrade"
    there = borne(left, None, pool="another")
    assert (there.present, there.leased, there.ours, there.entry) == (True, False, False, None)


def test_who_left_its_pool_after_an_upgrade_is_no_more_of_its_nodes() -> None:
    made = borne(done(pool="another"))
    assert (made.present, made.entered, made.ending) == (False, False, Ending.VALIDATED)
    cordoned = borne(required(pool="another", cordoned=True), NEXT)
    assert (cordoned.unavailable, cordoned.ending) == ("", None)


@pytest.mark.parametrize(
    ("given", "entered"),
    [(done(), True), (required(), True), (node(), False), (node(record=record()), False)],
)
def test_for_the_base_counts_who_was_done_here_before(given: NodeView, *, entered: bool) -> None:
    assert borne(given, None).entered is entered


# A place that has not begun.


@pytest.mark.parametrize(
    ("given", "bare"),
    [
        (without_driver(node()), True),
        (node(seen_by_agent=False), False),
        (node(seen_by_agent=False, usage=Usage()), False),
        (done(record=None), False),
        (without_driver(done()), False),
    ],
)
def test_only_where_surely_nothing_runs_is_nothing_taken_away(
    given: NodeView, *, bare: bool
) -> None:
    assert borne(given, NEXT).bare is bare


@pytest.mark.parametrize(
    ("changes", "counted"), [({}, (NEW,)), ({"target": ""}, ()), ({"outside": True}, ())]
)
def test_a_place_counts_for_its_target_if_it_has_one(
    changes: dict[str, Any], counted: tuple[str, ...]
) -> None:
    given = required(driver_label=label_of(OLD))
    assert borne(given, replace(NEXT, **changes)).counted == counted


# What a node and its machine say of themselves.


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (node(), False),
        (node(lease=lease()), True),
        (node(lease=Garbled("{")), True),
        (node(owners={Field.CORDON: (MANAGER,)}), True),
        (node(owners={Field.STATE: ("gpu-operator",), Field.DRIVER: ("kubectl", MANAGER)}), True),
        (node(state="upgrade-done", owners={Field.STATE: ("gpu-operator",)}), False),
        (node(owners={Field.STATE: ()}), False),
    ],
)
def test_a_node_bears_our_sign_by_a_lease_or_by_anything_that_we_own(
    given: NodeView, *, ours: bool
) -> None:
    assert given.bears_our_sign is ours


def test_a_component_says_how_an_op_ended_of_that_op_only() -> None:
    told = command(Quiesce(), order=(TOKEN, 2))
    part = Component(slot=told, result=ended(told))
    assert part.ended(Order(TOKEN, 2)) == ended(told)
    assert (part.ended(Order(TOKEN, 1)), part.ended(Order(TOKEN + 1, 2))) == (None, None)
    assert Component(slot=told).ended(told.order) is None
