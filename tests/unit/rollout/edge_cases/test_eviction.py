"""Step 4 at the edges: which pods leave by whose rules, who is asked, and who is let off."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Quiesce
from libs.contracts.node import (
    UpgradeState,
)
from libs.contracts.waits import WaitCode
from libs.policy.kinds.strategy import OnEvictionTimeout
from libs.policy.kinds.upgrade_policy import Drain, PodDeletion
from libs.rollout.decision import EvictPods, NodeOutcome
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import NOW
from tests.unit.rollout.in_flight import test_eviction as emptying
from tests.unit.rollout.in_flight.step_runner import record_in, slot_writes, step_of, wait_of

S = UpgradeState


def test_rules_for_pods_with_gpus_are_for_those_alone() -> None:
    plain = WorkloadPod(namespace="ml", name="web", uid="uid-web", drained=True, bare=True)
    options: dict[str, Any] = {"pod_deletion": PodDeletion(force=True), "drain": Drain(enable=True)}
    view = emptying.flight(S.DRAIN_REQUIRED, plain)
    assert (
        wait_of(emptying.outcome_of(view, **options)).detail
        == "waiting for pods to leave: ml/web (no controller, and force is off)"
    )


GPU_OF_DRAIN = emptying.work("train", drained=True, empty_dir=True)
"""Only the rules of a drain let it go."""
DRAINS = Drain(enable=True, delete_empty_dir=True)


@pytest.mark.parametrize(
    ("pod", "rules", "drains"),
    [
        (GPU_OF_DRAIN, DRAINS, True),
        (GPU_OF_DRAIN, replace(DRAINS, enable=False), False),
        (replace(GPU_OF_DRAIN, drained=False), DRAINS, False),
    ],
)
def test_a_drain_takes_what_deletion_leaves_if_it_may(
    pod: WorkloadPod, rules: Drain, *, drains: bool
) -> None:
    outcome = emptying.outcome_of(emptying.flight(S.POD_DELETION_REQUIRED, pod), drain=rules)
    if drains:
        assert record_in(outcome).state == S.DRAIN_REQUIRED
    else:
        assert (
            wait_of(outcome).detail
            == "waiting for pods to leave: ml/train (emptyDir, and deleteEmptyDir is off)"
        )


@pytest.mark.parametrize("pod", [{"drained": False}, {"exemption": EvictionExemption.DAEMON_SET}])
def test_a_drain_in_which_nobody_would_leave_is_passed_by(pod: dict[str, Any]) -> None:
    plain = replace(WorkloadPod(namespace="ml", name="web", uid="uid-web", drained=True), **pod)
    outcome = emptying.outcome_of(emptying.flight(S.POD_DELETION_REQUIRED, plain), drain=DRAINS)
    assert set(slot_writes(outcome).values()) == {Quiesce()}


def test_who_was_asked_and_is_on_its_way_out_is_neither_asked_again_nor_let_off() -> None:
    leaves = emptying.work(deleting=True)
    view = emptying.asked(emptying.flight(S.POD_DELETION_REQUIRED, leaves), leaves)
    assert (
        wait_of(emptying.outcome_of(view)).detail
        == "waiting for pods to leave: ml/train-0 (terminating)"
    )


def test_who_is_not_to_leave_any_more_is_told_so() -> None:
    other, stays = (
        emptying.work("other", exemption=EvictionExemption.OPERAND),
        emptying.work("stays", bare=True),
    )
    view = emptying.asked(emptying.flight(S.POD_DELETION_REQUIRED, other, stays), stays)
    step = step_of(emptying.outcome_of(view))
    assert step.actions == (EvictPods(pods=()),)
    assert step.because == "cancel evictions: the remaining pods may stay"
    assert step_of(
        emptying.outcome_of(emptying.flight(S.POD_DELETION_REQUIRED, emptying.work()))
    ).because == ("evict pods: ml/train-0")


def forced(view: NodeView) -> NodeOutcome:
    """The limit has passed, and the strategy deletes by force."""
    return emptying.outcome_of(view, NOW + 250, eviction=OnEvictionTimeout.FORCE_DELETE)


def test_after_the_limit_those_that_were_asked_are_deleted_by_force_once() -> None:
    pod, gone = emptying.work(), emptying.work("gone")
    view = emptying.asked(emptying.flight(S.POD_DELETION_REQUIRED, pod), pod)
    step = step_of(forced(view))
    assert step.actions == (EvictPods(pods=emptying.refs(pod), by_force=True),)
    assert step.because == "delete pods: ml/train-0"
    again = replace(view, evictions=(*emptying.asked(view, pod, by_force=True).evictions,))
    mixed = replace(view, evictions=(*again.evictions, *emptying.asked(view, gone).evictions))
    for one in (again, mixed):
        assert wait_of(forced(one)).detail == "waiting for pods to leave: ml/train-0"


def test_only_the_pod_that_a_budget_holds_is_named_with_it() -> None:
    held, leaves = emptying.work("held"), emptying.work("leaves")
    view = emptying.flight(S.POD_DELETION_REQUIRED, held, leaves)
    jobs = (
        *emptying.asked(view, held, refused="a budget allows none").evictions,
        *emptying.asked(view, leaves).evictions,
    )
    wait = wait_of(emptying.outcome_of(replace(view, evictions=jobs)))
    assert (wait.code, wait.detail) == (
        WaitCode.PDB,
        "eviction refused by a disruption budget: ml/held: a budget allows none",
    )
