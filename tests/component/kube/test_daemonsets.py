"""DaemonSets: placement of their pods, their metadata, and the status."""

from libs.kube.client import Evicted
from libs.kube.resources import DAEMON_SETS, NODES, PODS
from tests.builders.objects import daemon_set
from tests.component.kube.daemonset_helpers import (
    HASH,
    bound_pods,
    create_daemonset,
    daemonset_status,
    finish_pod,
    mark_ready,
    pods_of,
    set_image,
    terminating_pods,
)
from tests.component.kube.raw_requests import get_json, label, patch
from tests.component.kube.sandbox import Kube, Sandbox
from tests.support import eventually

# Placement


async def test_a_pod_runs_on_each_node_of_the_selector(sandbox: Sandbox, key: str) -> None:
    first = await sandbox.node("a", labels={key: "x"})
    second = await sandbox.node("b", labels={key: "x"})
    await sandbox.node("c", labels={key: "y"})
    await sandbox.node("d")

    await create_daemonset(sandbox, "d", {key: "x"})

    pods = await bound_pods(sandbox, "d", 2)
    assert [pod.spec.node_name for pod in pods] == [first, second]
    done = await daemonset_status(
        sandbox, "d", desired_number_scheduled=2, current_number_scheduled=2
    )
    assert done.number_misscheduled == 0


async def test_daemon_pods_have_owner_labels_and_affinity(
    sandbox: Sandbox, kube: Kube, key: str
) -> None:
    node = await sandbox.node("a", labels={key: "x"})
    await create_daemonset(sandbox, "d", {key: "x"})

    (pod,) = await bound_pods(sandbox, "d")

    owner = await kube.get(DAEMON_SETS, "d")
    (reference,) = pod.metadata.owner_references
    assert (reference.kind, reference.name, reference.uid, reference.controller) == (
        "DaemonSet",
        "d",
        owner.metadata.uid,
        True,
    )
    assert pod.metadata.name.startswith("d-")
    assert set(pod.metadata.labels) == {"app", HASH, "pod-template-generation"}
    assert pod.metadata.labels["pod-template-generation"] == "1"
    full = await get_json(kube, PODS, pod.metadata.name)
    required = full["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert required == {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        ]
    }
    tolerated = {(item.get("key"), item.get("effect")) for item in full["spec"]["tolerations"]}
    assert tolerated == {
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    }


async def test_node_affinity_selects_nodes(sandbox: Sandbox, kube: Kube, key: str) -> None:
    node = await sandbox.node("a", labels={key: "x"})
    await sandbox.node("b", labels={key: "y"})
    wanted = daemon_set("d", selector={})
    expression = {"key": key, "operator": "In", "values": ["x", "z"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    wanted["spec"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    }
    await kube.create(DAEMON_SETS, wanted)

    (pod,) = await bound_pods(sandbox, "d")

    assert pod.spec.node_name == node
    await daemonset_status(sandbox, "d", desired_number_scheduled=1)


async def test_a_daemon_pod_runs_on_a_cordoned_node(sandbox: Sandbox, kube: Kube, key: str) -> None:
    node = await sandbox.node("a", labels={key: "x"})
    await patch(kube, NODES, node, {"spec": {"unschedulable": True}})
    await create_daemonset(sandbox, "d", {key: "x"})
    assert [pod.spec.node_name for pod in await bound_pods(sandbox, "d")] == [node]


async def test_a_daemon_pod_needs_a_toleration_of_a_taint(
    sandbox: Sandbox, kube: Kube, key: str
) -> None:
    node = await sandbox.node("a", labels={key: "x"})
    taint = {"key": "test.example/off", "effect": "NoSchedule"}
    await patch(kube, NODES, node, {"spec": {"taints": [taint]}})
    tolerates = [{"key": "test.example/off", "operator": "Exists"}]

    await create_daemonset(sandbox, "away", {key: "x"})
    await create_daemonset(sandbox, "there", {key: "x"}, tolerations=tolerates)

    assert [pod.spec.node_name for pod in await bound_pods(sandbox, "there")] == [node]
    await daemonset_status(sandbox, "away", observed_generation=1, desired_number_scheduled=0)
    assert await pods_of(sandbox, "away") == []


async def test_a_daemon_pod_follows_a_label_that_is_added_and_removed(
    sandbox: Sandbox, key: str
) -> None:
    """The pod is deleted at once when the label is removed."""
    person = sandbox.kube(manager="kubectl-label")
    node = await sandbox.node("a")
    await create_daemonset(sandbox, "d", {key: "x"})
    await daemonset_status(sandbox, "d", observed_generation=1, desired_number_scheduled=0)

    await label(person, node, {key: "x"})
    pods = await bound_pods(sandbox, "d")
    await mark_ready(sandbox, pods)
    await label(person, node, {key: None})

    (pod,) = await terminating_pods(sandbox, "d")
    assert pod.metadata.uid == pods[0].metadata.uid
    await finish_pod(sandbox, pod)
    await daemonset_status(sandbox, "d", desired_number_scheduled=0, number_misscheduled=0)
    assert await pods_of(sandbox, "d") == []


async def test_a_changed_label_starts_the_new_pod_while_the_old_one_ends(
    sandbox: Sandbox, key: str
) -> None:
    """Both pods exist until the old one has terminated."""
    node = await sandbox.node("a", labels={key: "old"})
    await create_daemonset(sandbox, "old", {key: "old"})
    await create_daemonset(sandbox, "new", {key: "new"})
    (old,) = await bound_pods(sandbox, "old")
    await mark_ready(sandbox, [old])
    await daemonset_status(sandbox, "old", number_ready=1)

    await label(sandbox.kube(), node, {key: "new"})

    (new,) = await bound_pods(sandbox, "new")
    assert new.spec.node_name == node
    (leaving,) = await terminating_pods(sandbox, "old")
    assert leaving.metadata.uid == old.metadata.uid
    await mark_ready(sandbox, [new])
    await daemonset_status(sandbox, "new", number_ready=1)
    assert [pod.metadata.uid for pod in await pods_of(sandbox, "old")] == [old.metadata.uid]

    await finish_pod(sandbox, leaving)
    await daemonset_status(sandbox, "old", current_number_scheduled=0, number_misscheduled=0)
    assert await pods_of(sandbox, "old") == []
    assert [pod.metadata.uid for pod in await pods_of(sandbox, "new")] == [new.metadata.uid]


async def test_a_failed_daemon_pod_is_replaced(sandbox: Sandbox, kube: Kube, key: str) -> None:
    await sandbox.node("a", labels={key: "x"})
    await create_daemonset(sandbox, "d", {key: "x"})
    (first,) = await bound_pods(sandbox, "d")

    failed = {"status": {"phase": "Failed"}}
    await patch(kube, PODS, first.metadata.name, failed, subresource="status")

    async def replaced() -> bool:
        uids = [pod.metadata.uid for pod in await pods_of(sandbox, "d")]
        return len(uids) == 1 and uids != [first.metadata.uid]

    await eventually(replaced)


# Status


async def test_the_status_counts_scheduled_and_ready_pods(
    sandbox: Sandbox, kube: Kube, key: str
) -> None:
    await sandbox.node("a", labels={key: "x"})
    await sandbox.node("b", labels={key: "x"})
    await create_daemonset(sandbox, "d", {key: "x"})
    pods = await bound_pods(sandbox, "d", 2)
    counted = await daemonset_status(sandbox, "d", current_number_scheduled=2, number_ready=0)
    assert (counted.desired_number_scheduled, counted.updated_number_scheduled) == (2, 2)
    assert (counted.observed_generation, counted.number_available) == (1, 0)

    await mark_ready(sandbox, pods[:1])
    await daemonset_status(sandbox, "d", number_ready=1, number_available=1)
    await mark_ready(sandbox, pods[1:])
    await daemonset_status(sandbox, "d", number_ready=2, number_available=2)
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    name = pods[0].metadata.name
    await patch(kube, PODS, name, unready, subresource="status")
    await daemonset_status(sandbox, "d", number_ready=1, number_available=1)


async def test_an_evicted_daemon_pod_is_recreated_from_the_current_template(
    sandbox: Sandbox, kube: Kube, key: str
) -> None:
    node = await sandbox.node("a", labels={key: "x"})
    await create_daemonset(sandbox, "d", {key: "x"}, image="none:1")
    (old,) = await bound_pods(sandbox, "d")
    await mark_ready(sandbox, [old])
    await set_image(sandbox, "d", "none:2")

    answer = await kube.evict(old.metadata.name, uid=old.metadata.uid)
    assert answer == Evicted()
    await finish_pod(sandbox, old)

    (new,) = await bound_pods(sandbox, "d")
    assert new.spec.node_name == node
    assert new.spec.containers[0].image == "none:2"
