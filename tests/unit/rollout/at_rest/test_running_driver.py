"""Which driver runs on a node at rest, and whether the record proves it."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Proven
from libs.contracts.facts import LoadedDriver
from libs.contracts.node import LeaseOwner, NodeRecord, Operation
from libs.contracts.waits import WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import Candidate, Step, Wait
from libs.rollout.node_driver import (
    DriverRun,
    covers_run,
    driver_pod_of,
    goal_of,
    is_in_place,
    passed_evidence,
    target_of,
)
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Readiness
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    TOKEN,
    command,
    component,
    done,
    driver_pod,
    evidence,
    idle_components,
    install_of,
    label_of,
    lease,
    node,
    node_case,
    on_host,
    pool,
    record,
    required,
    step_at_rest,
    with_build,
    with_record,
)
from tests.unit.rollout.outcomes import candidate_of, wait_of

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
    waiting = driver_pod(NEW, uid="waits", started=None, ready=False)
    starting, ready = driver_pod(NEW, uid="starts", ready=False), driver_pod(NEW, uid="a")
    for pods, expected in (((waiting, starting), starting), ((waiting, starting, ready), ready)):
        assert driver_pod_of(done(driver_pods=pods)) == expected
        assert driver_pod_of(done(driver_pods=tuple(reversed(pods)))) == expected


@pytest.mark.parametrize(("seconds", "same"), [(0.9, True), (1.0, False), (-0.9, True)])
def test_starts_less_than_a_second_apart_are_the_same_run(seconds: float, *, same: bool) -> None:
    proof = evidence()
    start = proof.driver_started + seconds
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


# When a node is in place: everything has to match (docs/states.md#d-12).


def proof(node: NodeView, **changes: Any) -> NodeView:
    return with_record(node, evidence=evidence(**changes))


def test_a_done_node_that_runs_what_was_proven_is_in_place() -> None:
    assert step_at_rest(done()) is None


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
    assert step_at_rest(done(lease=lease_of)) is None


def test_fractions_of_a_second_name_the_same_start() -> None:
    node = proof(done(), driver_started=NOW - 3600 + 0.7)
    assert step_at_rest(node) is None


DIFFERENT = {
    "another boot": done(boot_id="boot-2"),
    "another kernel": done(kernel="6.8.0-48-generic"),
    "another pod": done(driver_pods=(driver_pod(uid="pod-other"),)),
    "another start": done(driver_pods=(driver_pod(started=NOW - 60),)),
    "no pod": done(driver_pods=()),
    "a pod being deleted": done(driver_pods=(driver_pod(deleting=True),)),
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
    assert isinstance(step_at_rest(DIFFERENT[case]), Step | Wait | Candidate)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"readiness": Readiness.UNSETTLED, "detail": "generation 3 of 4"}, "target-unsettled"),
        ({"readiness": Readiness.MISSING}, "target-missing"),
    ],
)
def test_an_unsettled_target_is_never_in_place(changes: Any, code: str) -> None:
    outcome = wait_of(step_at_rest(done(), with_build(pool(), **changes)))
    assert outcome.code == code
    assert changes.get("detail", NEW) in outcome.detail


def test_with_the_host_method_the_loaded_modules_are_compared() -> None:
    loaded = LoadedDriver(version="580.1", loaded_at=NOW - 100)
    node = done(driver_pods=(), loaded=loaded)
    node = proof(node, driver_pod_uid="", driver_started=NOW - 100)
    named = Proven(label=node.driver_label, kernel=node.kernel, install_digest=install_of(NEW))
    known = Idle(proven=named)
    slots = {part: component(command(known, order=(TOKEN, 2))) for part in ("driver", "validator")}
    node = replace(node, components={**node.components, **slots})
    assert step_at_rest(node, on_host(pool())) is None
    assert step_at_rest(node, replace(pool(), method=InstallMethod.PRE_INSTALLED)) is None
    reloaded = replace(node, loaded=replace(loaded, loaded_at=NOW - 50))
    assert isinstance(step_at_rest(reloaded, on_host(pool())), Step)
    wait = wait_of(step_at_rest(replace(node, loaded=None), on_host(pool())))
    assert wait.code is WaitCode.DRIVER_START


def test_a_done_node_on_another_target_is_not_in_place() -> None:
    assert isinstance(step_at_rest(done(target=OLD), pool(NEW)), Step)
    candidate = candidate_of(
        step_at_rest(done(target=OLD), pool(NEW, constraints={"may_mark_required": False}))
    )
    assert candidate.operation is Operation.UPGRADE


# The target of a joining node, and which nodes are outside the counts (docs/states.md#harm).


LOADED = LoadedDriver(version="570.1")

# Nodes that join, while a target proves itself or is halted (docs/states.md#harm).

JOINS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing was ever proven": ({}, NEW),
    "the target is proven": ({"proven": frozenset({NEW, OLD}), "last_good": NEW}, NEW),
    "the target is proven, and an earlier target too": (
        {"proven": frozenset({NEW}), "last_good": OLD},
        NEW,
    ),
    "the target proves itself": ({"proven": frozenset({OLD}), "last_good": OLD}, OLD),
    "target: halted": (
        {"halted": {NEW: "2 of 2"}, "proven": frozenset({OLD}), "last_good": OLD},
        OLD,
    ),
    "target: halted, and no other target is proven": ({"halted": {NEW: "2 of 2"}}, NEW),
}


@pytest.mark.parametrize("case", JOINS)
@pytest.mark.parametrize("join", [node(), node(loaded=LOADED)], ids=["empty", "in use"])
def test_a_joining_node_gets_the_proven_target(case: str, join: NodeView) -> None:
    constraints, target = JOINS[case]
    outcome = candidate_of(step_at_rest(join, pool(constraints=constraints)))
    assert (outcome.target, outcome.label) == (target, label_of(target))


def test_a_joining_node_gets_the_wanted_target_where_the_last_good_has_no_build() -> None:
    constraints = {"proven": frozenset({OLD}), "last_good": OLD}
    outcome = candidate_of(step_at_rest(node(), pool(targets=(NEW,), constraints=constraints)))
    assert outcome.target == NEW


@pytest.mark.parametrize("readiness", [Readiness.UNSETTLED, Readiness.MISSING])
def test_a_joining_node_gets_the_last_good_target_while_the_wanted_one_is_not_ready(
    readiness: Readiness,
) -> None:
    good = pool(constraints={"proven": frozenset({OLD}), "last_good": OLD})
    outcome = candidate_of(step_at_rest(node(), with_build(good, readiness=readiness)))
    assert outcome.target == OLD


def test_a_released_bring_up_still_joins() -> None:
    given_back = record(state="upgrade-required", operation=None, label="", label_before="")
    joining = node(state="upgrade-required", record=given_back, components=idle_components())
    constraints = {"proven": frozenset({OLD}), "last_good": OLD}
    outcome = candidate_of(step_at_rest(joining, pool(constraints=constraints)))
    assert (outcome.operation, outcome.target) == (Operation.BRING_UP, OLD)


def test_an_upgraded_node_does_not_join() -> None:
    constraints = {"proven": frozenset({OLD}), "last_good": OLD}
    assert candidate_of(step_at_rest(required(), pool(constraints=constraints))).target == NEW


# Outside the counts of bounded harm: only nodes that are broken already.

OUTSIDE: dict[str, tuple[dict[str, Any], bool]] = {
    "failed on an earlier target": ({"started": True, "unproven": True, "target": OLD}, True),
    "adopted, with labels that say it was moving to an earlier target": (
        {"started": True, "target": OLD},
        False,
    ),
    "failed on an earlier target, was retried, and released": (
        {"unproven": True, "target": OLD},
        True,
    ),
    "failed before the start on an earlier target, and its driver is still proven": (
        {"unproven": True, "target": OLD, "evidence": evidence(OLD)},
        False,
    ),
    "failed on this target": ({"started": True, "unproven": True, "target": NEW}, False),
    "failed on this target, and before on an earlier target": (
        {"started": True, "unproven": True, "target": NEW, "outside": True},
        True,
    ),
    "failed on an earlier target before the start": ({"target": OLD}, False),
    "was released after an earlier failure": ({"target": NEW, "outside": True}, True),
    "works": ({"started": True, "target": OLD, "evidence": evidence(OLD)}, False),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_only_a_node_broken_by_an_earlier_target_is_outside_the_counts(case: str) -> None:
    changes, outside = OUTSIDE[case]
    stored = record(state="upgrade-required", label=label_of(OLD), **changes)
    proven_label = label_of(OLD) if stored.evidence else ""
    wanting = required(record=stored, components=idle_components(proven=proven_label))
    assert candidate_of(step_at_rest(wanting)).outside is outside


@pytest.mark.parametrize(
    ("started", "expected"),
    [(False, (Operation.TAKE_OVER, False)), (True, (Operation.UPGRADE, True))],
)
def test_a_node_that_never_got_a_driver_of_ours_is_inside_the_counts(
    expected: tuple[Operation, bool], *, started: bool
) -> None:
    stored = record(
        state="upgrade-required",
        label=label_of(OLD),
        target=OLD,
        unproven=True,
        started=started,
    )
    unlabelled = node(record=stored, state="upgrade-required", loaded=LOADED)
    outcome = candidate_of(step_at_rest(replace(unlabelled, components=idle_components())))
    assert (outcome.operation, outcome.outside) == expected


@pytest.mark.parametrize(
    ("readiness", "expected"), [(Readiness.UNSETTLED, OLD), (Readiness.MISSING, NEW)]
)
def test_a_joining_node_waits_for_an_unsettled_last_good_target(
    readiness: Readiness, expected: str
) -> None:
    pool_view = with_build(pool(constraints={"last_good": OLD}), OLD, readiness=readiness)
    assert target_of(node_case(node(), pool_view)) == expected


def test_a_joining_node_keeps_a_pre_installed_driver() -> None:
    pool_view = replace(pool(constraints={"last_good": OLD}), method=InstallMethod.PRE_INSTALLED)
    assert target_of(node_case(node(), pool_view)) == NEW


@pytest.mark.parametrize(
    ("held", "expected"), [(("no such image",), "no such image"), ((), "policy")]
)
def test_a_missing_target_reports_why_nothing_is_wanted(
    held: tuple[str, ...], expected: str
) -> None:
    goal = wait_of(goal_of(node_case(node(), replace(pool(), errors=held)), ""))
    assert goal.code is WaitCode.TARGET_MISSING
    assert expected in goal.detail


@pytest.mark.parametrize(
    ("detail", "expected"), [("no artefact", "no artefact"), ("", "ubuntu24.04")]
)
def test_a_missing_build_reports_its_detail(detail: str, expected: str) -> None:
    pool_view = with_build(pool(), readiness=Readiness.MISSING, detail=detail)
    assert expected in wait_of(goal_of(node_case(node(), pool_view), NEW)).detail
