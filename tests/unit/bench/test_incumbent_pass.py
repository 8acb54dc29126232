"""One pass of the incumbent, rule by rule."""

from typing import Any

import pytest

from bench.comparison import ComparedFleet
from bench.recreation.nodes import (
    IncumbentDriverPod,
    IncumbentNode,
    PassAborted,
    check_complete,
    group_by_state,
)
from bench.recreation.passes import apply
from libs.contracts.node import UpgradeState as State
from tests.unit.bench.recording_actions import RecordingActions

OLD = {"synced": False}
NEW = {"synced": True}
STARTING = {"synced": True, "ready": False, "restarts": 10}
FAILING = {"synced": True, "ready": False, "restarts": 11}
WAITS = {"wait_for_jobs": True}
FULL = {"max_unavailable": 0}


def actions_of(
    state: str,
    pod: dict[str, Any],
    *,
    policy: dict[str, Any] | None = None,
    now: float = 0.0,
    jobs: bool = False,
    **node: Any,
) -> list[str]:
    """Return the actions of a pass on one node."""
    actions = RecordingActions(now=now, jobs=jobs)
    nodes = [IncumbentNode(name="n", state=state, pod=IncumbentDriverPod(**pod), **node)]
    apply(group_by_state(nodes), ComparedFleet(nodes=1, **(policy or {})), actions)
    return [line.removeprefix("n: ") for line in actions.lines]


Row = tuple[str, dict[str, Any], dict[str, Any], list[str]]
SAME = OLD | {"same_install": True}
ROWS: list[Row] = [
    (State.UPGRADE_DONE, NEW, {}, []),
    (State.UPGRADE_DONE, OLD, {}, ["upgrade-required"]),
    (State.UPGRADE_DONE, OLD | {"orphan": True}, {}, []),
    (State.UPGRADE_DONE, NEW, {"safe_load": True}, ["upgrade-required"]),
    (State.UPGRADE_DONE, NEW, {"requested": True}, ["upgrade-required"]),
    (
        State.UPGRADE_DONE,
        OLD,
        {"cordoned": True},
        ["initially_cordoned=True", "upgrade-required"],
    ),
    # A new node is done without a health check.
    (State.UNKNOWN, NEW | {"ready": False}, {"ready": False}, ["upgrade-done"]),
    (State.UPGRADE_REQUIRED, OLD, {}, ["cordon-required"]),
    (State.UPGRADE_REQUIRED, SAME, {}, ["cordon", "pod-restart-required"]),
    (State.UPGRADE_REQUIRED, OLD, {"skipped": True}, []),
    (State.UPGRADE_REQUIRED, SAME, {"safe_load": True}, ["cordon-required"]),
    (State.UPGRADE_REQUIRED, SAME, {"requested": True}, ["requested=False", "cordon-required"]),
    (State.UPGRADE_REQUIRED, OLD, {"requested": True, "skipped": True}, ["requested=False"]),
    # Without a free slot a request is dropped, and only a cordoned node starts.
    (State.UPGRADE_REQUIRED, OLD, {"policy": FULL, "requested": True}, ["requested=False"]),
    (State.UPGRADE_REQUIRED, OLD, {"policy": FULL, "cordoned": True}, ["cordon-required"]),
    (State.CORDON_REQUIRED, OLD, {}, ["cordon", "wait-for-jobs-required"]),
    (State.POD_DELETION_REQUIRED, OLD, {}, ["evict"]),
    (State.DRAIN_REQUIRED, OLD, {}, ["pod-restart-required"]),
    (State.POD_RESTART_REQUIRED, OLD, {}, ["delete pod"]),
    (State.POD_RESTART_REQUIRED, OLD | {"terminating": True}, {}, []),
    (State.POD_RESTART_REQUIRED, NEW | {"orphan": True}, {}, ["delete pod"]),
    (State.POD_RESTART_REQUIRED, NEW, {}, ["validation-required"]),
    (
        State.POD_RESTART_REQUIRED,
        NEW | {"ready": False},
        {"safe_load": True},
        ["safe_load=False"],
    ),
    (State.POD_RESTART_REQUIRED, STARTING, {}, []),
    (State.POD_RESTART_REQUIRED, FAILING, {}, ["upgrade-failed"]),
    (State.POD_RESTART_REQUIRED, FAILING | {"ready": True}, {}, ["validation-required"]),
    # A failed node recovers without a validation.
    (State.UPGRADE_FAILED, OLD, {}, []),
    (State.UPGRADE_FAILED, FAILING, {}, []),
    (State.UPGRADE_FAILED, NEW, {"validators": [False]}, ["uncordon-required"]),
    (
        State.UPGRADE_FAILED,
        NEW,
        {"initially_cordoned": True},
        ["upgrade-done", "initially_cordoned=False"],
    ),
    # A person's cordon stays.
    (
        State.VALIDATION_REQUIRED,
        NEW,
        {"validators": [True], "initially_cordoned": True},
        ["validating_since=None", "upgrade-done", "initially_cordoned=False"],
    ),
    (State.UNCORDON_REQUIRED, NEW, {}, ["uncordon", "upgrade-done"]),
]


@pytest.mark.parametrize(("state", "pod", "node", "actions"), ROWS)
def test_a_pass_by_state(
    state: str, pod: dict[str, Any], node: dict[str, Any], actions: list[str]
) -> None:
    assert actions_of(state, pod, **node) == actions


LIMITED = WAITS | {"job_timeout": 60}


@pytest.mark.parametrize(
    ("policy", "jobs", "since", "now", "actions"),
    [
        ({}, True, None, 0.0, ["pod-deletion-required"]),
        (WAITS, False, None, 0.0, ["jobs_since=None", "pod-deletion-required"]),
        (WAITS, True, None, 50.0, []),
        (LIMITED, True, None, 50.9, ["jobs_since=50"]),
        (LIMITED, True, 50, 110.9, []),
        (LIMITED, True, 50, 111.0, ["pod-deletion-required", "jobs_since=None"]),
    ],
)
def test_jobs_are_waited_for(
    policy: dict[str, Any], jobs: bool, since: int | None, now: float, actions: list[str]
) -> None:
    state = State.WAIT_FOR_JOBS_REQUIRED
    assert actions_of(state, OLD, policy=policy, jobs=jobs, jobs_since=since, now=now) == actions


@pytest.mark.parametrize(
    ("validators", "since", "now", "actions"),
    [
        ([], None, 1e6, []),
        ([True], None, 0.0, ["validating_since=None", "uncordon-required"]),
        ([False], None, 50.9, ["validating_since=50"]),
        ([False], 50, 650.9, []),
        ([False], 50, 651.0, ["upgrade-failed", "validating_since=None"]),
        ([True, False], 50, 1e6, ["validating_since=None", "validating_since=1000000"]),
    ],
)
def test_a_validation_has_a_limit(
    validators: list[bool], since: int | None, now: float, actions: list[str]
) -> None:
    node: dict[str, Any] = {"validators": validators, "validating_since": since}
    assert actions_of(State.VALIDATION_REQUIRED, NEW, now=now, **node) == actions


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
