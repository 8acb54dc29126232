"""Placing, budgets, nodes' health and workloads, decided from what the caches hold."""

from typing import Any

import msgspec
import pytest

from libs.kube.times import parse_time
from libs.kube.views import OwnerReference, Taint
from libs.testing.cluster.budgets import budget_status, recheck_after
from libs.testing.cluster.nodes.health import heartbeat, unknown_conditions, wanted_taints
from libs.testing.cluster.nodes.ttl import seconds_for
from libs.testing.cluster.pod_fit import Unschedulable, find_node
from libs.testing.cluster.taints import tolerated_seconds
from libs.testing.cluster.views import (
    Budget,
    BudgetStatus,
    Job,
    Lease,
    NodeCondition,
    NodeStatus,
    Pod,
    ReplicaSet,
    Toleration,
)
from libs.testing.cluster.workloads.plan import job_pod_delay, job_status, plan_replicas
from tests.component.testing.cluster.builders import EPOCH, budget, job, node, pod, replica_set

NOW = parse_time(EPOCH)

# Placing


def _place(wanted: Pod, *, on: dict[str, list[Pod]] | None = None, among: int = 2) -> str:
    nodes = [
        node("n1", labels={"zone": "a"}),
        node("n2", labels={"zone": "b"}, gpus=4),
    ]
    found = find_node(wanted, nodes[:among], lambda name: (on or {}).get(name, []), total=2)
    return found.message if isinstance(found, Unschedulable) else found


def test_a_pod_goes_where_most_devices_are_left() -> None:
    assert _place(pod("p", gpus=2)) == "n1"
    assert _place(pod("p", gpus=2), on={"n1": [pod("q", gpus=6)]}) == "n2"
    assert _place(pod("p", gpus=8), on={"n1": [pod("q", gpus=1, phase="Succeeded")]}) == "n1"


def test_of_equals_the_emptier_node_is_taken() -> None:
    assert _place(pod("p")) == "n1"
    assert _place(pod("p"), on={"n1": [pod("q")]}) == "n2"
    assert _place(pod("p"), on={"n1": [pod("q", phase="Failed")]}) == "n1"


def test_a_pod_that_fits_nowhere_says_why() -> None:
    why = _place(pod("p", gpus=8), on={"n1": [pod("q", gpus=1)]})
    assert why == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    why = _place(pod("p", node_selector={"zone": "c"}))
    assert why == "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."


def test_a_pod_goes_where_its_selector_sends_it_and_to_no_other_than_a_candidate() -> None:
    assert _place(pod("p", node_selector={"zone": "b"})) == "n2"
    assert _place(pod("p"), among=1) == "n1"
    assert _place(pod("p"), among=0) == (
        "0/2 nodes are available: 2 node(s) that it is not meant for."
    )


def test_a_cordon_and_a_taint_keep_pods_off() -> None:
    bad = [
        node("n1", unschedulable=True),
        node("n2", taints=(Taint(key="k", effect="NoSchedule"),)),
    ]
    found = find_node(pod("p"), bad, lambda _: [], total=2)
    assert found == Unschedulable(
        "0/2 nodes are available: 1 node(s) had untolerated taint {k: }, "
        "1 node(s) were unschedulable."
    )
    bears = (Toleration(operator="Exists"),)
    assert find_node(pod("p", tolerations=bears), bad, lambda _: [], total=2) == "n1"


# Taints

UNREACHABLE = Taint(key="node.kubernetes.io/unreachable", effect="NoExecute")


def test_a_pod_stays_as_long_as_it_bears_the_taints() -> None:
    def bearing(seconds: int | None) -> Toleration:
        return Toleration(
            key=UNREACHABLE.key,
            operator="Exists",
            effect="NoExecute",
            toleration_seconds=seconds,
        )

    assert tolerated_seconds([UNREACHABLE], []) == 0.0
    assert tolerated_seconds([UNREACHABLE], [bearing(None)]) is None
    assert tolerated_seconds([UNREACHABLE], [bearing(300)]) == 300.0
    assert tolerated_seconds([UNREACHABLE], [bearing(300), bearing(60)]) == 60.0
    assert (
        tolerated_seconds([UNREACHABLE, Taint(key="x", effect="NoExecute")], [bearing(None)]) == 0.0
    )
    assert tolerated_seconds([Taint(key="x", effect="NoSchedule")], []) is None


@pytest.mark.parametrize(
    ("ready", "cordoned", "added"),
    [
        ("True", False, []),
        ("True", True, [("unschedulable", "NoSchedule")]),
        ("False", False, [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")]),
        ("Unknown", False, [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]),
    ],
)
def test_taints_follow_what_the_node_is(
    ready: str, cordoned: bool, added: list[tuple[str, str]]
) -> None:
    theirs = Taint(key="theirs", value="v", effect="NoSchedule")
    found = wanted_taints(node("n", ready=ready, unschedulable=cordoned, taints=(theirs,)), now=NOW)
    wanted = [
        {"key": f"node.kubernetes.io/{key}", "effect": effect, "timeAdded": EPOCH}
        for key, effect in added
    ]
    kept = {"key": "theirs", "value": "v", "effect": "NoSchedule"}
    assert found == ([kept, *wanted] if added else None)


def test_a_taint_whose_reason_is_gone_goes_and_those_of_others_stay() -> None:
    ours = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule", time_added=EPOCH)
    theirs = Taint(key="theirs", effect="NoExecute", time_added=EPOCH)
    assert wanted_taints(node("n", taints=(ours, theirs)), now=NOW) == [
        {"key": "theirs", "effect": "NoExecute", "timeAdded": EPOCH}
    ]
    assert wanted_taints(node("n", unschedulable=True, taints=(ours, theirs)), now=NOW) is None


# Silence


def test_every_heartbeat_is_another_sign_of_life() -> None:
    def lease(renewed: str) -> Lease:
        spec = {"renewTime": renewed}
        return msgspec.convert({"metadata": {"name": "n"}, "spec": spec}, Lease)

    silent = node("n")
    one, two = lease("2027-01-15T08:00:00.000000Z"), lease("2027-01-15T08:00:10.000000Z")
    assert heartbeat(silent, one) != heartbeat(silent, two)
    later = NodeCondition(type="Ready", status="True", last_heartbeat_time="2027-01-15T08:05:00Z")
    posted = msgspec.structs.replace(silent, status=NodeStatus(conditions=(later,)))
    assert heartbeat(posted, one) != heartbeat(silent, one)
    assert heartbeat(silent, None) == heartbeat(silent, None)


def test_of_a_silent_node_nothing_is_known_and_that_is_said_once() -> None:
    said = unknown_conditions(node("n"), now=NOW)
    assert [(each["type"], each["status"]) for each in said] == [
        ("Ready", "Unknown"),
        ("MemoryPressure", "Unknown"),
        ("DiskPressure", "Unknown"),
        ("PIDPressure", "Unknown"),
    ]
    assert said[0]["reason"] == "NodeStatusUnknown"
    assert said[1]["reason"] == "NodeStatusNeverUpdated"
    conditions = tuple(msgspec.convert(each, NodeCondition) for each in said)
    quiet = msgspec.structs.replace(node("n"), status=NodeStatus(conditions=conditions))
    assert unknown_conditions(quiet, now=NOW) == []


def test_kubelets_of_a_large_cluster_believe_longer() -> None:
    assert [seconds_for(nodes) for nodes in (100, 101, 1_000, 2_000, 2_001)] == [0, 15, 30, 60, 300]


# Budgets


def _judge(spec: dict[str, Any], pods: list[Pod], *, disrupted: tuple[str, ...] = ()) -> str:
    """Allowed, healthy, desired and expected, and the reason."""
    whole = budget("b", app="w", **spec)
    whole["metadata"]["generation"] = 1
    given = msgspec.convert(whole, Budget)
    status = BudgetStatus(disrupted_pods=dict.fromkeys(disrupted, EPOCH))

    def scale(owner: OwnerReference) -> int | None:
        return 5 if owner.kind == "ReplicaSet" else None

    found = budget_status(msgspec.structs.replace(given, status=status), pods, scale, now=NOW + 10)
    (condition,) = found.conditions
    if condition.reason == "SyncFailed":
        assert condition.message == "daemonsets.apps does not implement the scale subresource"
    return (
        f"{found.disruptions_allowed} {found.current_healthy} {found.desired_healthy} "
        f"{found.expected_pods} {condition.reason}"
    )


def _workers(count: int, **more: Any) -> list[Pod]:
    return [pod(f"w{number}", owner="ReplicaSet/w", **more) for number in range(count)]


def test_a_budget_counts_against_what_is_wanted_not_what_is_there() -> None:
    assert _judge({"maxUnavailable": 1}, _workers(5)) == "1 5 4 5 SufficientPods"
    assert _judge({"maxUnavailable": 1}, _workers(4)) == "0 4 4 5 InsufficientPods"
    assert _judge({"maxUnavailable": "30%"}, _workers(5)) == "2 5 3 5 SufficientPods"
    assert _judge({"minAvailable": "50%"}, _workers(5)) == "2 5 3 5 SufficientPods"
    assert _judge({"minAvailable": 2}, _workers(3)) == "1 3 2 3 SufficientPods"
    assert _judge({"minAvailable": 0}, []) == "0 0 0 0 InsufficientPods"


def test_a_pod_that_is_not_ready_or_going_is_not_healthy() -> None:
    workers = [*_workers(3), pod("x", owner="ReplicaSet/w", ready=False)]
    workers.append(pod("y", owner="ReplicaSet/w", deleting=True))
    assert _judge({"maxUnavailable": 3}, workers) == "1 3 2 5 SufficientPods"


def test_an_eviction_that_nobody_saw_yet_counts() -> None:
    assert _judge({"maxUnavailable": 2}, _workers(5), disrupted=("w0",)) == "1 4 3 5 SufficientPods"
    assert _judge({"maxUnavailable": 2}, _workers(5), disrupted=("gone",)) == (
        "2 5 3 5 SufficientPods"
    )


def test_a_share_of_pods_whose_controller_cannot_be_asked_allows_nothing() -> None:
    daemons = [pod("d0", owner="DaemonSet/d")]
    assert _judge({"maxUnavailable": 1}, daemons) == "0 0 0 0 SyncFailed"
    assert _judge({"minAvailable": 0}, daemons) == "1 1 0 1 SufficientPods"


def test_a_granted_eviction_is_looked_at_again_when_it_has_expired() -> None:
    status = BudgetStatus(disrupted_pods={"a": EPOCH})
    assert recheck_after(status, now=NOW + 20) == 100.0
    assert recheck_after(BudgetStatus(), now=NOW) is None


# Workloads


def test_a_pod_on_its_way_out_is_replaced_at_once() -> None:
    wanted = msgspec.convert(replica_set("w", replicas=3), ReplicaSet)
    pods = [pod("a"), pod("b", deleting=True), pod("c", phase="Failed")]
    assert plan_replicas(wanted, pods).create == 2


def test_of_too_many_the_least_useful_go() -> None:
    wanted = msgspec.convert(replica_set("w", replicas=1), ReplicaSet)
    pods = [
        pod("old", node="n1"),
        pod("young", node="n1", created="2027-01-15T09:00:00Z"),
        pod("unready", node="n1", ready=False),
        pod("unbound"),
    ]
    gone = [each.metadata.name for each in plan_replicas(wanted, pods).delete]
    assert gone == ["unbound", "unready", "young"]


def _job() -> Job:
    return msgspec.convert({**job("t"), "metadata": {"name": "t", "uid": "u"}}, Job)


def test_a_job_needs_a_pod_until_one_has_succeeded() -> None:
    assert job_pod_delay(_job(), [], now=NOW) == 0.0
    assert job_pod_delay(_job(), [pod("a")], now=NOW) is None
    assert job_pod_delay(_job(), [pod("a", deleting=True)], now=NOW) == 0.0
    assert job_pod_delay(_job(), [pod("a", phase="Succeeded")], now=NOW) is None


def test_a_job_tries_again_later_after_each_failure_and_gives_up() -> None:
    failed = [pod(f"f{number}", phase="Failed") for number in range(7)]
    assert job_pod_delay(_job(), failed[:1], now=NOW) == 10.0
    assert job_pod_delay(_job(), failed[:3], now=NOW + 15) == 25.0
    status = job_status(_job(), failed, now=NOW)
    ended = msgspec.structs.replace(_job(), status=status)
    assert job_pod_delay(ended, failed, now=NOW) is None
    assert [each.type for each in status.conditions] == ["FailureTarget", "Failed"]


def test_a_job_is_complete_with_the_first_success() -> None:
    status = job_status(_job(), [pod("a", phase="Succeeded")], now=NOW)
    assert (status.succeeded, status.active, status.completion_time) == (1, 0, EPOCH)
    assert [each.type for each in status.conditions] == ["SuccessCriteriaMet", "Complete"]
