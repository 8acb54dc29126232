"""When a node is in place: everything has to match (docs/states.md#d-12)."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.contracts.node import LeaseOwner, Operation, WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.at_rest import step_at_rest
from libs.rollout.decision import Candidate, Step, Wait
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Readiness
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    done,
    driver_pod,
    evidence,
    instant,
    label_of,
    lease,
    on_host,
    pool,
    with_build,
    with_record,
)
from tests.unit.rollout.outcomes import candidate_of, wait_of


def proof(node: NodeView, **changes: Any) -> NodeView:
    return with_record(node, evidence=evidence(**changes))


def test_a_done_node_that_runs_what_was_proven_is_in_place() -> None:
    assert step_at_rest(done(), pool(), instant()) is None


@pytest.mark.parametrize(
    "lease_of",
    [
        lease(owner=LeaseOwner.HUMAN),
        lease(owner=LeaseOwner.REPAIR),
        lease(node_uid="uid-of-earlier"),
    ],
    ids=["human", "repair", "of an earlier node"],
)
def test_a_foreign_lease_does_not_matter_in_place(lease_of: Any) -> None:
    assert step_at_rest(done(lease=lease_of), pool(), instant()) is None


def test_fractions_of_a_second_name_the_same_start() -> None:
    node = proof(done(), driver_started=NOW - 3600 + 0.7)
    assert step_at_rest(node, pool(), instant()) is None


DIFFERENT = {
    "another boot": done(boot_id="boot-2"),
    "another kernel": done(kernel="6.8.0-48-generic"),
    "another pod": done(driver_pods=(driver_pod(uid="pod-other"),)),
    "another start": done(driver_pods=(driver_pod(started=NOW - 60),)),
    "no pod": done(driver_pods=()),
    "a pod that goes": done(driver_pods=(driver_pod(deleting=True),)),
    "a pod that is not ready": done(driver_pods=(driver_pod(ready=False),)),
    "a pod that does not run": done(driver_pods=(driver_pod(started=None),)),
    "a pod of another label": done(driver_pods=(driver_pod(label=label_of(OLD)),)),
    "excluded": done(excluded=True),
    "waits for safe load": done(safe_load=True),
    "of another pool": done(pool="nvidiadriver-other"),
    "of an unknown variant": done(variant=""),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_any_difference_means_not_in_place(case: str) -> None:
    assert isinstance(step_at_rest(DIFFERENT[case], pool(), instant()), Step | Wait | Candidate)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"readiness": Readiness.UNSETTLED, "detail": "generation 3 of 4"}, "target-unsettled"),
        ({"readiness": Readiness.MISSING}, "target-missing"),
    ],
)
def test_an_unsettled_target_is_never_in_place(changes: Any, code: str) -> None:
    outcome = wait_of(step_at_rest(done(), with_build(pool(), **changes), instant()))
    assert outcome.code == code
    assert changes.get("detail", NEW) in outcome.detail


def test_with_the_host_method_the_loaded_modules_are_compared() -> None:
    loaded = LoadedDriver(version="580.1", loaded_at=NOW - 100)
    node = done(driver_pods=(), loaded=loaded)
    node = proof(node, driver_pod_uid="", driver_started=NOW - 100)
    assert step_at_rest(node, on_host(pool()), instant()) is None
    assert (
        step_at_rest(node, replace(pool(), method=InstallMethod.PRE_INSTALLED), instant()) is None
    )
    again = replace(node, loaded=replace(loaded, loaded_at=NOW - 50))
    assert isinstance(step_at_rest(again, on_host(pool()), instant()), Step)
    gone = wait_of(step_at_rest(replace(node, loaded=None), on_host(pool()), instant()))
    assert gone.code is WaitCode.DRIVER_START


def test_a_done_node_on_another_target_is_not_in_place() -> None:
    assert isinstance(step_at_rest(done(target=OLD), pool(NEW), instant()), Step)
    again = candidate_of(
        step_at_rest(done(target=OLD), pool(NEW, standing={"may_mark_required": False}), instant())
    )
    assert again.operation is Operation.UPGRADE
