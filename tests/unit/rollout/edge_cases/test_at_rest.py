"""Which driver runs on a node at rest, and whether the record proves it."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.contracts.node import NodeRecord, Operation
from libs.contracts.reports import Evidence
from libs.policy.wanted import InstallMethod
from libs.rollout.at_rest import step_at_rest
from libs.rollout.at_rest.operations import choose_operation, is_restart_only
from libs.rollout.at_rest.running_driver import (
    DriverRun,
    covers_run,
    driver_pod_of,
    is_in_place,
    passed_evidence,
)
from libs.rollout.decision import Candidate
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    build,
    done,
    driver_pod,
    evidence,
    failed,
    instant,
    label_of,
    pool,
    required,
    with_record,
)
from tests.unit.rollout.outcomes import wait_of

LABEL = label_of(NEW)


def record_of(view: NodeView) -> NodeRecord:
    assert isinstance(view.record, NodeRecord)
    return view.record


def in_place(view: NodeView, method: InstallMethod = InstallMethod.CONTAINER) -> bool:
    return is_in_place(view, record_of(view), LABEL, method)


def test_the_driver_pod_has_the_label_of_its_node() -> None:
    old, new = driver_pod(OLD), driver_pod(NEW)
    view = done(driver_pods=(old, replace(new, uid="going", deleting=True), new))
    assert driver_pod_of(view) == new


def test_the_driver_pod_is_the_most_advanced_one_in_any_order() -> None:
    waits = driver_pod(NEW, uid="waits", started=None, ready=False)
    starts, up = driver_pod(NEW, uid="starts", ready=False), driver_pod(NEW, uid="a")
    for pods, which in (((waits, starts), starts), ((waits, starts, up), up)):
        assert driver_pod_of(done(driver_pods=pods)) == which
        assert driver_pod_of(done(driver_pods=tuple(reversed(pods)))) == which


@pytest.mark.parametrize(("apart", "same"), [(0.9, True), (1.0, False), (-0.9, True)])
def test_starts_less_than_a_second_apart_are_the_same_run(apart: float, *, same: bool) -> None:
    proof = evidence()
    start = proof.driver_started + apart
    run = DriverRun(instance="i", started=start, pod_uid=proof.driver_pod_uid)
    assert covers_run(proof, run) is same
    assert in_place(done(driver_pods=(driver_pod(NEW, started=start),))) is same
    loaded = LoadedDriver(version="1", loaded_at=start)
    assert in_place(done(loaded=loaded), InstallMethod.HOST) is same


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"passed": False}, False),
        ({"node_uid": "another"}, False),
        ({"label": "another"}, False),
    ],
)
def test_passed_evidence_is_about_this_node_and_label(
    changes: dict[str, Any], *, counts: bool
) -> None:
    view = with_record(done(), evidence=evidence(**changes))
    assert (passed_evidence(view, record_of(view)) is not None) is counts
    assert in_place(view) is counts


def test_a_driver_under_another_label_is_not_in_place() -> None:
    assert in_place(done())
    assert not in_place(done(driver_label="another"))


@pytest.mark.parametrize(
    ("proof", "again"),
    [
        (evidence(passed=False), False),
        (evidence(passed=False, driver_pod_uid="before"), True),
        (evidence(), True),
    ],
)
def test_a_failed_node_is_validated_once_per_driver_run(proof: Evidence, *, again: bool) -> None:
    view = replace(with_record(failed(), revalidated="", attempt=9), evidence=proof)
    outcome = step_at_rest(view, pool(), instant())
    assert isinstance(outcome, Candidate) is again


@pytest.mark.parametrize(
    ("cause", "said"), [("validation: cuda", "validation: cuda"), ("", "its attempt failed")]
)
def test_a_failed_node_reports_its_cause(cause: str, said: str) -> None:
    outcome = wait_of(
        step_at_rest(with_record(failed(), cause=cause, attempt=9), pool(), instant())
    )
    assert outcome.detail == said


OURS = LoadedDriver(version="1", loaded_at=NOW - 5)
THEIRS = replace(OURS, preinstalled=True)


@pytest.mark.parametrize(
    ("label", "loaded", "pods", "expected"),
    [
        (label_of(OLD), OURS, (), Operation.REMOVE),
        (label_of(OLD), THEIRS, (driver_pod(OLD),), Operation.REMOVE),
        (label_of(OLD), THEIRS, (), Operation.VALIDATE),
        ("", OURS, (), Operation.VALIDATE),
        (LABEL, OURS, (driver_pod(NEW),), Operation.VALIDATE),
    ],
)
def test_a_driver_of_ours_is_removed_where_drivers_are_pre_installed(
    label: str, loaded: LoadedDriver, pods: tuple[DriverPod, ...], expected: Operation
) -> None:
    view = done(driver_label=label, loaded=loaded, driver_pods=pods)
    made = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    assert choose_operation(view, record_of(view), made, build(NEW), instant()) is expected


@pytest.mark.parametrize(("digest", "only"), [("sha256:1", True), ("", False)])
def test_an_unknown_digest_is_never_the_same_installation(digest: str, *, only: bool) -> None:
    view = required(driver_pods=(driver_pod(OLD, install_digest=digest),))
    assert is_restart_only(view, record_of(view), build(NEW, install_digest=digest)) is only
    stays = with_record(view, asked=False)
    assert not is_restart_only(stays, record_of(stays), build(OLD, install_digest=digest))
