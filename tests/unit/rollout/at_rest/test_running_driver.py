"""Which driver runs on a node at rest, and whether the record proves it."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.contracts.node import NodeRecord
from libs.policy.wanted import InstallMethod
from libs.rollout.node_driver import (
    DriverRun,
    covers_run,
    driver_pod_of,
    is_in_place,
    passed_evidence,
)
from libs.rollout.views.node import NodeView
from tests.unit.rollout.builders import NEW, OLD, done, driver_pod, evidence, label_of, with_record

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
