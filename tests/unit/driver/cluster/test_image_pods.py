"""Which pods bring driver images to nodes, when they are made, and when they go."""

from collections.abc import Mapping
from typing import Any

from libs.contracts.node import DRIVER_LABEL, STATE_LABEL
from libs.kube.views import Metadata, Pod, format_time
from libs.policy.render.rendered import IMAGE_LABEL, POOL_ANNOTATION, TARGET_ANNOTATION
from services.driver.cluster.image_pods import (
    KEEPS_ANNOTATION,
    MAX_UNFINISHED,
    RETRY_FAILED,
    TURN,
    ImageRequest,
    PullPlan,
    plan_pods,
)
from services.driver.cluster.resources import DaemonSet, Node
from tests.builders import objects
from tests.builders.objects import container, seen

NOW = 1_793_530_800.0
POOL = "clusterpolicy-a"
GOOD = {POOL: "target-old"}


def driver(name: str, *, policy: str = "IfNotPresent", secrets: tuple[str, ...] = ()) -> DaemonSet:
    """Return the DaemonSet of a driver with two images and a gate of ours."""
    images = {"driver": "driver", "peermem": "driver", "gds": "gds"}
    spec: dict[str, Any] = {
        "initContainers": [container("gate", image="r.example/sluice:1")],
        "containers": [
            container(part, image=f"r.example/{image}:{name}", imagePullPolicy=policy)
            for part, image in images.items()
        ],
    }
    if secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in secrets]
    metadata = Metadata(
        name=f"sluice-driver-{name}",
        labels={DRIVER_LABEL: name},
        annotations={POOL_ANNOTATION: POOL, TARGET_ANNOTATION: f"target-{name}"},
    )
    return DaemonSet(metadata=metadata, spec={"template": {"spec": spec}})


DRIVERS = {name: driver(name) for name in ("old", "bad", "new")}


def node(name: str, *, label: str = "old", state: str = "upgrade-required") -> Node:
    labels = {DRIVER_LABEL: label, STATE_LABEL: state}
    return seen(Node, objects.node(name, uid=f"uid-{name}", labels=labels))


def planned(
    *nodes: Node,
    label: str = "new",
    uid: str = "",
    pods: tuple[Pod, ...] = (),
    drivers: Mapping[str, DaemonSet] = DRIVERS,
    last_good: Mapping[str, str] = GOOD,
    tried: Mapping[str, float] | None = None,
) -> PullPlan:
    """Plan with a request for each node."""
    by_name = {each.metadata.name: each for each in nodes}
    return plan_pods(
        {name: ImageRequest(uid or f"uid-{name}", label) for name in by_name},
        node_of=by_name.get,
        drivers=drivers,
        last_good=last_good,
        pods=pods,
        tried=tried or {},
        now=NOW,
    )


def created(plan: PullPlan, *, age: float = 0.0, phase: str = "Pending") -> tuple[Pod, ...]:
    """Return the pods of a plan as the server has them."""
    status: dict[str, Any] = {"phase": phase}
    if phase == "Succeeded":
        names = [each["name"] for each in plan.create[0]["spec"]["containers"]]
        status["containerStatuses"] = [
            {"name": name, "imageID": "sha256:1", "state": {"terminated": {}}} for name in names
        ]
    stamp = {"creationTimestamp": format_time(NOW - age), "uid": "uid"}
    return tuple(
        seen(Pod, {**pod, "metadata": {**pod["metadata"], **stamp}, "status": status})
        for pod in plan.create
    )


def test_each_image_of_the_wanted_and_the_last_good_driver_is_brought() -> None:
    (pod,) = planned(node("a")).create
    spec, metadata = pod["spec"], pod["metadata"]
    assert [each["image"] for each in spec["containers"]] == [
        "r.example/driver:new",
        "r.example/gds:new",
        "r.example/driver:old",
        "r.example/gds:old",
    ]
    assert spec["nodeName"] == "a"
    assert all(each["command"] == ["true"] for each in spec["containers"])
    assert not any("privileged" in each["securityContext"] for each in spec["containers"])
    assert metadata["labels"][IMAGE_LABEL] == "new"
    assert metadata["annotations"][KEEPS_ANNOTATION] == "old"
    assert DRIVER_LABEL not in metadata["labels"]


def test_the_pull_policy_and_the_secrets_are_those_of_the_driver() -> None:
    wanted = driver("new", policy="Always", secrets=("registry", "both"))
    kept = driver("old", policy="Always", secrets=("both",))
    (pod,) = planned(node("a"), drivers={"new": wanted, "old": kept}).create
    policies = [each["imagePullPolicy"] for each in pod["spec"]["containers"]]
    assert policies == ["Always", "Always", "IfNotPresent", "IfNotPresent"]
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}, {"name": "both"}]


def test_another_content_is_another_pod() -> None:
    before = created(planned(node("a")))
    changed = {**DRIVERS, "new": driver("new", secrets=("registry",))}
    plan = planned(node("a"), pods=before, drivers=changed)
    assert len(plan.create) == 1
    assert plan.delete == before
    assert planned(node("a"), pods=before) == PullPlan()


def test_after_a_failure_the_last_good_driver_is_kept_not_the_failed_one() -> None:
    before = created(planned(node("a"), label="bad"))
    failed = node("a", label="bad", state="upgrade-failed")
    plan = planned(failed, pods=before)
    assert plan.create[0]["metadata"]["annotations"][KEEPS_ANNOTATION] == "old"
    assert plan.delete == before
    lost = planned(failed)
    assert lost.create[0]["metadata"]["annotations"][KEEPS_ANNOTATION] == "bad"


def test_a_pod_stays_until_its_driver_is_proven() -> None:
    pods = created(planned(node("a")), phase="Succeeded")
    in_flight = node("a", label="new", state="validation-required")
    assert planned(in_flight, pods=pods) == PullPlan()
    done = node("a", label="new", state="upgrade-done")
    assert planned(done, pods=pods) == PullPlan()
    assert planned(done, pods=pods, last_good={POOL: "target-new"}).delete == pods


def test_requests_for_others_are_not_followed() -> None:
    assert planned(node("a"), label="unknown") == PullPlan()
    assert planned(node("a"), uid="uid-of-an-earlier-node") == PullPlan()


def test_a_pod_that_the_kubelet_gave_up_is_made_again_after_a_minute() -> None:
    plan = planned(node("a"))
    early = created(plan, age=RETRY_FAILED - 1, phase="Failed")
    late = created(plan, age=RETRY_FAILED, phase="Failed")
    assert planned(node("a"), pods=early) == PullPlan()
    assert planned(node("a"), pods=late).delete == late


def test_pods_pull_a_few_at_a_time_and_give_up_their_turn() -> None:
    nodes = [node(f"n{number:02}") for number in range(MAX_UNFINISHED + 5)]
    first = planned(*nodes)
    assert len(first.create) == MAX_UNFINISHED
    young, old = created(first, age=TURN - 1), created(first, age=TURN)
    assert planned(*nodes, pods=young) == PullPlan()
    assert len(planned(*nodes, pods=old).delete) == MAX_UNFINISHED
    tried = {pod.metadata.name: NOW for pod in old}
    names = {pod["metadata"]["name"] for pod in planned(*nodes, tried=tried).create[:5]}
    assert names.isdisjoint(tried)
    alone = created(planned(nodes[0]), age=10 * TURN)
    assert planned(nodes[0], pods=alone) == PullPlan()
