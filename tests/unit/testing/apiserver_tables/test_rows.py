"""One row of each kind that has columns of its own, whole and exactly."""

from typing import Any

import pytest

from libs.testing.apiserver.printers.tables import COLUMNS
from tests.unit.testing.apiserver_tables.builders import ago, cells, kind, made

RBAC = "rbac.authorization.k8s.io"
CONTAINERS = [{"name": "driver", "image": "r/driver:1"}, {"name": "probe", "image": "r/probe:2"}]
SELECTOR = {
    "matchLabels": {"app": "x"},
    "matchExpressions": [
        {"key": "tier", "operator": "NotIn", "values": ["b", "a"]},
        {"key": "gpu", "operator": "Exists"},
        {"key": "old", "operator": "DoesNotExist"},
    ],
}
SELECTED = "app=x,gpu,!old,tier notin (a,b)"
DAY = 86_400


def workload(**spec: Any) -> dict[str, Any]:
    return {"selector": SELECTOR, "template": {"spec": {"containers": CONTAINERS}}, **spec}


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": CONTAINERS, **spec}}


NODE_INFO = {
    "kubeletVersion": "v1.37.1",
    "osImage": "Ubuntu 24.04",
    "kernelVersion": "6.8.0",
    "architecture": "amd64",
    "containerRuntimeVersion": "containerd://2.1",
}
ROWS: list[tuple[tuple[str, str], dict[str, Any], list[Any]]] = [
    (
        ("", "nodes"),
        made(
            "n1",
            metadata={
                "labels": {
                    "node-role.kubernetes.io/worker": "",
                    "node-role.kubernetes.io/": "no role",
                    "kubernetes.io/role": "gpu",
                }
            },
            spec={"unschedulable": True},
            status={
                "conditions": [
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": "True"},
                ],
                "addresses": [
                    {"type": "Hostname", "address": "n1"},
                    {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "ExternalIP", "address": "192.0.2.1"},
                ],
                "nodeInfo": NODE_INFO,
            },
        ),
        [
            "n1", "Ready,SchedulingDisabled", "gpu,worker", "90s", "v1.37.1", "10.0.0.1",
            "192.0.2.1", "Ubuntu 24.04", "6.8.0 (amd64)", "containerd://2.1",
        ],
    ),
    (
        ("", "nodes"),
        made("n2", status={"conditions": [{"type": "Ready", "status": "Unknown"}]}),
        [
            "n2", "NotReady", "<none>", "90s", "", "<none>", "<none>", "<unknown>", "<unknown>",
            "<unknown>",
        ],
    ),
    (
        ("", "nodes"),
        made("n3"),
        [
            "n3", "Unknown", "<none>", "90s", "", "<none>", "<none>", "<unknown>", "<unknown>",
            "<unknown>",
        ],
    ),
    (
        ("apps", "daemonsets"),
        made(
            "ds",
            spec=workload(template=template(nodeSelector={"zone": "b", "gpu": "yes"})),
            status={
                "desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
                "updatedNumberScheduled": 2, "numberAvailable": 1,
            },
        ),
        [
            "ds", 5, 4, 3, 2, 1, "gpu=yes,zone=b", "90s", "driver,probe", "r/driver:1,r/probe:2",
            SELECTED,
        ],
    ),
    (
        ("apps", "daemonsets"),
        made("new", spec=workload(selector={})),
        [
            "new", 0, 0, 0, 0, 0, "<none>", "90s", "driver,probe", "r/driver:1,r/probe:2",
            "<none>",
        ],
    ),
    (
        ("apps", "controllerrevisions"),
        made(
            "ds-5f", revision=12,
            metadata={
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Other", "name": "o"},
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds",
                     "controller": True},
                ]
            },
        ),
        ["ds-5f", "daemonset.apps/ds", 12, "90s"],
    ),
    (("apps", "controllerrevisions"), made("free", revision=1), ["free", "<none>", 1, "90s"]),
    (
        ("apps", "replicasets"),
        made("rs", spec=workload(replicas=3), status={"replicas": 2, "readyReplicas": 1}),
        ["rs", 3, 2, 1, "90s", "driver,probe", "r/driver:1,r/probe:2", SELECTED],
    ),
    (
        ("apps", "deployments"),
        made(
            "d", spec=workload(replicas=3),
            status={"readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2},
        ),
        ["d", "2/3", 1, 2, "90s", "driver,probe", "r/driver:1,r/probe:2", SELECTED],
    ),
    (
        ("batch", "jobs"),
        made("j", spec=workload(completions=2, parallelism=1), status={"succeeded": 1,
             "startTime": ago(300)}),
        ["j", "Running", "1/2", "5m", "90s", "driver,probe", "r/driver:1,r/probe:2", SELECTED],
    ),
    (
        ("batch", "jobs"),
        made("j", spec=workload(parallelism=4), status={
            "succeeded": 1, "startTime": ago(300), "completionTime": ago(290),
            "conditions": [{"type": "Complete", "status": "True"}],
        }),
        ["j", "Complete", "1/1 of 4", "10s", "90s", "driver,probe", "r/driver:1,r/probe:2",
         SELECTED],
    ),
    (
        ("batch", "jobs"),
        made("j", spec=workload(parallelism=1), metadata={"deletionTimestamp": ago(1)},
             status={"conditions": [{"type": "Suspended", "status": "True"}]}),
        ["j", "Terminating", "0/1", "", "90s", "driver,probe", "r/driver:1,r/probe:2", SELECTED],
    ),
    (
        ("coordination.k8s.io", "leases"),
        made("l", spec={"holderIdentity": "driver-0"}),
        ["l", "driver-0", "90s"],
    ),
    (("coordination.k8s.io", "leases"), made("l", spec={}), ["l", "", "90s"]),
    (
        ("policy", "poddisruptionbudgets"),
        made("b", spec={"minAvailable": 0}, status={"disruptionsAllowed": 2}),
        ["b", "0", "N/A", 2, "90s"],
    ),
    (
        ("policy", "poddisruptionbudgets"),
        made("b", spec={"maxUnavailable": "30%"}),
        ["b", "N/A", "30%", 0, "90s"],
    ),
    (
        ("", "events"),
        made(
            "e.1", type="Warning", reason="Drained", message=" a\nb ", count=3,
            involvedObject={"kind": "Node", "name": "n1", "fieldPath": "spec.x"},
            source={"component": "gpu", "host": "h"},
            firstTimestamp=ago(3_600), lastTimestamp=ago(30),
        ),
        ["30s", "Warning", "Drained", "node/n1", "spec.x", "gpu, h", "a\nb", "60m", 3, "e.1"],
    ),
    (
        ("", "events"),
        made("e.2", involvedObject={"kind": "Node"}, eventTime=ago(20.0), reportingComponent="c",
             reportingInstance="", firstTimestamp=None, lastTimestamp=None),
        ["20s", "", "", "node", "", "c", "", "20s", 1, "e.2"],
    ),
    (
        ("", "events"),
        made("e.3", involvedObject={"kind": "Pod", "name": "p"}, eventTime=ago(500),
             series={"count": 9, "lastObservedTime": ago(10)}),
        ["10s", "", "", "pod/p", "", "", "", "8m20s", 9, "e.3"],
    ),
    (
        ("", "configmaps"),
        made("c", data={"a": "1"}, binaryData={"b": "", "d": ""}),
        ["c", 3, "90s"],
    ),
    (("", "secrets"), made("s", type="Opaque", data={"a": "MQ=="}), ["s", "Opaque", 1, "90s"]),
    (
        ("", "namespaces"),
        made("ns", seconds=45 * DAY, status={"phase": "Active"}),
        ["ns", "Active", "45d"],
    ),
    (("", "serviceaccounts"), made("sa"), ["sa", "90s"]),
    (("node.k8s.io", "runtimeclasses"), made("nvidia", handler="nv"), ["nvidia", "nv", "90s"]),
    (
        ("", "services"),
        made(
            "svc",
            spec={
                "type": "NodePort", "clusterIPs": ["10.0.0.5"], "selector": {"app": "x"},
                "ports": [
                    {"port": 80, "nodePort": 30_080, "protocol": "TCP"},
                    {"port": 53, "protocol": "UDP"},
                ],
            },
        ),
        ["svc", "NodePort", "10.0.0.5", "<none>", "80:30080/TCP,53/UDP", "90s", "app=x"],
    ),
    (
        ("", "services"),
        made("lb", spec={"type": "LoadBalancer", "externalIPs": ["192.0.2.9"]},
             status={"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}, {"hostname": "h"}]}}),
        ["lb", "LoadBalancer", "<none>", "192.0.2.2,h,192.0.2.9", "<none>", "90s", "<none>"],
    ),
    (
        ("", "services"),
        made("lb", spec={"type": "LoadBalancer"}),
        ["lb", "LoadBalancer", "<none>", "<pending>", "<none>", "90s", "<none>"],
    ),
    (
        ("", "services"),
        made("out", spec={"type": "ExternalName", "externalName": "x.test"}),
        ["out", "ExternalName", "<none>", "x.test", "<none>", "90s", "<none>"],
    ),
    ((RBAC, "clusterroles"), made("r"), ["r", ago(90)]),
    (
        (RBAC, "rolebindings"),
        made(
            "rb", roleRef={"kind": "Role", "name": "r"},
            subjects=[
                {"kind": "ServiceAccount", "namespace": "ns", "name": "sa"},
                {"kind": "User", "name": "u1"}, {"kind": "User", "name": "u2"},
                {"kind": "Group", "name": "g"},
            ],
        ),
        ["rb", "Role/r", "90s", "u1, u2", "g", "ns/sa"],
    ),
    (
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        made(
            "widgets.a.test",
            spec={
                "scope": "Namespaced", "group": "a.test",
                "names": {"kind": "Widget", "shortNames": ["w", "wd"]},
                "versions": [
                    {"name": "v2", "served": True}, {"name": "v0", "served": False},
                    {"name": "v1", "served": True, "storage": True},
                ],
            },
            status={"conditions": [{"type": "Established", "status": "True"}]},
        ),
        ["widgets.a.test", "Namespaced", "v1(storage),v2", ago(90), "a.test", "Widget", "w,wd",
         True],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("place", "thing", "expected"), ROWS, ids=[f"{r[0][1]}" for r in ROWS])
def test_row(place: tuple[str, str], thing: dict[str, Any], expected: list[Any]) -> None:
    group, plural = place
    assert list(cells(kind(plural, group), thing).values()) == expected


def test_a_plural_in_each_row_is_that_of_a_kind_with_columns_of_its_own() -> None:
    """Whoever adds a table adds a row here."""
    shown = {place for place, _, _ in ROWS} | {("", "pods"), (RBAC, "clusterrolebindings")}
    assert set(COLUMNS) <= shown
