"""What becomes of a place in flight (docs/states.md#reconcile): a case for each row of the table.

From the Node's record alone: where a label says otherwise, it is not asked.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Order
from libs.contracts.node import MANAGER, Operation, Record, UpgradeState
from libs.contracts.rollout import InFlight
from libs.rollout.reconcile.bearing import Bearing, Ending, bearing
from libs.rollout.views.node import Field, Garbled, NodeView
from tests.unit.rollout.building import (
    NEW,
    NOW,
    OLD,
    POOL,
    TOKEN,
    component,
    done,
    evidence,
    failed,
    label_of,
    node,
    record,
    required,
    under_way,
)

ENTRY = InFlight(node="node-1", token=TOKEN, target=NEW, since=NOW - 30)
NEXT = replace(ENTRY, token=TOKEN + 1)
JOBS, RESTART = UpgradeState.WAIT_FOR_JOBS_REQUIRED, UpgradeState.POD_RESTART_REQUIRED


def borne(given: NodeView, entry: InFlight | None = ENTRY, *, at: float = NOW) -> Bearing:
    return bearing(given, entry, POOL, at)


def with_record(given: NodeView, **changes: Any) -> NodeView:
    assert isinstance(given.record, Record)
    return replace(given, record=replace(given.record, **changes))


FAILED = failed()
UNCHANGED = with_record(failed(), state=UpgradeState.UPGRADE_REQUIRED, started=False)


@pytest.mark.parametrize(
    ("given", "ending"),
    [
        (done(), Ending.VALIDATED),
        (FAILED, Ending.FAILED),
        (replace(FAILED, record=None), Ending.FAILED),
        (replace(FAILED, record=Garbled("no JSON")), Ending.FAILED),
        (UNCHANGED, Ending.OUT),
        (with_record(FAILED, started=False), Ending.OUT),
        (with_record(done(), evidence=evidence(passed=False), started=True), Ending.FAILED),
        (with_record(done(), evidence=evidence(token=TOKEN - 1)), Ending.OUT),
        # What the label says is not asked.
        (replace(FAILED, state=UpgradeState.UPGRADE_DONE), Ending.FAILED),
        (replace(done(), state=UpgradeState.UPGRADE_FAILED), Ending.VALIDATED),
        (replace(FAILED, state=""), Ending.FAILED),
        # A record of a later token than the Rollout knows: an old copy of it was put back.
        (
            with_record(done(), token=TOKEN + 3, evidence=evidence(token=TOKEN + 3)),
            Ending.VALIDATED,
        ),
    ],
)
def test_how_a_place_ended(given: NodeView, ending: Ending) -> None:
    made = borne(given)
    assert (made.ending, made.entry) == (ending, None)
    assert made.proved_on == (NEW if ending is Ending.VALIDATED else "")
    assert made.failed_on == (NEW if ending is Ending.FAILED else "")


@pytest.mark.parametrize("given", [done(), FAILED])
def test_it_ends_on_what_it_ran_although_its_place_was_moved_meanwhile(given: NodeView) -> None:
    made = borne(given, replace(ENTRY, target="wanted-since"))
    assert {made.proved_on, made.failed_on} == {NEW, ""}


def test_a_place_outside_the_counts_ends_without_counting() -> None:
    outside = replace(ENTRY, outside=True)
    for given in (done(), with_record(FAILED, outside=True)):
        made = borne(given, outside)
        assert (made.ending, made.proved_on, made.failed_on) == (Ending.OUT, "", "")


def test_a_removal_ends_with_label_and_record_gone() -> None:
    removal = replace(ENTRY, target="")
    assert borne(node(), removal).ending is Ending.OUT
    assert borne(done(), replace(removal, token=TOKEN + 1)).ending is None


LEFT = {Field.CORDON: (MANAGER,), Field.DRIVER: (MANAGER,)}
GIVEN_UP = node(cordoned=True, driver_label=label_of(NEW), owners=LEFT)


@pytest.mark.parametrize(
    "given", [node(), required(), with_record(required(), token=TOKEN), GIVEN_UP]
)
def test_who_has_not_begun_has_a_minute(given: NodeView) -> None:
    made = borne(given, NEXT)
    assert (made.ending, made.entry, made.leased) == (None, NEXT, False)
    assert (made.counted, made.due) == ((NEW,), NEXT.since + 60)
    assert borne(given, NEXT, at=NEXT.since + 59.9).ending is None
    assert borne(given, NEXT, at=NEXT.since + 60).ending is Ending.OUT


def test_what_an_agent_has_heard_of_did_begin() -> None:
    heard = node(components={"driver": component(highest=Order(NEXT.token, 1))})
    assert borne(heard, NEXT).ending is Ending.FAILED
    before = node(components={"driver": component(highest=Order(NEXT.token - 1, 9))})
    assert borne(before, NEXT).ending is None


def test_nobody_is_taken_out_whose_first_write_is_on_its_way() -> None:
    assert borne(required(writing=True), NEXT, at=NEXT.since + 900).ending is None


def test_nor_is_anybody_whose_first_write_may_yet_be_carried_out() -> None:
    sent = NEXT.since + 58
    made = borne(required(unanswered=sent), NEXT, at=sent + 59)
    assert (made.ending, made.unsure, made.due) == (None, True, sent + 60)
    made = borne(required(unanswered=sent), NEXT, at=sent + 60)
    assert (made.ending, made.unsure) == (Ending.OUT, False)


def test_a_lease_without_a_place_is_put_back() -> None:
    made = borne(under_way(JOBS), None)
    since = NOW - 60
    assert made.entry == InFlight(node="node-1", token=TOKEN, target=NEW, since=since)
    assert (made.differs, made.counted, made.started) == (True, (NEW,), False)
    outside = borne(under_way(JOBS, record={"outside": True}), None)
    assert outside.entry is not None
    assert outside.entry.outside
    assert (outside.counted, outside.heals) == ((), True)


def test_a_lease_whose_record_is_lost_stays_and_counts_as_failed() -> None:
    made = borne(replace(under_way(JOBS), record=None))
    assert (made.entry, made.ending) == (ENTRY, None)
    assert (made.counted, made.failed_on) == ((NEW,), NEW)
    assert borne(replace(under_way(JOBS), record=None), None).entry is None


def test_who_started_counts_for_the_target_in_its_record() -> None:
    made = borne(under_way(RESTART), replace(ENTRY, target=OLD))
    assert (made.entry, made.differs) == (ENTRY, True)
    assert made.counted == (NEW,)


def test_who_has_not_started_counts_for_both_until_its_record_is_the_new_one() -> None:
    made = borne(under_way(JOBS), replace(ENTRY, target=OLD))
    assert (made.entry, made.differs) == (replace(ENTRY, target=OLD), False)
    assert sorted(made.counted) == [NEW, OLD]


def test_a_validation_counts_for_nothing_and_is_never_turned_away() -> None:
    again = with_record(under_way(JOBS), operation=Operation.VALIDATE, outside=True)
    made = borne(again, replace(ENTRY, outside=True))
    assert made.entry == replace(ENTRY, outside=True, validates=True)
    assert (made.started, made.counted, made.heals) == (True, (), False)


def test_what_of_another_pool_it_has_counts_there_alone() -> None:
    moved = replace(under_way(JOBS), pool="another")
    made = borne(moved)
    assert (made.present, made.entry, made.unavailable) == (False, ENTRY, "in an upgrade")
    there = bearing(moved, None, "another", NOW)
    assert (there.present, there.entry, there.unavailable) == (True, None, "in an upgrade")
    assert not bearing(moved, None, "a-third", NOW).present


def test_a_lease_and_record_of_another_node_of_that_name_are_void() -> None:
    new = replace(under_way(JOBS), uid="uid-new")
    assert borne(new, None).entry is None
    assert borne(new, NEXT).leased is False


def test_failures_are_read_from_records_of_this_pool() -> None:
    assert borne(FAILED, None).failed_on == NEW
    assert borne(with_record(FAILED, outside=True), None).failed_on == ""
    assert borne(with_record(FAILED, started=False), None).failed_on == ""
    assert borne(with_record(FAILED, pool="another"), None).failed_on == ""
    assert borne(done(), None).failed_on == ""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (node(), False),
        (replace(node(), state="upgrade-done", owners={Field.STATE: ("gpu-operator",)}), False),
        (done(), True),
        (under_way(JOBS), True),
        (replace(under_way(JOBS), record=None), True),
        (with_record(done(), pool="another"), False),
        (node(record=record(pool="")), False),
    ],
)
def test_who_bears_signs_of_an_earlier_rollout(given: NodeView, expected: bool) -> None:
    assert borne(given, None).ours is expected
