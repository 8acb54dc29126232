"""One pass of the incumbent, rule by rule."""

from typing import Any

import pytest

from bench.comparison import ComparedFleet
from bench.incumbent_nodes import (
    IncumbentDriverPod,
    IncumbentNode,
    PassAborted,
    check_complete,
    group_by_state,
)
from bench.incumbent_pass import apply
from libs.contracts.node import UpgradeState as State
from tests.unit.bench.recording_actions import RecordingActions

OLD = {"synced": False}
NEW = {"synced": True}
STARTING = {"synced": True, "ready": False, "restarts": 10}
FAILING = {"synced": True, "ready": False, "restarts": 11}
WAITS = {"wait_for_jobs": True}


def _said(
    state: str,
    pod: dict[str, Any],
    *,
    policy: dict[str, Any] | None = None,
    now: float = 0.0,
    jobs: bool = False,
    **node: Any,
) -> list[str]:
    actions = RecordingActions(now=now, jobs=jobs)
    nodes = [IncumbentNode(name="n", state=state, pod=IncumbentDriverPod(**pod), **node)]
    apply(group_by_state(nodes), ComparedFleet(nodes=1, **(policy or {})), actions)
    return [line.removeprefix("n: ") for line in actions.lines]


@pytest.mark.parametrize(
    ("pod", "node", "said"),
    [
        (NEW, {}, []),
        (OLD, {}, ["upgrade-required"]),
        (OLD | {"orphan": True}, {}, []),
        (NEW, {"safe_load": True}, ["upgrade-required"]),
        (NEW, {"requested": True}, ["upgrade-required"]),
        (OLD, {"cordoned": True}, ["initially_cordoned=True", "upgrade-required"]),
    ],
)
def test_done(pod: dict[str, Any], node: dict[str, Any], said: list[str]) -> None:
    assert _said(State.UPGRADE_DONE, pod, **node) == said


def test_a_new_node_is_done_without_a_health_check() -> None:
    assert _said(State.UNKNOWN, NEW | {"ready": False}, ready=False) == ["upgrade-done"]


@pytest.mark.parametrize(
    ("pod", "node", "said"),
    [
        (OLD, {}, ["cordon-required"]),
        (OLD | {"same_install": True}, {}, ["cordon", "pod-restart-required"]),
        (OLD, {"skipped": True}, []),
        (OLD | {"same_install": True}, {"safe_load": True}, ["cordon-required"]),
        (
            OLD | {"same_install": True},
            {"requested": True},
            ["requested=False", "cordon-required"],
        ),
        (OLD, {"requested": True, "skipped": True}, ["requested=False"]),
    ],
)
def test_required(pod: dict[str, Any], node: dict[str, Any], said: list[str]) -> None:
    assert _said(State.UPGRADE_REQUIRED, pod, **node) == said


def test_a_request_is_dropped_without_a_free_slot_unless_the_node_is_cordoned() -> None:
    none = {"max_unavailable": 0}
    assert _said(State.UPGRADE_REQUIRED, OLD, policy=none, requested=True) == ["requested=False"]
    assert _said(State.UPGRADE_REQUIRED, OLD, policy=none, cordoned=True) == ["cordon-required"]


def test_cordon() -> None:
    assert _said(State.CORDON_REQUIRED, OLD) == ["cordon", "wait-for-jobs-required"]


@pytest.mark.parametrize(
    ("policy", "jobs", "since", "now", "said"),
    [
        ({}, True, None, 0.0, ["pod-deletion-required"]),
        (WAITS, False, None, 0.0, ["jobs_since=None", "pod-deletion-required"]),
        (WAITS, True, None, 50.0, []),
        (WAITS | {"job_timeout": 60}, True, None, 50.9, ["jobs_since=50"]),
        (WAITS | {"job_timeout": 60}, True, 50, 110.9, []),
        (
            WAITS | {"job_timeout": 60},
            True,
            50,
            111.0,
            ["pod-deletion-required", "jobs_since=None"],
        ),
    ],
)
def test_jobs(
    policy: dict[str, Any], jobs: bool, since: int | None, now: float, said: list[str]
) -> None:
    state = State.WAIT_FOR_JOBS_REQUIRED
    assert _said(state, OLD, policy=policy, jobs=jobs, jobs_since=since, now=now) == said


def test_pods_are_evicted_in_the_background_and_a_drain_is_off() -> None:
    assert _said(State.POD_DELETION_REQUIRED, OLD) == ["evict"]
    assert _said(State.DRAIN_REQUIRED, OLD) == ["pod-restart-required"]


@pytest.mark.parametrize(
    ("pod", "node", "said"),
    [
        (OLD, {}, ["delete pod"]),
        (OLD | {"terminating": True}, {}, []),
        (NEW | {"orphan": True}, {}, ["delete pod"]),
        (NEW, {}, ["validation-required"]),
        (NEW | {"ready": False}, {"safe_load": True}, ["safe_load=False"]),
        (STARTING, {}, []),
        (FAILING, {}, ["upgrade-failed"]),
        (FAILING | {"ready": True}, {}, ["validation-required"]),
    ],
)
def test_restart(pod: dict[str, Any], node: dict[str, Any], said: list[str]) -> None:
    assert _said(State.POD_RESTART_REQUIRED, pod, **node) == said


@pytest.mark.parametrize(
    ("pod", "node", "said"),
    [
        (OLD, {}, []),
        (FAILING, {}, []),
        (NEW, {"validators": [False]}, ["uncordon-required"]),
        (NEW, {"initially_cordoned": True}, ["upgrade-done", "initially_cordoned=False"]),
    ],
)
def test_a_failed_node_recovers_without_a_validation(
    pod: dict[str, Any], node: dict[str, Any], said: list[str]
) -> None:
    assert _said(State.UPGRADE_FAILED, pod, **node) == said


@pytest.mark.parametrize(
    ("validators", "since", "now", "said"),
    [
        ([], None, 1e6, []),
        ([True], None, 0.0, ["validating_since=None", "uncordon-required"]),
        ([False], None, 50.9, ["validating_since=50"]),
        ([False], 50, 650.9, []),
        ([False], 50, 651.0, ["upgrade-failed", "validating_since=None"]),
        ([True, False], 50, 1e6, ["validating_since=None", "validating_since=1000000"]),
    ],
)
def test_validation(validators: list[bool], since: int | None, now: float, said: list[str]) -> None:
    state = State.VALIDATION_REQUIRED
    assert _said(state, NEW, validators=validators, validating_since=since, now=now) == said


def test_a_persons_cordon_stays() -> None:
    said = _said(State.VALIDATION_REQUIRED, NEW, validators=[True], initially_cordoned=True)
    assert said == ["validating_since=None", "upgrade-done", "initially_cordoned=False"]


def test_uncordon() -> None:
    assert _said(State.UNCORDON_REQUIRED, NEW) == ["uncordon", "upgrade-done"]


def test_a_node_moves_once_in_a_pass() -> None:
    nodes = [IncumbentNode(name="n", state=State.UPGRADE_DONE, pod=IncumbentDriverPod())]
    moves: list[str] = []
    for _ in range(5):
        apply(group_by_state(nodes), ComparedFleet(nodes=1), RecordingActions())
        moves.append(nodes[0].state)
    assert moves == [
        "upgrade-required",
        "cordon-required",
        "wait-for-jobs-required",
        "pod-deletion-required",
        "pod-deletion-required",
    ]


def test_a_refused_write_ends_the_pass() -> None:
    nodes = [
        IncumbentNode(name="a", state=State.CORDON_REQUIRED),
        IncumbentNode(name="b", state=State.CORDON_REQUIRED),
        IncumbentNode(name="c", state=State.UNCORDON_REQUIRED),
    ]
    actions = RecordingActions(broken="b")
    with pytest.raises(PassAborted, match="cordon of b was refused"):
        apply(group_by_state(nodes), ComparedFleet(nodes=3), actions)
    assert actions.lines == ["a: cordon", "a: wait-for-jobs-required"]
    assert nodes[2].state == State.UNCORDON_REQUIRED


def test_one_missing_pod_or_node_means_no_snapshot() -> None:
    nodes = [IncumbentNode(name="a"), IncumbentNode(name="b", pod=None)]
    with pytest.raises(PassAborted, match="driver DaemonSet should not have Unscheduled pods"):
        check_complete(nodes)
    nodes[1] = IncumbentNode(name="b", gone=True)
    with pytest.raises(PassAborted, match="unable to get node b"):
        check_complete(nodes)
    check_complete(nodes[:1])
