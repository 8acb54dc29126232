"""The operation of a node: a case for each of docs/states.md#variations."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.contracts.node import NodeRecord, Operation
from libs.contracts.reports import PodUse, Usage
from libs.contracts.waits import WaitCode
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import Candidate, NodeApplyConfiguration, Step, Wait, WriteNode
from libs.rollout.eligibility import choose_operation, is_restart_only
from libs.rollout.views.machine import DriverPod, WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    VARIANT,
    apply_step,
    build,
    done,
    driver_pod,
    failed,
    idle_components,
    install_of,
    label_of,
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
from tests.unit.rollout.outcomes import candidate_of, only_action, step_of, wait_of

GPU_POD = WorkloadPod(namespace="ml", name="train-0", uid="pod-train", gpu=True)
LOADED = LoadedDriver(version="570.1", loaded_at=NOW - 999)
PREINSTALLED = replace(pool(), method=InstallMethod.PRE_INSTALLED)
SAME_INSTALL = with_build(pool(), install_digest=install_of(OLD))


def requested(target: str = NEW, **changes: Any) -> NodeView:
    view = required(target=target)
    return replace(with_record(view, asked=True), **changes)


def unproven(node: NodeView) -> NodeView:
    return replace(with_record(node, evidence=None), components=idle_components())


Case = tuple[NodeView, PoolView, Operation]
ROWS: dict[str, Case] = {
    "another target": (required(), pool(), Operation.UPGRADE),
    "restart only": (required(), SAME_INSTALL, Operation.RESTART),
    "same install, but another version is loaded": (
        required(loaded=replace(LOADED, version="1")),
        SAME_INSTALL,
        Operation.UPGRADE,
    ),
    "same install, but nothing is loaded": (required(loaded=None), SAME_INSTALL, Operation.UPGRADE),
    "same install, but the pod is of another one": (
        required(driver_pods=(driver_pod(OLD, install_digest="x"),)),
        SAME_INSTALL,
        Operation.UPGRADE,
    ),
    "same install, but proven in another boot": (
        required(boot_id="boot-2"),
        SAME_INSTALL,
        Operation.UPGRADE,
    ),
    "same install, but a person asked": (requested(OLD), SAME_INSTALL, Operation.UPGRADE),
    "same install, but the driver waits to load": (
        required(safe_load=True),
        SAME_INSTALL,
        Operation.UPGRADE,
    ),
    "same label: a retry that a person asked for": (requested(), pool(), Operation.SAME_LABEL),
    "same label: the driver waits to load": (
        required(target=NEW, safe_load=True),
        pool(),
        Operation.SAME_LABEL,
    ),
    "same label: a new kernel": (
        required(target=NEW, kernel="6.8.0-48-generic"),
        pool(),
        Operation.SAME_LABEL,
    ),
    "same label: it was stripped": (
        required(target=NEW, driver_label="", components=idle_components()),
        pool(),
        Operation.SAME_LABEL,
    ),
    "variant changed by a reboot": (
        required(target=NEW, variant="ubuntu26.04", boot_id="boot-2"),
        pool(variants=(VARIANT, "ubuntu26.04")),
        Operation.UPGRADE,
    ),
    "first bring-up": (node(), pool(), Operation.BRING_UP),
    "take-over: modules are loaded": (node(loaded=LOADED), pool(), Operation.TAKE_OVER),
    "take-over: a pod has GPUs": (
        node(usage=Usage(pods=(PodUse(pod_uid="p", gpus=1),))),
        pool(),
        Operation.TAKE_OVER,
    ),
    "take-over: a pod with GPUs is listed": (node(pods=(GPU_POD,)), pool(), Operation.TAKE_OVER),
    "a recreated Node on a running machine": (
        replace(
            done(components={}),
            components=node().components,
            record=record(node_uid="uid-of-earlier"),
        ),
        pool(constraints={"proven": frozenset({NEW})}, target=OLD),
        Operation.TAKE_OVER,
    ),
    "host method": (required(), on_host(pool()), Operation.INSTALL),
    "host method, retry": (requested(), on_host(pool()), Operation.INSTALL),
    "host method, machine in use": (node(loaded=LOADED), on_host(pool()), Operation.INSTALL),
    "host method, machine empty": (node(), on_host(pool()), Operation.BRING_UP),
    "pre-installed": (
        node(loaded=replace(LOADED, preinstalled=True)),
        PREINSTALLED,
        Operation.VALIDATE,
    ),
    "pre-installed, after another pre-installed": (
        required(loaded=replace(LOADED, preinstalled=True), driver_pods=()),
        PREINSTALLED,
        Operation.VALIDATE,
    ),
    "pre-installed from now on, with a driver of ours": (
        required(),
        PREINSTALLED,
        Operation.REMOVE,
    ),
    "no record, and the label is right": (
        replace(done(), record=None, state="", field_managers={}),
        pool(),
        Operation.VALIDATE,
    ),
    "remove: excluded": (done(excluded=True), pool(), Operation.REMOVE),
    "remove: it left the pool": (done(pool="nvidiadriver-a"), pool(), Operation.REMOVE),
    "the pool before is gone": (
        required(pool="nvidiadriver-a"),
        replace(pool(), key="nvidiadriver-a"),
        Operation.UPGRADE,
    ),
    "failed before its label moved, and retried": (
        unproven(required()),
        pool(),
        Operation.UPGRADE,
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_variation_has_its_operation(row: str) -> None:
    node, pool, operation = ROWS[row]
    assert candidate_of(step_at_rest(node, pool)).operation is operation


def test_a_removal_has_neither_target_nor_label() -> None:
    outcome = candidate_of(step_at_rest(done(excluded=True)))
    assert (outcome.target, outcome.label, outcome.outside) == ("", "", False)


def test_a_validation_is_outside_the_counts_without_a_preflight() -> None:
    outcome = step_at_rest(ROWS["pre-installed"][0], PREINSTALLED)
    assert outcome == Candidate(
        operation=Operation.VALIDATE, target=NEW, label=label_of(NEW), outside=True, by_hand=True
    )


UNKNOWN: dict[str, NodeView] = {
    "modules are not known": node(modules_reported=False),
    "pods are not known": node(usage=None),
    "neither is known": node(modules_reported=False, usage=None),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_modules_or_pods_are_not_treated_as_absent(case: str) -> None:
    assert wait_of(step_at_rest(UNKNOWN[case])).code == WaitCode.AGENT_SILENT


def test_a_list_of_pods_replaces_a_missing_usage_report() -> None:
    outcome = candidate_of(step_at_rest(node(usage=None, pods=())))
    assert outcome.operation is Operation.BRING_UP


def test_a_missing_pre_installed_driver_is_a_missing_target() -> None:
    assert wait_of(step_at_rest(node(), PREINSTALLED)).code == WaitCode.TARGET_MISSING
    unseen = wait_of(step_at_rest(node(modules_reported=False), PREINSTALLED))
    assert unseen.code == WaitCode.AGENT_SILENT


LABEL = label_of(NEW)


def record_of(view: NodeView) -> NodeRecord:
    assert isinstance(view.record, NodeRecord)
    return view.record


OUR_DRIVER = LoadedDriver(version="1", loaded_at=NOW - 5)
OTHER_DRIVER = replace(OUR_DRIVER, preinstalled=True)


@pytest.mark.parametrize(
    ("label", "loaded", "pods", "expected"),
    [
        (label_of(OLD), OUR_DRIVER, (), Operation.REMOVE),
        (label_of(OLD), OTHER_DRIVER, (driver_pod(OLD),), Operation.REMOVE),
        (label_of(OLD), OTHER_DRIVER, (), Operation.VALIDATE),
        ("", OUR_DRIVER, (), Operation.VALIDATE),
        (LABEL, OUR_DRIVER, (driver_pod(NEW),), Operation.VALIDATE),
    ],
)
def test_a_driver_of_ours_is_removed_where_drivers_are_pre_installed(
    label: str, loaded: LoadedDriver, pods: tuple[DriverPod, ...], expected: Operation
) -> None:
    view = done(driver_label=label, loaded=loaded, driver_pods=pods)
    pre_installed_pool = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    assert choose_operation(node_case(view, pre_installed_pool), build(NEW)) is expected


@pytest.mark.parametrize(("digest", "restart_only"), [("sha256:1", True), ("", False)])
def test_an_unknown_digest_is_never_the_same_installation(
    digest: str, *, restart_only: bool
) -> None:
    view = required(driver_pods=(driver_pod(OLD, install_digest=digest),))
    assert is_restart_only(node_case(view), build(NEW, install_digest=digest)) is restart_only
    unasked = with_record(view, asked=False)
    assert not is_restart_only(node_case(unasked), build(OLD, install_digest=digest))


def test_a_foreign_state_without_a_policy_is_a_wait() -> None:
    view = required(record=None, driver_label="", state="pod-restart-required")
    assert wait_of(step_at_rest(view, GONE)).code == "policy-gone"
    assert step_at_rest(replace(view, state=""), GONE) is None


# Nodes that are to have no driver of ours (docs/states.md#v-remove).


GONE = replace(pool(), gone=True)
ELSEWHERE = "nvidiadriver-a"

REMOVED = {
    "done, and excluded": done(excluded=True),
    "done, and of another pool": done(pool=ELSEWHERE),
    "done, and of no pool": done(pool=""),
    "stamped": required(excluded=True),
    "failed": failed(excluded=True),
    "its label was stripped, and its driver may be there": done(
        excluded=True, driver_label="", components=idle_components()
    ),
    "a label of ours, and no record": done(excluded=True, record=None, state="", field_managers={}),
}


@pytest.mark.parametrize("case", REMOVED)
def test_a_driver_of_ours_is_removed_by_an_operation(case: str) -> None:
    outcome = candidate_of(step_at_rest(REMOVED[case]))
    assert (outcome.operation, outcome.label) == (Operation.REMOVE, "")


@pytest.mark.parametrize("skipped", [done(excluded=True, skip=True), done(pool="", ready=False)])
def test_a_removal_waits_like_any_other_start(skipped: NodeView) -> None:
    assert wait_of(step_at_rest(skipped)).code in {"skipped", "not-ready"}


def test_without_a_driver_our_fields_are_removed_at_once() -> None:
    stamped = required(
        excluded=True,
        driver_label="",
        record=record(state="upgrade-required", label=""),
        components=idle_components(),
        driver_pods=(),
    )
    step = step_of(step_at_rest(stamped))
    write = only_action(step, WriteNode)
    assert write.applied == NodeApplyConfiguration()
    left = apply_step(stamped, step)
    assert (left.state, left.record) == ("", None)
    assert step_at_rest(left) is None


@pytest.mark.parametrize(
    ("view", "pool"),
    [
        (node(excluded=True), pool()),
        (node(pool=""), pool()),
        (node(excluded=True, state="upgrade-done"), pool()),
        (node(pool=""), GONE),
        (node(), GONE),
    ],
    ids=[
        "excluded",
        "of no pool",
        "of another operator",
        "its policy is gone",
        "selected by a policy that is gone",
    ],
)
def test_a_node_without_anything_of_ours_needs_nothing(view: NodeView, pool: PoolView) -> None:
    assert step_at_rest(view, pool) is None


def test_a_failed_removal_is_retried_as_often_as_the_strategy_allows() -> None:
    broken = failed(excluded=True, driver_label="")
    broken = with_record(broken, operation=Operation.REMOVE, target="", label="")
    outcome = wait_of(step_at_rest(broken, replace(pool(), strategy=StrategySpec(retries=0))))
    assert outcome.code == "failed"
    step = step_of(step_at_rest(broken))
    next_candidate = candidate_of(step_at_rest(apply_step(broken, step)))
    assert next_candidate.operation is Operation.REMOVE


@pytest.mark.parametrize(
    "view",
    [done(), done(pool=""), required(), failed(), done(excluded=True), done(target=OLD)],
    ids=["done", "of no pool", "stamped", "failed", "excluded", "another target"],
)
def test_nothing_starts_for_a_deleted_policy(view: NodeView) -> None:
    assert wait_of(step_at_rest(view, GONE)).code == "policy-gone"


def wait_at_rest(view: NodeView, pool_view: PoolView | None = None) -> Wait:
    return wait_of(step_at_rest(view, pool_view or pool()))


@pytest.mark.parametrize("cause", ["busy: pid 1", ""])
def test_a_failed_removal_reports_its_cause(cause: str) -> None:
    view = with_record(failed(excluded=True), operation=Operation.REMOVE, cause=cause, attempt=9)
    detail = wait_at_rest(view).detail
    assert cause in detail
    assert detail == detail.strip() != ""


@pytest.mark.parametrize(("label", "removed"), [(label_of(OLD), True), ("", False)])
def test_a_driver_label_alone_requires_a_removal(label: str, *, removed: bool) -> None:
    components = idle_components()
    view = required(excluded=True, driver_label=label, components=components)
    view = with_record(view, evidence=None, started=False)
    outcome = step_at_rest(view)
    assert isinstance(outcome, Candidate if removed else Step)
