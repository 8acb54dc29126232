"""A pod's READY, STATUS and RESTARTS, for what kubelets report."""

from typing import Any

import pytest

from tests.unit.testing.apiserver_tables.builders import ago, cells, kind, made

POD = kind("pods")
RUNNING = {"running": {"startedAt": ago(60)}}


def waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason}}


def ended(code: int, reason: str = "", signal: int = 0) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "signal": signal}}


def container(
    name: str,
    state: dict[str, Any],
    *,
    ready: bool = False,
    restarts: int = 0,
    last: float | None = None,
    started: bool | None = None,
) -> dict[str, Any]:
    """Its status; `last` is how long ago it ended before."""
    before = {"terminated": {"exitCode": 1, "finishedAt": ago(last)}} if last is not None else {}
    return {
        "name": name,
        "state": state,
        "lastState": before,
        "ready": ready,
        "restartCount": restarts,
        "started": started,
    }


def pod(
    phase: str,
    *statuses: dict[str, Any],
    init: tuple[dict[str, Any], ...] = (),
    sidecars: tuple[str, ...] = (),
    conditions: tuple[tuple[str, str], ...] = (),
    gates: tuple[str, ...] = (),
    reason: str = "",
    deleted: bool = False,
) -> dict[str, Any]:
    """One whose spec has the containers that its status tells of."""
    thing = made(
        "p",
        spec={
            "containers": [{"name": each["name"]} for each in statuses],
            "initContainers": [
                {"name": each["name"]}
                | ({"restartPolicy": "Always"} if each["name"] in sidecars else {})
                for each in init
            ],
            "readinessGates": [{"conditionType": gate} for gate in gates],
        },
        status={
            "phase": phase,
            "containerStatuses": list(statuses),
            "initContainerStatuses": list(init),
            "conditions": [{"type": name, "status": status} for name, status in conditions],
            **({"reason": reason} if reason else {}),
        },
    )
    if deleted:
        thing["metadata"]["deletionTimestamp"] = ago(1)
    return thing


UP = container("a", RUNNING, ready=True)
DONE = container("i", ended(0, "Completed"))
READY = (("Ready", "True"),)


@pytest.mark.parametrize(
    ("thing", "ready", "status"),
    [
        (
            made("p", spec={"containers": [{"name": "a"}]}, status={"phase": "Pending"}),
            "0/1",
            "Pending",
        ),
        (pod("Running", UP), "1/1", "Running"),
        (pod("Running", UP, container("b", RUNNING)), "1/2", "Running"),
        (pod("Pending", container("a", waiting("ContainerCreating"))), "0/1", "ContainerCreating"),
        (
            pod("Running", UP, container("b", waiting("CrashLoopBackOff"))),
            "1/2",
            "CrashLoopBackOff",
        ),
        (pod("Running", container("a", waiting("X")), container("b", waiting("Y"))), "0/2", "X"),
        (pod("Failed", container("a", ended(3, "Error"))), "0/1", "Error"),
        (pod("Failed", container("a", ended(3))), "0/1", "ExitCode:3"),
        (pod("Failed", container("a", ended(137, signal=9))), "0/1", "Signal:9"),
        (pod("Failed", reason="Evicted"), "0/0", "Evicted"),
        (pod("Succeeded", container("a", ended(0, "Completed"))), "0/1", "Completed"),
        (
            pod(
                "Running", container("a", ended(0, "Completed")), container("b", ended(2, "Error"))
            ),
            "0/2",
            "Error",
        ),
        (
            pod("Running", container("a", ended(0, "Completed")), UP, conditions=READY),
            "1/2",
            "Running",
        ),
        (pod("Running", container("a", ended(0, "Completed")), UP), "1/2", "NotReady"),
        (
            pod(
                "Pending",
                container("a", waiting("PodInitializing")),
                init=(container("i", RUNNING), container("j", waiting("PodInitializing"))),
            ),
            "0/1",
            "Init:0/2",
        ),
        (
            pod(
                "Pending",
                container("a", waiting("PodInitializing")),
                init=(DONE, container("j", waiting("PodInitializing"))),
            ),
            "0/1",
            "Init:1/2",
        ),
        (
            pod("Pending", init=(container("i", waiting("CrashLoopBackOff")),)),
            "0/0",
            "Init:CrashLoopBackOff",
        ),
        (pod("Failed", init=(container("i", ended(1, "Error")),)), "0/0", "Init:Error"),
        (pod("Failed", init=(container("i", ended(4)),)), "0/0", "Init:ExitCode:4"),
        (pod("Failed", init=(container("i", ended(4, signal=15)),)), "0/0", "Init:Signal:15"),
        (pod("Running", UP, init=(DONE,)), "1/1", "Running"),
        (
            pod(
                "Running",
                UP,
                init=(container("s", RUNNING, ready=True, started=True),),
                sidecars=("s",),
            ),
            "2/2",
            "Running",
        ),
        (
            pod(
                "Pending",
                container("a", waiting("PodInitializing")),
                init=(container("s", RUNNING, started=False),),
                sidecars=("s",),
            ),
            "0/2",
            "Init:0/1",
        ),
        (
            pod(
                "Running",
                UP,
                init=(container("i", RUNNING),),
                conditions=(("Initialized", "True"),),
            ),
            "1/1",
            "Init:0/1",
        ),
        (pod("Running", UP, deleted=True), "1/1", "Terminating"),
        (pod("Running", UP, deleted=True, reason="NodeLost"), "1/1", "Unknown"),
        (pod("Succeeded", container("a", ended(0, "Completed")), deleted=True), "0/1", "Completed"),
    ],
)
def test_what_the_containers_do(thing: dict[str, Any], ready: str, status: str) -> None:
    shown = cells(POD, thing)
    assert (shown["Ready"], shown["Status"]) == (ready, status)


def test_a_gated_pod_says_so() -> None:
    thing = pod("Pending")
    thing["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    ]
    assert cells(POD, thing)["Status"] == "SchedulingGated"


@pytest.mark.parametrize(
    ("thing", "restarts"),
    [
        (pod("Running", UP), "0"),
        (pod("Running", container("a", RUNNING, restarts=2)), "2"),
        (pod("Running", container("a", RUNNING, restarts=2, last=300),
             container("b", RUNNING, restarts=1, last=5 * 86_400)), "3 (5m ago)"),
        (pod("Pending", init=(container("i", waiting("CrashLoopBackOff"), restarts=4, last=61),)),
         "4 (61s ago)"),
        # Once they are through, init containers do not count, but for those that go on running.
        (pod("Running", UP, init=(container("i", ended(0), restarts=4, last=61),)), "0"),
        (pod("Running", UP, sidecars=("s",),
             init=(container("s", RUNNING, started=True, restarts=6, last=7_200),)),
         "6 (120m ago)"),
    ],
)  # fmt: skip
def test_restarts_and_the_last_of_them(thing: dict[str, Any], restarts: str) -> None:
    assert cells(POD, thing)["Restarts"] == restarts


def test_the_wide_columns() -> None:
    bare = cells(POD, pod("Pending"))
    assert [bare[name] for name in ("IP", "Node", "Nominated Node", "Readiness Gates")] == [
        "<none>"
    ] * 4
    thing = pod("Running", UP, gates=("a.test/x", "a.test/y"), conditions=(("a.test/x", "True"),))
    thing["spec"]["nodeName"] = "n1"
    thing["status"] |= {
        "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}, {"ip": "fd00::9"}],
        "nominatedNodeName": "n2",
    }  # fmt: skip
    shown = cells(POD, thing)
    assert [shown[name] for name in ("IP", "Node", "Nominated Node", "Readiness Gates")] == [
        "10.0.0.9", "n1", "n2", "1/2",
    ]  # fmt: skip
