"""Pods whose resource claims are not known: waited for, and never evicted for that."""

from typing import Any

import pytest

from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.policy.kinds.strategy import OnEvictionTimeout
from libs.policy.kinds.upgrade_policy import Drain
from libs.rollout.decision import Wait
from libs.rollout.node_driver import is_occupied
from libs.rollout.views.machine import EvictionExemption
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import NOW, node, required, step_at_rest
from tests.unit.rollout.in_flight.test_eviction import evicted, evicting, outcome_of, work
from tests.unit.rollout.outcomes import record_in, step_of, wait_of

UNKNOWN: dict[str, Any] = {"gpu": False, "claims_unknown": True}
PODS_LEAVE = UpgradeState.POD_DELETION_REQUIRED


def with_unknown_pod(**changes: Any) -> NodeView:
    return evicting(PODS_LEAVE, work("claims", **UNKNOWN, **changes))


@pytest.mark.parametrize(
    "exemption",
    [EvictionExemption.NONE, EvictionExemption.DAEMON_SET, EvictionExemption.MIRROR],
)
def test_a_pod_with_unknown_claims_is_waited_for(exemption: EvictionExemption) -> None:
    wait = wait_of(outcome_of(with_unknown_pod(exemption=exemption)))
    assert wait.code is WaitCode.EVICTION
    assert "ml/claims (its resource claims are not known)" in wait.detail


def test_only_known_gpu_pods_are_evicted_beside_it() -> None:
    view = evicting(PODS_LEAVE, work("claims", **UNKNOWN), work())
    assert [pod.name for pod in evicted(outcome_of(view)).pods] == ["train-0"]


def test_a_pod_with_unknown_claims_is_not_deleted_by_force() -> None:
    late = outcome_of(with_unknown_pod(), NOW + 300, eviction=OnEvictionTimeout.FORCE_DELETE)
    assert isinstance(late, Wait)


def test_a_drain_evicts_a_pod_with_unknown_claims() -> None:
    drain = Drain(enable=True)
    outcome = outcome_of(with_unknown_pod(drained=True), drain=drain)
    assert record_in(outcome).state == UpgradeState.DRAIN_REQUIRED
    view = evicting(UpgradeState.DRAIN_REQUIRED, work("claims", drained=True, **UNKNOWN))
    assert [pod.name for pod in evicted(outcome_of(view, drain=drain)).pods] == ["claims"]


def test_exempted_pods_need_no_claims() -> None:
    exempted = with_unknown_pod(exemption=EvictionExemption.DRAIN_SKIP)
    assert step_of(outcome_of(exempted)).actions


def test_a_node_with_unknown_claims_does_not_start() -> None:
    wait = wait_of(step_at_rest(required(pods=(work("claims", **UNKNOWN),))))
    assert wait.code is WaitCode.PREFLIGHT
    assert "resource claim" in wait.detail
    assert "ml/claims" in wait.detail


def test_a_node_with_unknown_claims_is_not_known_to_be_empty() -> None:
    assert is_occupied(node(pods=(work("claims", **UNKNOWN),), modules_reported=True))
    assert is_occupied(node(pods=(work("web", gpu=False),), modules_reported=True)) is False
