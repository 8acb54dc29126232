"""Which changes of a cordon are told as somebody else's, and with which program."""

from typing import Any

import pytest

from libs.contracts.node import MANAGER, Operation, UpgradeState
from libs.rollout.views.node import NodeField, NodeView
from services.scheduler.cordons import Cordons
from tests.unit.rollout.builders import done, in_flight_node

KUBECTL = "cordoned by somebody with kubectl"
UNKNOWN = "uncordoned by somebody, who is not recorded"


def owned(*managers: str) -> dict[NodeField, tuple[str, ...]]:
    return {NodeField.CORDON: managers} if managers else {}


def at_rest(*managers: str, cordoned: bool, **changes: Any) -> NodeView:
    return done("n", cordoned=cordoned, field_managers=owned(*managers), **changes)


FREE, BY_KUBECTL = at_rest(cordoned=False), at_rest("kubectl", cordoned=True)


def told(*seen: NodeView) -> list[str]:
    """Return what is told while a node is seen like this, one after the other."""
    cordons = Cordons()
    changes = (cordons.change_of(each) for each in seen)
    return [each.done for each in changes if each is not None]


def test_what_a_leader_finds_is_not_told() -> None:
    assert told(BY_KUBECTL, BY_KUBECTL) == []


def test_each_change_of_a_cordon_is_told_once() -> None:
    seen = (FREE, BY_KUBECTL, BY_KUBECTL, FREE, FREE, BY_KUBECTL)
    assert told(*seen) == [KUBECTL, UNKNOWN, KUBECTL]


def test_a_program_that_still_owns_the_field_is_named_for_its_removal() -> None:
    freed = at_rest("argocd", cordoned=False)
    assert told(BY_KUBECTL, freed) == ["uncordoned by somebody with argocd"]


def test_the_event_has_field_program_and_both_values() -> None:
    cordons = Cordons()
    cordons.change_of(FREE)
    event = cordons.change_of(BY_KUBECTL)
    assert event is not None
    assert (event.field, event.manager) == ("spec.unschedulable", "kubectl")
    assert (event.before, event.after) == ("false", "true")


def test_cordons_of_sluice_are_told_by_its_steps_alone() -> None:
    state = UpgradeState.WAIT_FOR_JOBS_REQUIRED
    started = in_flight_node(state, name="n", cordoned=True, field_managers=owned(MANAGER))
    assert told(FREE, started, FREE) == []


@pytest.mark.parametrize(
    ("operation", "texts"), [(Operation.UPGRADE, []), (Operation.VALIDATE, [UNKNOWN])]
)
def test_a_cordon_that_an_upgrade_needs_is_restored_with_an_event_of_its_own(
    operation: Operation, texts: list[str]
) -> None:
    def flight(*, cordoned: bool) -> NodeView:
        state = UpgradeState.VALIDATION_REQUIRED
        managers = owned("kubectl") if cordoned else owned()
        return in_flight_node(
            state,
            name="n",
            record={"operation": operation},
            cordoned=cordoned,
            field_managers=managers,
        )

    assert told(flight(cordoned=True), flight(cordoned=False)) == texts


def test_a_new_node_of_the_same_name_is_not_compared_with_the_old_one() -> None:
    assert told(FREE, at_rest("kubectl", cordoned=True, uid="another")) == []
    cordons = Cordons()
    cordons.change_of(FREE)
    cordons.forget("n")
    assert cordons.change_of(BY_KUBECTL) is None
