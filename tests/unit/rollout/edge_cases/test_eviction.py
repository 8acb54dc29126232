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
from tests.unit.rollout.outcomes import record_in, slot_writes, step_of, wait_of

S = UpgradeState


def test_pod_deletion_rules_apply_to_gpu_pods_only() -> None:
    plain = WorkloadPod(namespace="ml", name="web", uid="uid-web", drained=True, bare=True)
    options: dict[str, Any] = {"pod_deletion": PodDeletion(force=True), "drain": Drain(enable=True)}
    view = emptying.evicting(S.DRAIN_REQUIRED, plain)
    assert wait_of(emptying.outcome_of(view, **options)).detail == "ml/web (bare, and force is off)"


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
def test_a_drain_takes_the_pods_that_deletion_leaves(
    pod: WorkloadPod, rules: Drain, *, drains: bool
) -> None:
    outcome = emptying.outcome_of(emptying.evicting(S.POD_DELETION_REQUIRED, pod), drain=rules)
    if drains:
        assert record_in(outcome).state == S.DRAIN_REQUIRED
    else:
        assert wait_of(outcome).detail == "ml/train (emptyDir, and deleteEmptyDir is off)"


@pytest.mark.parametrize("pod", [{"drained": False}, {"exemption": EvictionExemption.DAEMON_SET}])
def test_a_drain_that_would_evict_nothing_is_skipped(pod: dict[str, Any]) -> None:
    plain = replace(WorkloadPod(namespace="ml", name="web", uid="uid-web", drained=True), **pod)
    outcome = emptying.outcome_of(emptying.evicting(S.POD_DELETION_REQUIRED, plain), drain=DRAINS)
    assert set(slot_writes(outcome).values()) == {Quiesce()}


def test_a_terminating_pod_is_neither_evicted_again_nor_dropped() -> None:
    leaves = emptying.work(deleting=True)
    view = emptying.with_evictions(emptying.evicting(S.POD_DELETION_REQUIRED, leaves), leaves)
    assert wait_of(emptying.outcome_of(view)).detail == "ml/train-0 (terminating)"


def test_the_eviction_is_cancelled_when_its_pod_may_stay() -> None:
    other, stays = (
        emptying.work("other", exemption=EvictionExemption.OPERAND),
        emptying.work("stays", bare=True),
    )
    view = emptying.with_evictions(emptying.evicting(S.POD_DELETION_REQUIRED, other, stays), stays)
    step = step_of(emptying.outcome_of(view))
    assert step.actions == (EvictPods(pods=()),)
    assert step.because == "pods that were asked to leave may stay"
    assert step_of(
        emptying.outcome_of(emptying.evicting(S.POD_DELETION_REQUIRED, emptying.work()))
    ).because == ("pods are asked to leave: ml/train-0")


def forced(view: NodeView) -> NodeOutcome:
    return emptying.outcome_of(view, NOW + 250, eviction=OnEvictionTimeout.FORCE_DELETE)


def test_after_the_limit_pods_are_deleted_by_force_once() -> None:
    pod, gone = emptying.work(), emptying.work("gone")
    view = emptying.with_evictions(emptying.evicting(S.POD_DELETION_REQUIRED, pod), pod)
    step = step_of(forced(view))
    assert step.actions == (EvictPods(pods=emptying.refs(pod), by_force=True),)
    assert step.because == "pods are deleted by force: ml/train-0"
    again = replace(view, evictions=(*emptying.with_evictions(view, pod, by_force=True).evictions,))
    mixed = replace(
        view, evictions=(*again.evictions, *emptying.with_evictions(view, gone).evictions)
    )
    for one in (again, mixed):
        assert wait_of(forced(one)).detail == "ml/train-0"


def test_a_refusal_names_only_the_pod_that_the_budget_protects() -> None:
    held, leaves = emptying.work("held"), emptying.work("leaves")
    view = emptying.evicting(S.POD_DELETION_REQUIRED, held, leaves)
    jobs = (
        *emptying.with_evictions(view, held, refused="a budget allows none").evictions,
        *emptying.with_evictions(view, leaves).evictions,
    )
    wait = wait_of(emptying.outcome_of(replace(view, evictions=jobs)))
    assert (wait.code, wait.detail) == (WaitCode.PDB, "ml/held: a budget allows none")
