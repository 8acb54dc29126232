"""Budget cases in which two reasons contradict."""

from msgspec.structs import replace

from libs.contracts.node import LeaseOwner, NodeRecord, Operation, UpgradeState
from libs.rollout.budget import counts_for_base, unavailable_reason
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import (
    NEW,
    OLD,
    evidence,
    label_of,
    lease,
    node,
    record,
    without_driver,
)


def without_loaded_driver(said: NodeRecord, label: str = "") -> NodeView:
    return without_driver(node(driver_label=label, record=said))


def reason(made: NodeView) -> str:
    assert isinstance(made.record, NodeRecord)
    return unavailable_reason(made, made.record)


def counted(made: NodeView, said: NodeRecord | None) -> bool:
    return counts_for_base(replace(made, record=said), said)


def test_what_is_done_was_done_whatever_else_was_lost() -> None:
    assert counted(node(state=UpgradeState.UPGRADE_DONE), None)


def test_a_record_alone_does_not_say_that_it_was_done() -> None:
    assert not counted(node(), record(evidence=None))


def test_who_lost_the_label_was_done_by_evidence() -> None:
    assert counted(node(), record(evidence=evidence()))


def test_somebody_elses_lease_makes_it_unavailable_whatever_we_did_last() -> None:
    for operation in (Operation.BRING_UP, Operation.VALIDATE):
        said = record(operation=operation)
        assert reason(node(lease=lease(owner=LeaseOwner.HUMAN), record=said)) == "leased"
        assert reason(node(lease=lease(owner=LeaseOwner.UPGRADE), record=said)) == ""


def test_under_the_lease_of_another_uid_it_still_lacks_its_driver() -> None:
    made = without_loaded_driver(record(operation=Operation.UPGRADE), label_of(NEW))
    assert reason(replace(made, lease=lease(node_uid="another"))) == "without a driver"


def test_once_the_bring_up_has_ended_it_lacks_its_driver() -> None:
    said = record(operation=Operation.BRING_UP)
    assert reason(without_loaded_driver(said, label_of(OLD))) == "without a driver"
    assert reason(replace(without_loaded_driver(said, label_of(OLD)), lease=lease())) == ""


def test_a_validation_does_not_hide_that_the_driver_is_gone() -> None:
    said = record(operation=Operation.VALIDATE)
    assert (
        reason(replace(without_loaded_driver(said, label_of(OLD)), lease=lease()))
        == "without a driver"
    )


def test_who_never_had_a_driver_lacks_none() -> None:
    assert reason(without_loaded_driver(record(evidence=None), label_of(OLD))) == "without a driver"
    assert reason(without_loaded_driver(record(evidence=None))) == ""
    assert reason(without_loaded_driver(record(evidence=evidence()))) == "without a driver"
