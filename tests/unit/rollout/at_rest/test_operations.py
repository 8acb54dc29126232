"""The operation of a node: a case for each of docs/states.md#variations."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.contracts.node import NodeRecord, Operation, WaitCode
from libs.contracts.reports import PodUse, Usage
from libs.policy.wanted import InstallMethod
from libs.rollout.at_rest import step_at_rest
from libs.rollout.decision import Candidate
from libs.rollout.eligibility import choose_operation, is_restart_only
from libs.rollout.views.machine import DriverPod, WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    VARIANT,
    build,
    done,
    driver_pod,
    idle_components,
    install_of,
    instant,
    label_of,
    node,
    on_host,
    pool,
    record,
    required,
    with_build,
    with_record,
)
from tests.unit.rollout.outcomes import candidate_of, wait_of

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
    "take-over: a pod with GPUs is seen": (node(pods=(GPU_POD,)), pool(), Operation.TAKE_OVER),
    "a Node made anew over a live machine": (
        replace(
            done(components={}),
            components=node().components,
            record=record(node_uid="uid-of-earlier"),
        ),
        pool(standing={"proven": frozenset({NEW})}, target=OLD),
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
    "failed before its label moved, and tried again": (
        unproven(required()),
        pool(),
        Operation.UPGRADE,
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_variation_has_its_operation(row: str) -> None:
    node, pool, operation = ROWS[row]
    assert candidate_of(step_at_rest(node, pool, instant())).operation is operation


def test_a_removal_has_neither_target_nor_label() -> None:
    outcome = candidate_of(step_at_rest(done(excluded=True), pool(), instant()))
    assert (outcome.target, outcome.label, outcome.outside) == ("", "", False)


def test_a_validation_is_outside_the_counts_without_a_preflight() -> None:
    outcome = step_at_rest(ROWS["pre-installed"][0], PREINSTALLED, instant())
    assert outcome == Candidate(
        operation=Operation.VALIDATE, target=NEW, label=label_of(NEW), outside=True
    )


UNKNOWN: dict[str, NodeView] = {
    "modules are not known": node(modules_reported=False),
    "pods are not known": node(usage=None),
    "neither is known": node(modules_reported=False, usage=None),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_is_not_absent(case: str) -> None:
    assert wait_of(step_at_rest(UNKNOWN[case], pool(), instant())).code == WaitCode.AGENT_SILENT


def test_a_list_of_pods_replaces_a_missing_usage_report() -> None:
    outcome = candidate_of(step_at_rest(node(usage=None, pods=()), pool(), instant()))
    assert outcome.operation is Operation.BRING_UP


def test_a_missing_pre_installed_driver_is_a_missing_target() -> None:
    assert wait_of(step_at_rest(node(), PREINSTALLED, instant())).code == WaitCode.TARGET_MISSING
    unseen = wait_of(step_at_rest(node(modules_reported=False), PREINSTALLED, instant()))
    assert unseen.code == WaitCode.AGENT_SILENT


LABEL = label_of(NEW)


def record_of(view: NodeView) -> NodeRecord:
    assert isinstance(view.record, NodeRecord)
    return view.record


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
    taken = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    assert choose_operation(view, record_of(view), taken, build(NEW), instant()) is expected


@pytest.mark.parametrize(("digest", "only"), [("sha256:1", True), ("", False)])
def test_an_unknown_digest_is_never_the_same_installation(digest: str, *, only: bool) -> None:
    view = required(driver_pods=(driver_pod(OLD, install_digest=digest),))
    assert is_restart_only(view, record_of(view), build(NEW, install_digest=digest)) is only
    stays = with_record(view, asked=False)
    assert not is_restart_only(stays, record_of(stays), build(OLD, install_digest=digest))
