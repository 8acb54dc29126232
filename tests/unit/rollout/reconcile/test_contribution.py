"""What becomes of an entry in flight (docs/states.md#reconcile): a case for each row.

It follows from the record of the Node, never from its labels.
"""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Order
from libs.contracts.node import MANAGER, Operation, UpgradeState
from libs.contracts.rollout import InFlight
from libs.rollout.reconcile.contribution import EntryResult, NodeContribution, contribution_of
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    POOL,
    TOKEN,
    component,
    done,
    evidence,
    failed,
    in_flight_node,
    label_of,
    node,
    record,
    required,
    with_record,
)

ENTRY = InFlight(node="node-1", token=TOKEN, target=NEW, since=NOW - 30)
NEXT = replace(ENTRY, token=TOKEN + 1)
JOBS, RESTART = UpgradeState.WAIT_FOR_JOBS_REQUIRED, UpgradeState.POD_RESTART_REQUIRED


def contribution(
    given: NodeView, entry: InFlight | None = ENTRY, *, at: float = NOW
) -> NodeContribution:
    return contribution_of(given, entry, POOL, at)


FAILED = failed()
UNCHANGED = with_record(failed(), state=UpgradeState.UPGRADE_REQUIRED, started=False)


@pytest.mark.parametrize(
    ("given", "ending"),
    [
        (done(), EntryResult.VALIDATED),
        (FAILED, EntryResult.FAILED),
        (replace(FAILED, record=None), EntryResult.FAILED),
        (replace(FAILED, record=MalformedAnnotation("no JSON")), EntryResult.FAILED),
        (UNCHANGED, EntryResult.REMOVED),
        (with_record(FAILED, started=False), EntryResult.REMOVED),
        (with_record(done(), evidence=evidence(passed=False), started=True), EntryResult.FAILED),
        (with_record(done(), evidence=evidence(token=TOKEN - 1)), EntryResult.REMOVED),
        # What the label says is not asked.
        (replace(FAILED, state=UpgradeState.UPGRADE_DONE), EntryResult.FAILED),
        (replace(done(), state=UpgradeState.UPGRADE_FAILED), EntryResult.VALIDATED),
        (replace(FAILED, state=""), EntryResult.FAILED),
        # A record of a later token than the Rollout knows: an old copy of it was put back.
        (
            with_record(done(), token=TOKEN + 3, evidence=evidence(token=TOKEN + 3)),
            EntryResult.VALIDATED,
        ),
    ],
)
def test_how_an_entry_ended(given: NodeView, ending: EntryResult) -> None:
    made = contribution(given)
    assert (made.ending, made.entry) == (ending, None)
    assert made.proved_on == (NEW if ending is EntryResult.VALIDATED else "")
    assert made.failed_on == (NEW if ending is EntryResult.FAILED else "")


@pytest.mark.parametrize("given", [done(), FAILED])
def test_an_entry_ends_on_the_target_of_its_record(given: NodeView) -> None:
    made = contribution(given, replace(ENTRY, target="wanted-since"))
    assert {made.proved_on, made.failed_on} == {NEW, ""}


def test_an_entry_outside_the_counts_ends_without_counting() -> None:
    outside = replace(ENTRY, outside=True)
    for given in (done(), with_record(FAILED, outside=True)):
        made = contribution(given, outside)
        assert (made.ending, made.proved_on, made.failed_on) == (EntryResult.REMOVED, "", "")


def test_a_removal_ends_with_label_and_record_gone() -> None:
    removal = replace(ENTRY, target="")
    assert contribution(node(), removal).ending is EntryResult.REMOVED
    assert contribution(node(driver_label=label_of(OLD)), removal).ending is None
    assert contribution(done(), replace(removal, token=TOKEN + 1)).ending is None


LEFT = {NodeField.CORDON: (MANAGER,), NodeField.DRIVER: (MANAGER,)}
GIVEN_UP = node(cordoned=True, driver_label=label_of(NEW), field_managers=LEFT)


@pytest.mark.parametrize(
    "given", [node(), required(), with_record(required(), token=TOKEN), GIVEN_UP]
)
def test_a_grant_expires_after_a_minute(given: NodeView) -> None:
    made = contribution(given, NEXT)
    assert (made.ending, made.entry, made.leased) == (None, NEXT, False)
    assert (made.counted_targets, made.due) == ((NEW,), NEXT.since + 60)
    assert contribution(given, NEXT, at=NEXT.since + 59.9).ending is None
    assert contribution(given, NEXT, at=NEXT.since + 60).ending is EntryResult.REMOVED


def test_a_token_known_to_an_agent_shows_a_beginning() -> None:
    heard = node(components={"driver": component(highest_order=Order(NEXT.token, 1))})
    assert contribution(heard, NEXT).ending is EntryResult.FAILED
    before = node(components={"driver": component(highest_order=Order(NEXT.token - 1, 9))})
    assert contribution(before, NEXT).ending is None


def test_a_grant_does_not_expire_while_a_write_is_pending() -> None:
    assert contribution(required(write_pending=True), NEXT, at=NEXT.since + 900).ending is None


def test_a_grant_does_not_expire_while_a_write_is_unconfirmed() -> None:
    sent = NEXT.since + 58
    made = contribution(required(unconfirmed_write_at=sent), NEXT, at=sent + 59)
    assert (made.ending, made.write_unconfirmed, made.due) == (None, True, sent + 60)
    made = contribution(required(unconfirmed_write_at=sent), NEXT, at=sent + 60)
    assert (made.ending, made.write_unconfirmed) == (EntryResult.REMOVED, False)


def test_a_lost_entry_is_restored_from_its_lease() -> None:
    made = contribution(in_flight_node(JOBS), None)
    since = NOW - 60
    assert made.entry == InFlight(node="node-1", token=TOKEN, target=NEW, since=since)
    assert (made.entry_differs, made.counted_targets, made.started) == (True, (NEW,), False)
    outside = contribution(in_flight_node(JOBS, record={"outside": True}), None)
    assert outside.entry is not None
    assert outside.entry.outside
    assert (outside.counted_targets, outside.is_recovery) == ((), True)


def test_a_lease_with_a_lost_record_stays_and_counts_as_failed() -> None:
    made = contribution(replace(in_flight_node(JOBS), record=None))
    assert (made.entry, made.ending) == (ENTRY, None)
    assert (made.counted_targets, made.failed_on) == ((NEW,), NEW)
    assert contribution(replace(in_flight_node(JOBS), record=None), None).entry is None


def test_a_started_node_counts_for_the_target_in_its_record() -> None:
    made = contribution(in_flight_node(RESTART), replace(ENTRY, target=OLD))
    assert (made.entry, made.entry_differs) == (ENTRY, True)
    assert made.counted_targets == (NEW,)


def test_a_retargeted_node_counts_for_both_targets_until_its_record_follows() -> None:
    made = contribution(in_flight_node(JOBS), replace(ENTRY, target=OLD))
    assert (made.entry, made.entry_differs) == (replace(ENTRY, target=OLD), False)
    assert sorted(made.counted_targets) == [NEW, OLD]


def test_a_validation_counts_for_no_target() -> None:
    again = with_record(in_flight_node(JOBS), operation=Operation.VALIDATE, outside=True)
    made = contribution(again, replace(ENTRY, outside=True))
    assert made.entry == replace(ENTRY, outside=True, validates=True)
    assert (made.started, made.counted_targets, made.is_recovery) == (True, (), False)


def test_lease_and_record_of_an_earlier_node_are_void() -> None:
    new = replace(in_flight_node(JOBS), uid="uid-new")
    assert contribution(new, None).entry is None
    assert contribution(new, NEXT).leased is False


def test_failures_are_read_from_records_of_this_pool() -> None:
    assert contribution(FAILED, None).failed_on == NEW
    assert contribution(with_record(FAILED, outside=True), None).failed_on == ""
    assert contribution(with_record(FAILED, started=False), None).failed_on == ""
    assert contribution(with_record(FAILED, pool="another"), None).failed_on == ""
    assert contribution(done(), None).failed_on == ""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (node(), False),
        (
            replace(
                node(), state="upgrade-done", field_managers={NodeField.STATE: ("gpu-operator",)}
            ),
            False,
        ),
        (done(), True),
        (in_flight_node(JOBS), True),
        (replace(in_flight_node(JOBS), record=None), True),
        (with_record(done(), pool="another"), False),
        (node(record=record(pool="")), False),
    ],
)
def test_which_nodes_were_managed_by_an_earlier_rollout(given: NodeView, expected: bool) -> None:
    assert contribution(given, None).was_managed is expected
