"""Objects that put every column of a table to the test, as the real server takes them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.component.kube.kubectl.objects import Whole, node, pod
from tests.component.kube.kubectl.person import Kubectl

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


def ended(code: int, reason: str = "", signal: int = 0) -> Whole:
    """The state of a container that is through."""
    return {"terminated": {"exitCode": code, "reason": reason, "signal": signal}}


def waiting(reason: str) -> Whole:
    """The state of one that does not run yet."""
    return {"waiting": {"reason": reason}}


def status(
    name: str, state: Whole, *, restarts: int = 0, last: float | None = None, **more: Any
) -> Whole:
    """Of a container; `last` is how long ago it ended before."""
    before = {"terminated": {"exitCode": 1, "finishedAt": ago(last)}} if last else {}
    return {
        "name": name, "state": state, "lastState": before, "ready": False, "image": "i",
        "imageID": "", "restartCount": restarts, **more,
    }  # fmt: skip


def pods() -> list[Whole]:
    """With what kubelets report of them, one after the other."""
    up = status("main", RUNNING, ready=True)
    done = status("first", ended(0, "Completed"), restarts=3, last=9 * DAY)
    statuses: list[tuple[str, list[Whole], list[Whole], Whole]] = [
        ("Pending", [], [], {}),
        ("Running", [up, status("side", waiting("CrashLoopBackOff"), restarts=4, last=10 * DAY)],
         [], {}),
        ("Failed", [status("main", ended(3)), status("side", ended(137, signal=9))], [], {}),
        ("Failed", [], [], {"reason": "Evicted"}),
        ("Succeeded", [status("main", ended(0, "Completed"))], [], {}),
        ("Running", [status("main", ended(0, "Completed")), status("side", ended(2, "Error"))],
         [], {}),
        ("Running", [up, status("side", ended(0, "Completed"))], [],
         {"conditions": [{"type": "Ready", "status": "True"}]}),
        ("Running", [up, status("side", ended(0, "Completed"))], [], {}),
        ("Pending", [status("main", waiting("PodInitializing"))],
         [status("first", RUNNING), status("car", waiting("PodInitializing"))], {}),
        ("Pending", [], [done, status("car", RUNNING, started=False, restarts=2)], {}),
        ("Running", [up], [done, status("car", RUNNING, started=True, ready=True, restarts=2,
                                        last=12 * DAY)], {}),
        ("Failed", [], [status("first", ended(1, signal=15))], {}),
        ("Failed", [], [status("first", ended(1, "Error"))], {}),
        ("Pending", [], [status("first", waiting("ImagePullBackOff"))], {}),
        ("Running", [up], [status("first", RUNNING)],
         {"conditions": [{"type": "Initialized", "status": "True"},
                         {"type": "PodScheduled", "status": "False",
                          "reason": "SchedulingGated"}]}),
        ("Running", [up], [], {"conditions": [{"type": "g.test/x", "status": "True"}],
                               "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}),
    ]  # fmt: skip
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


def made(kind: str, name: str, group: str = "", **fields: Any) -> Whole:
    """An object of the first version."""
    api_version = f"{group}/v1" if group else "v1"
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def others(me: Kubectl) -> list[Whole]:
    """One or two of every other kind."""
    about = {"kind": "Pod", "name": "p00", "namespace": me.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    runtime = made("RuntimeClass", f"{me.prefix}rc", "node.k8s.io", handler="nv")
    runtime["metadata"]["labels"] = me.labels
    return [
        node(me, "a", spec={"unschedulable": True}),
        node(me, "b", status={}),
        made("DaemonSet", "ds", "apps", spec={"selector": SELECTOR, "template": TEMPLATE}),
        made("Deployment", "d", "apps",
             spec={"replicas": 2, "selector": SELECTOR, "template": TEMPLATE}),
        made("ReplicaSet", "rs", "apps",
             spec={"replicas": 0, "selector": SELECTOR, "template": TEMPLATE}),
        made("ControllerRevision", "free", "apps", revision=3, data={}),
        made("Job", "j1", "batch", spec={"parallelism": 3, "template": NEVER}),
        made("Job", "j2", "batch", spec={"suspend": True, "completions": 2, "template": NEVER}),
        made("PodDisruptionBudget", "b1", "policy", spec={"minAvailable": 0, "selector": SELECTOR}),
        made("PodDisruptionBudget", "b2", "policy",
             spec={"maxUnavailable": "30%", "selector": SELECTOR}),
        made("Lease", "l1", "coordination.k8s.io", spec={"holderIdentity": "one"}),
        made("Lease", "l2", "coordination.k8s.io", spec={}),
        made("ConfigMap", "c", data={"a": "1"}, binaryData={"b": "MQ=="}),
        made("Secret", "s", data={"a": "MQ=="}, type="a.test/x"),
        runtime,
        made("Role", "r", "rbac.authorization.k8s.io"),
        made("RoleBinding", "rb", "rbac.authorization.k8s.io", roleRef=role, subjects=[
            {"kind": "ServiceAccount", "namespace": "ns", "name": "sa"},
            {"kind": "User", "name": "u1", "apiGroup": role["apiGroup"]},
            {"kind": "User", "name": "u2", "apiGroup": role["apiGroup"]},
            {"kind": "Group", "name": "g", "apiGroup": role["apiGroup"]},
        ]),
        made("Event", "e1", type="Warning", reason="R", message=" a\nb ", count=3,
             involvedObject={**about, "fieldPath": "spec.x"},
             source={"component": "gpu", "host": "h"},
             firstTimestamp=ago(30 * DAY), lastTimestamp=ago(20 * DAY)),
        made("Event", "e2", type="Normal", reason="R", action="A", involvedObject=about,
             reportingComponent="a.test/c", reportingInstance="i",
             eventTime=ago(30 * DAY, micro=True)),
        made("Event", "e3", type="Normal", reason="R", action="A", involvedObject=about,
             reportingComponent="a.test/c", reportingInstance="i",
             eventTime=ago(30 * DAY, micro=True),
             series={"count": 9, "lastObservedTime": ago(20 * DAY, micro=True)}),
        made("Event", "e4", involvedObject=about),
    ]  # fmt: skip
