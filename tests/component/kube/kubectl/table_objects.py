"""Objects that put every column of a table to the test, as the real server takes them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.component.kube.kubectl.builders import JsonObject, node, pod
from tests.component.kube.kubectl.kubectl_process import Kubectl

SELECTOR = {
    "matchLabels": {"app": "x"},
    "matchExpressions": [
        {"key": "tier", "operator": "NotIn", "values": ["b", "a"]},
        {"key": "gpu", "operator": "Exists"},
        {"key": "old", "operator": "DoesNotExist"},
    ],
}
TEMPLATE = {
    "metadata": {"labels": {"app": "x", "gpu": "1"}},
    "spec": {
        "containers": [{"name": "a", "image": "r/a:1"}, {"name": "b", "image": "r/b:2"}],
        "nodeSelector": {"zone": "none", "gpu": "yes"},
    },
}
NEVER = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}


def ago(seconds: float, *, micro: bool = False) -> str:
    """A time that lies so far back that its words stay the same for the test's while."""
    moment = datetime.now(UTC) - timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


DAY = 86_400
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def terminated_state(code: int, reason: str = "", signal: int = 0) -> JsonObject:
    """The state of a container that is through."""
    return {"terminated": {"exitCode": code, "reason": reason, "signal": signal}}


def waiting_state(reason: str) -> JsonObject:
    """The state of one that does not run yet."""
    return {"waiting": {"reason": reason}}


def container_status(
    name: str, state: JsonObject, *, restarts: int = 0, last: float | None = None, **more: Any
) -> JsonObject:
    """Of a container; `last` is how long ago it ended before."""
    before = {"terminated": {"exitCode": 1, "finishedAt": ago(last)}} if last else {}
    return {
        "name": name,
        "state": state,
        "lastState": before,
        "ready": False,
        "image": "i",
        "imageID": "",
        "restartCount": restarts,
        **more,
    }


def pods() -> list[JsonObject]:
    """With what kubelets report of them, one after the other."""
    up = container_status("main", RUNNING, ready=True)
    done = container_status("first", terminated_state(0, "Completed"), restarts=3, last=9 * DAY)
    statuses: list[tuple[str, list[JsonObject], list[JsonObject], JsonObject]] = [
        ("Pending", [], [], {}),
        (
            "Running",
            [
                up,
                container_status(
                    "side", waiting_state("CrashLoopBackOff"), restarts=4, last=10 * DAY
                ),
            ],
            [],
            {},
        ),
        (
            "Failed",
            [
                container_status("main", terminated_state(3)),
                container_status("side", terminated_state(137, signal=9)),
            ],
            [],
            {},
        ),
        ("Failed", [], [], {"reason": "Evicted"}),
        ("Succeeded", [container_status("main", terminated_state(0, "Completed"))], [], {}),
        (
            "Running",
            [
                container_status("main", terminated_state(0, "Completed")),
                container_status("side", terminated_state(2, "Error")),
            ],
            [],
            {},
        ),
        (
            "Running",
            [up, container_status("side", terminated_state(0, "Completed"))],
            [],
            {"conditions": [{"type": "Ready", "status": "True"}]},
        ),
        ("Running", [up, container_status("side", terminated_state(0, "Completed"))], [], {}),
        (
            "Pending",
            [container_status("main", waiting_state("PodInitializing"))],
            [
                container_status("first", RUNNING),
                container_status("car", waiting_state("PodInitializing")),
            ],
            {},
        ),
        ("Pending", [], [done, container_status("car", RUNNING, started=False, restarts=2)], {}),
        (
            "Running",
            [up],
            [
                done,
                container_status(
                    "car", RUNNING, started=True, ready=True, restarts=2, last=12 * DAY
                ),
            ],
            {},
        ),
        ("Failed", [], [container_status("first", terminated_state(1, signal=15))], {}),
        ("Failed", [], [container_status("first", terminated_state(1, "Error"))], {}),
        ("Pending", [], [container_status("first", waiting_state("ImagePullBackOff"))], {}),
        (
            "Running",
            [up],
            [container_status("first", RUNNING)],
            {
                "conditions": [
                    {"type": "Initialized", "status": "True"},
                    {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
                ]
            },
        ),
        (
            "Running",
            [up],
            [],
            {
                "conditions": [{"type": "g.test/x", "status": "True"}],
                "podIP": "10.0.0.9",
                "podIPs": [{"ip": "10.0.0.9"}],
            },
        ),
    ]
    init = [
        {"name": "first", "image": "i"},
        {"name": "car", "image": "i", "restartPolicy": "Always"},
    ]
    gates = [{"conditionType": "g.test/x"}, {"conditionType": "g.test/y"}]
    return [
        {
            **pod(f"p{number:02}", nodeName="nowhere", initContainers=init, readinessGates=gates),
            "status": {
                "phase": phase,
                "containerStatuses": containers,
                "initContainerStatuses": initial,
                **more,
            },
        }
        for number, (phase, containers, initial, more) in enumerate(statuses)
    ]


def build(kind: str, name: str, group: str = "", **fields: Any) -> JsonObject:
    """An object of the first version."""
    api_version = f"{group}/v1" if group else "v1"
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def other_kinds(me: Kubectl) -> list[JsonObject]:
    """One or two of every other kind."""
    about = {"kind": "Pod", "name": "p00", "namespace": me.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    runtime = build("RuntimeClass", f"{me.prefix}rc", "node.k8s.io", handler="nv")
    runtime["metadata"]["labels"] = me.labels
    return [
        node(me, "a", spec={"unschedulable": True}),
        node(me, "b", status={}),
        build("DaemonSet", "ds", "apps", spec={"selector": SELECTOR, "template": TEMPLATE}),
        build(
            "Deployment",
            "d",
            "apps",
            spec={"replicas": 2, "selector": SELECTOR, "template": TEMPLATE},
        ),
        build(
            "ReplicaSet",
            "rs",
            "apps",
            spec={"replicas": 0, "selector": SELECTOR, "template": TEMPLATE},
        ),
        build("ControllerRevision", "free", "apps", revision=3, data={}),
        build("Job", "j1", "batch", spec={"parallelism": 3, "template": NEVER}),
        build("Job", "j2", "batch", spec={"suspend": True, "completions": 2, "template": NEVER}),
        build(
            "PodDisruptionBudget", "b1", "policy", spec={"minAvailable": 0, "selector": SELECTOR}
        ),
        build(
            "PodDisruptionBudget",
            "b2",
            "policy",
            spec={"maxUnavailable": "30%", "selector": SELECTOR},
        ),
        build("Lease", "l1", "coordination.k8s.io", spec={"holderIdentity": "one"}),
        build("Lease", "l2", "coordination.k8s.io", spec={}),
        build("ConfigMap", "c", data={"a": "1"}, binaryData={"b": "MQ=="}),
        build("Secret", "s", data={"a": "MQ=="}, type="a.test/x"),
        runtime,
        build("Role", "r", "rbac.authorization.k8s.io"),
        build(
            "RoleBinding",
            "rb",
            "rbac.authorization.k8s.io",
            roleRef=role,
            subjects=[
                {"kind": "ServiceAccount", "namespace": "ns", "name": "sa"},
                {"kind": "User", "name": "u1", "apiGroup": role["apiGroup"]},
                {"kind": "User", "name": "u2", "apiGroup": role["apiGroup"]},
                {"kind": "Group", "name": "g", "apiGroup": role["apiGroup"]},
            ],
        ),
        build(
            "Event",
            "e1",
            type="Warning",
            reason="R",
            message=" a\nb ",
            count=3,
            involvedObject={**about, "fieldPath": "spec.x"},
            source={"component": "gpu", "host": "h"},
            firstTimestamp=ago(30 * DAY),
            lastTimestamp=ago(20 * DAY),
        ),
        build(
            "Event",
            "e2",
            type="Normal",
            reason="R",
            action="A",
            involvedObject=about,
            reportingComponent="a.test/c",
            reportingInstance="i",
            eventTime=ago(30 * DAY, micro=True),
        ),
        build(
            "Event",
            "e3",
            type="Normal",
            reason="R",
            action="A",
            involvedObject=about,
            reportingComponent="a.test/c",
            reportingInstance="i",
            eventTime=ago(30 * DAY, micro=True),
            series={"count": 9, "lastObservedTime": ago(20 * DAY, micro=True)},
        ),
        build("Event", "e4", involvedObject=about),
    ]
