"""What is wrong with pods, as people should hear it."""

from typing import Any

import msgspec
import pytest

from libs.kube.views import Pod
from libs.policy.readiness import PodProblem
from services.driver.cluster.plan import find_pod_problems


def pod(status: dict[str, Any], *, owner: str = "u", **metadata: Any) -> Pod:
    owners = [{"kind": "DaemonSet", "name": "d", "uid": owner}]
    whole = {"name": "p", "ownerReferences": owners, **metadata}
    return msgspec.convert({"metadata": whole, "spec": {"nodeName": "n"}, "status": status}, Pod)


def waiting(reason: str, message: str = "", *, where: str = "containerStatuses") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {where: [{"name": "c", "state": state}]}


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (waiting("ImagePullBackOff", "not found"), "c: ImagePullBackOff: not found"),
        (waiting("CrashLoopBackOff", where="initContainerStatuses"), "c: CrashLoopBackOff"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "message": "0/3 nodes fit"}
                ]
            },
            "0/3 nodes fit",
        ),
    ],
)
def test_what_will_not_mend_itself_is_named(status: dict[str, Any], cause: str) -> None:
    assert list(find_pod_problems("d", "u", [pod(status)])) == [
        PodProblem(daemon_set="d", node="n", cause=cause)
    ]


def test_starting_deleted_and_foreign_pods_are_no_problem() -> None:
    bad = waiting("ImagePullBackOff")
    pods = [
        pod(waiting("ContainerCreating")),
        pod({"phase": "Running"}),
        pod(bad, deletionTimestamp="2027-01-15T08:00:00Z"),
        pod(bad, owner="another"),
    ]
    assert list(find_pod_problems("d", "u", pods)) == []
