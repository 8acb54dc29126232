"""What becomes of an entry in flight (docs/states.md#reconcile): a case for each row.

It follows from the record of the Node, never from its labels.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Order, Quiesce
from libs.contracts.node import MANAGER, LeaseOwner, NodeRecord, Operation, UpgradeState
from libs.contracts.reports import Usage
from libs.contracts.rollout import InFlight
from libs.rollout.pool.contribution import EntryResult, NodeContribution, contribution_of
from libs.rollout.views.machine import Component
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    POOL,
    TOKEN,
    command,
    component,
    done,
    ended,
    evidence,
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

ENTRY = InFlight(node="node-1", token=TOKEN, target=NEW, since=NOW - 30)
NEXT = replace(ENTRY, token=TOKEN + 1)
JOBS, RESTART = UpgradeState.WAIT_FOR_JOBS_REQUIRED, UpgradeState.POD_RESTART_REQUIRED


def contribution(
    view: NodeView, entry: InFlight | None = ENTRY, *, pool: str = POOL, at: float = NOW
) -> NodeContribution:
    return contribution_of(view, entry, pool, at)


FAILED = failed()
UNCHANGED = with_record(failed(), state=UpgradeState.UPGRADE_REQUIRED, started=False)


@pytest.mark.parametrize(
    ("view", "ending"),
    [
        (done(), EntryResult.VALIDATED),
        (FAILED, EntryResult.FAILED),
        (replace(FAILED, record=None), EntryResult.FAILED),
        (replace(FAILED, record=MalformedAnnotation("no JSON")), EntryResult.FAILED),
        (UNCHANGED, EntryResult.REMOVED),
        (with_record(FAILED, started=False), EntryResult.REMOVED),
        (with_record(done(), evidence=evidence(passed=False), started=True), EntryResult.FAILED),
        (with_record(done(), evidence=evidence(token=TOKEN - 1)), EntryResult.REMOVED),
        # The label does not matter.
        (replace(FAILED, state=UpgradeState.UPGRADE_DONE), EntryResult.FAILED),
        (replace(done(), state=UpgradeState.UPGRADE_FAILED), EntryResult.VALIDATED),
        (replace(FAILED, state=""), EntryResult.FAILED),
        # The token of the record is later than in the Rollout: an old Rollout was restored.
        (
            with_record(done(), token=TOKEN + 3, evidence=evidence(token=TOKEN + 3)),
            EntryResult.VALIDATED,
        ),
    ],
)
def test_how_an_entry_ended(view: NodeView, ending: EntryResult) -> None:
    result = contribution(view)
    assert (result.ending, result.entry) == (ending, None)
    assert result.proved_on == (NEW if ending is EntryResult.VALIDATED else "")
    assert result.failed_on == (NEW if ending is EntryResult.FAILED else "")


@pytest.mark.parametrize(
    "label",
    ["", UpgradeState.UPGRADE_REQUIRED, UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED],
)
def test_a_failure_counts_by_the_record_whatever_the_label_says(label: str) -> None:
    assert contribution(replace(FAILED, state=label), None).failed_on == NEW
    for view in (done(), UNCHANGED, with_record(FAILED, started=False), node()):
        assert contribution(replace(view, state=label), None).failed_on == ""


@pytest.mark.parametrize("view", [done(), FAILED])
def test_an_entry_ends_on_the_target_of_its_record(view: NodeView) -> None:
    result = contribution(view, replace(ENTRY, target="wanted-since"))
    assert {result.proved_on, result.failed_on} == {NEW, ""}


def test_an_entry_outside_the_counts_ends_without_counting() -> None:
    outside = replace(ENTRY, outside=True)
    for view in (done(), with_record(FAILED, outside=True)):
        result = contribution(view, outside)
        assert (result.ending, result.proved_on, result.failed_on) == (EntryResult.REMOVED, "", "")


def test_a_removal_ends_with_label_and_record_gone() -> None:
    removal = replace(ENTRY, target="")
    assert contribution(node(), removal).ending is EntryResult.REMOVED
    assert contribution(node(driver_label=label_of(OLD)), removal).ending is None
    assert contribution(done(), replace(removal, token=TOKEN + 1)).ending is None


LEFT = {NodeField.CORDON: (MANAGER,), NodeField.DRIVER: (MANAGER,)}
GIVEN_UP = node(cordoned=True, driver_label=label_of(NEW), field_managers=LEFT)


@pytest.mark.parametrize(
    "view", [node(), required(), with_record(required(), token=TOKEN), GIVEN_UP]
)
def test_a_grant_expires_after_a_minute(view: NodeView) -> None:
    result = contribution(view, NEXT)
    assert (result.ending, result.entry, result.leased) == (None, NEXT, False)
    assert (result.counted_targets, result.due) == ((NEW,), NEXT.since + 60)
    assert contribution(view, NEXT, at=NEXT.since + 59.9).ending is None
    assert contribution(view, NEXT, at=NEXT.since + 60).ending is EntryResult.REMOVED


def test_a_token_known_to_an_agent_shows_a_beginning() -> None:
    last_beat = node(components={"driver": component(highest_order=Order(NEXT.token, 1))})
    assert contribution(last_beat, NEXT).ending is EntryResult.FAILED
    before = node(components={"driver": component(highest_order=Order(NEXT.token - 1, 9))})
    assert contribution(before, NEXT).ending is None


def test_a_grant_does_not_expire_while_a_write_is_pending() -> None:
    assert contribution(required(write_pending=True), NEXT, at=NEXT.since + 900).ending is None


def test_a_grant_does_not_expire_while_a_write_is_unconfirmed() -> None:
    written_at = NEXT.since + 58
    result = contribution(required(unconfirmed_write_at=written_at), NEXT, at=written_at + 59)
    assert (result.ending, result.unconfirmed_until, result.due) == (None, *[written_at + 60] * 2)
    result = contribution(required(unconfirmed_write_at=written_at), NEXT, at=written_at + 60)
    assert (result.ending, result.unconfirmed_until) == (EntryResult.REMOVED, None)


def test_a_lost_entry_is_restored_from_its_lease() -> None:
    result = contribution(in_flight_node(JOBS), None)
    since = NOW - 60
    assert result.entry == InFlight(node="node-1", token=TOKEN, target=NEW, since=since)
    assert (result.entry_differs, result.counted_targets, result.started) == (True, (NEW,), False)
    outside = contribution(in_flight_node(JOBS, record={"outside": True}), None)
    assert outside.entry is not None
    assert outside.entry.outside
    assert (outside.counted_targets, outside.is_recovery) == ((), True)


def test_a_lease_with_a_lost_record_stays_and_counts_as_failed() -> None:
    result = contribution(replace(in_flight_node(JOBS), record=None))
    assert (result.entry, result.ending) == (ENTRY, None)
    assert (result.counted_targets, result.failed_on) == ((NEW,), NEW)
    assert contribution(replace(in_flight_node(JOBS), record=None), None).entry is None


def test_a_started_node_counts_for_the_target_in_its_record() -> None:
    result = contribution(in_flight_node(RESTART), replace(ENTRY, target=OLD))
    assert (result.entry, result.entry_differs) == (ENTRY, True)
    assert result.counted_targets == (NEW,)


def test_a_retargeted_node_counts_for_both_targets_until_its_record_follows() -> None:
    result = contribution(in_flight_node(JOBS), replace(ENTRY, target=OLD))
    assert (result.entry, result.entry_differs) == (replace(ENTRY, target=OLD), False)
    assert sorted(result.counted_targets) == [NEW, OLD]


def test_a_validation_counts_for_no_target() -> None:
    validation = with_record(in_flight_node(JOBS), operation=Operation.VALIDATE, outside=True)
    result = contribution(validation, replace(ENTRY, outside=True))
    assert result.entry == replace(ENTRY, outside=True, validates=True)
    assert (result.started, result.counted_targets, result.is_recovery) == (True, (), False)


def test_failures_are_read_from_records_of_this_pool() -> None:
    assert contribution(FAILED, None).failed_on == NEW
    assert contribution(with_record(FAILED, outside=True), None).failed_on == ""
    assert contribution(with_record(FAILED, started=False), None).failed_on == ""
    assert contribution(with_record(FAILED, pool="another"), None).failed_on == ""
    assert contribution(done(), None).failed_on == ""


@pytest.mark.parametrize(
    ("view", "expected"),
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
def test_which_nodes_were_managed_by_an_earlier_rollout(view: NodeView, expected: bool) -> None:
    assert contribution(view, None).was_managed is expected


def of_pool(view: NodeView, pool: str) -> NodeView:
    return with_record(view, pool=pool)


@pytest.mark.parametrize("selected", [POOL, "another", ""])
@pytest.mark.parametrize("more", [0, 1])
def test_a_record_of_another_pool_ends_no_later_entry_of_this_pool(
    selected: str, more: int
) -> None:
    view = replace(of_pool(required(), "another"), pool=selected)
    assert isinstance(view.record, NodeRecord)
    flight = replace(ENTRY, token=view.record.token + more)
    result = contribution(view, flight)
    keeps_entry = selected == POOL and more > 0
    assert (result.entry, result.ending) == (
        (flight, None) if keeps_entry else (None, EntryResult.REMOVED)
    )
    assert result.counted_targets == ((flight.target,) if keeps_entry else ())


@pytest.mark.parametrize("view", [done(), required(), failed(), in_flight_node()])
@pytest.mark.parametrize("selected", [POOL, "another", ""])
def test_an_entry_of_a_node_upgraded_by_another_pool_is_removed(
    view: NodeView, selected: str
) -> None:
    result = contribution(replace(of_pool(view, "another"), pool=selected))
    assert (result.ending, result.entry) == (EntryResult.REMOVED, None)
    assert (result.was_managed, result.leased, result.failed_on, result.proved_on) == (
        False,
        False,
        "",
        "",
    )
    assert result.present is (selected == POOL)


@pytest.mark.parametrize(
    ("view", "ending"), [(done(), EntryResult.VALIDATED), (failed(), EntryResult.FAILED)]
)
def test_a_record_without_a_pool_belongs_to_the_pool_of_its_entry(
    view: NodeView, ending: EntryResult
) -> None:
    assert contribution(of_pool(view, "")).ending is ending


def test_a_node_that_left_in_an_upgrade_stays_in_flight_in_its_old_pool() -> None:
    left = replace(in_flight_node(), pool="another")
    result = contribution(left, None)
    assert (result.present, result.leased, result.was_managed) == (False, True, True)
    assert result.entry == InFlight(node="node-1", token=TOKEN, target=NEW, since=NOW - 60)
    assert result.unavailable == "in an upgrade"
    old_contribution = contribution(left, None, pool="another")
    assert (
        old_contribution.present,
        old_contribution.leased,
        old_contribution.was_managed,
        old_contribution.entry,
    ) == (
        True,
        False,
        False,
        None,
    )


def test_a_node_that_left_after_its_upgrade_is_no_member() -> None:
    result = contribution(done(pool="another"))
    assert (result.present, result.counts_for_base, result.ending) == (
        False,
        False,
        EntryResult.VALIDATED,
    )
    cordoned = contribution(required(pool="another", cordoned=True), NEXT)
    assert (cordoned.unavailable, cordoned.ending) == ("", None)


@pytest.mark.parametrize(
    ("view", "entered"),
    [(done(), True), (required(), True), (node(), False), (node(record=record()), False)],
)
def test_the_base_counts_nodes_that_were_done_in_this_pool(
    view: NodeView, *, entered: bool
) -> None:
    assert contribution(view, None).counts_for_base is entered


@pytest.mark.parametrize(
    ("view", "bare"),
    [
        (without_driver(node()), True),
        (node(modules_reported=False), False),
        (node(modules_reported=False, usage=Usage()), False),
        (done(record=None), False),
        (without_driver(done()), False),
    ],
)
def test_a_node_is_unoccupied_only_when_it_surely_runs_nothing(
    view: NodeView, *, bare: bool
) -> None:
    assert contribution(view, NEXT).is_unoccupied is bare


@pytest.mark.parametrize(
    ("changes", "counted"), [({}, (NEW,)), ({"target": ""}, ()), ({"outside": True}, ())]
)
def test_an_entry_counts_for_its_target(changes: dict[str, Any], counted: tuple[str, ...]) -> None:
    view = required(driver_label=label_of(OLD))
    assert contribution(view, replace(NEXT, **changes)).counted_targets == counted


@pytest.mark.parametrize(
    ("view", "ours"),
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
        (node(record=MalformedAnnotation("{"), components=done().components), True),
        (node(record=MalformedAnnotation("{")), False),
        (node(components=done().components), False),
    ],
)
def test_what_marks_a_managed_node(view: NodeView, *, ours: bool) -> None:
    assert view.is_managed is ours


def test_a_component_returns_the_result_of_one_op_only() -> None:
    sent = command(Quiesce(), order=(TOKEN, 2))
    part = Component(slot=sent, result=ended(sent))
    assert part.result_of(Order(TOKEN, 2)) == ended(sent)
    assert (part.result_of(Order(TOKEN, 1)), part.result_of(Order(TOKEN + 1, 2))) == (None, None)
    assert Component(slot=sent).result_of(sent.order) is None


REMOVAL = replace(NEXT, target="")


@pytest.mark.parametrize("field", [NodeField.STATE, NodeField.LEASE, NodeField.RECORD])
def test_an_owned_field_shows_that_an_operation_began(field: NodeField) -> None:
    text: dict[str, Any] = {
        "state": "upgrade-required",
        "lease": MalformedAnnotation("{"),
        "record": MalformedAnnotation("{"),
    }
    owners = {field: (MANAGER,)}
    partial = replace(node(field_managers=owners), **{field.value: text[field.value]})
    assert contribution(partial, NEXT).ending is EntryResult.FAILED
    emptied = contribution(node(field_managers=owners), NEXT)
    assert (emptied.ending, emptied.entry) == (None, NEXT)


@pytest.mark.parametrize("held", [lease(owner=LeaseOwner.HUMAN), MalformedAnnotation("{")])
def test_a_field_of_another_manager_is_no_beginning(held: object) -> None:
    foreign = node(lease=held, field_managers={NodeField.LEASE: ("another",)})
    assert contribution(foreign, NEXT).ending is None


def test_a_failed_removal_counts_for_no_target() -> None:
    driver = component(highest_order=Order(REMOVAL.token, 1))
    view = node(driver_label=label_of(OLD), components={"driver": driver})
    assert contribution(view, REMOVAL).ending is EntryResult.REMOVED
