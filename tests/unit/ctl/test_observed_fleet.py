"""A GPU Operator's fleet, of objects as Kubernetes lists them."""

from typing import Any

import msgspec

from libs.ctl.observe.fleet import Found, Operator, OperatorFleet, fleet_of
from libs.ctl.observe.objects import ClusterPolicy, DaemonSet, NvidiaDriver, Pod
from libs.ctl.observe.observer import operator_of
from libs.kube import views

NOW = 1_800_000_000.0
UID = "drivers"


def decoded(view: type[Any], **obj: Any) -> Any:
    return msgspec.convert(obj, view)


def node(name: str, **labels: str) -> views.Node:
    keys = {key.replace("__", "/"): value for key, value in labels.items()}
    return decoded(views.Node, metadata={"name": name, "labels": keys})


def daemon_set(*, wanted: int = 1, digest: str = "new") -> DaemonSet:
    container = {
        "name": "nvidia-driver-ctr",
        "env": [{"name": "DRIVER_CONFIG_DIGEST", "value": digest}],
    }
    return decoded(
        DaemonSet,
        metadata={"name": "driver", "uid": UID},
        spec={"template": {"spec": {"containers": [container]}}},
        status={"desiredNumberScheduled": wanted},
    )


def driver_pod(on: str, revision: str, *, owned: bool = True, digest: str = "old") -> Pod:
    owner = {"kind": "DaemonSet", "name": "driver", "uid": UID}
    container = {
        "name": "nvidia-driver-ctr",
        "env": [{"name": "DRIVER_CONFIG_DIGEST", "value": digest}],
    }
    return decoded(
        Pod,
        metadata={
            "name": f"driver-{on}",
            "namespace": "gpu-operator",
            "labels": {"controller-revision-hash": revision},
            "ownerReferences": [owner] if owned else [],
        },
        spec={"nodeName": on, "containers": [container]},
        status={"phase": "Running", "containerStatuses": [{"name": "c", "ready": True}]},
    )


def revision(name: str, number: int) -> views.ControllerRevision:
    owner = {"kind": "DaemonSet", "name": "driver", "uid": UID}
    metadata = {"name": f"driver-{name}", "ownerReferences": [owner]}
    return decoded(views.ControllerRevision, metadata=metadata, revision=number)


def policy(**driver: Any) -> ClusterPolicy:
    return decoded(ClusterPolicy, metadata={"name": "cluster-policy"}, spec={"driver": driver})


def fleet(**found: Any) -> OperatorFleet:
    revisions = (revision("old", 9), revision("new", 10))
    given: dict[str, Any] = {"daemon_sets": (daemon_set(),), "revisions": revisions, **found}
    return fleet_of(Found(**given), Operator())


def test_a_pod_is_compared_with_the_newest_revision() -> None:
    for name, synced in (("old", False), ("new", True)):
        made = fleet(
            nodes=[node("a")], driver_pods=[driver_pod("a", name)], policies=[policy(version="1")]
        )
        (member,) = made.pools[0].nodes
        assert member.pod is not None
        assert (member.pod.synced, member.needs_upgrade) == (synced, not synced)


def test_the_same_installation_is_only_restarted() -> None:
    for digest, same in (("old", False), ("new", True)):
        made = fleet(
            nodes=[node("a")],
            driver_pods=[driver_pod("a", "old", digest=digest)],
            policies=[policy()],
        )
        pod = made.pools[0].nodes[0].pod
        assert pod is not None
        assert pod.same_install is same


def test_a_pod_without_owner_is_an_orphan_and_needs_no_upgrade_by_itself() -> None:
    made = fleet(
        nodes=[node("a")], driver_pods=[driver_pod("a", "new", owned=False)], policies=[policy()]
    )
    (member,) = made.pools[0].nodes
    assert member.pod is not None
    assert member.pod.orphan
    assert not member.needs_upgrade
    assert made.pools[0].incomplete == ("driver has 0 pods of 1",)


def test_a_node_without_a_driver_pod_is_outside() -> None:
    made = fleet(
        nodes=[node("a"), node("b")], driver_pods=[driver_pod("a", "new")], policies=[policy()]
    )
    assert [each.name for each in made.outside] == ["b"]
    assert [each.name for each in made.nodes] == ["a", "b"]


def test_each_nvidia_driver_is_a_pool_with_its_own_policy() -> None:
    drivers = [
        decoded(NvidiaDriver, metadata={"name": "h100"}, spec={"version": "2"}),
        decoded(
            NvidiaDriver,
            metadata={"name": "a100"},
            spec={"version": "1", "upgradePolicy": {"autoUpgrade": True, "maxUnavailable": 2}},
        ),
    ]
    owner = "nvidia.com__gpu-operator.driver.owner"
    made = fleet(
        nodes=[node("a", **{owner: "a100"}), node("b", **{owner: "h100"}), node("c")],
        driver_pods=[driver_pod(each, "new") for each in ("a", "b", "c")],
        daemon_sets=(daemon_set(wanted=3),),
        policies=[policy(useNvidiaDriverCRD=True)],
        drivers=drivers,
    )
    first, second = made.pools
    assert (first.name, first.limits.max_unavailable) == ("a100", 2)
    assert [each.name for each in first.nodes] == ["a"]
    assert (second.name, second.limits.auto_upgrade) == ("h100", True)
    assert second.limits.eviction is not None
    assert [each.name for each in made.outside] == ["c"]


def test_a_cluster_policy_without_an_upgrade_policy_upgrades_nothing() -> None:
    made = fleet(nodes=[], driver_pods=[], policies=[policy()])
    limits = made.pools[0].limits
    assert (limits.auto_upgrade, limits.eviction) == (False, None)


def test_the_oldest_cluster_policy_counts() -> None:
    def made_at(name: str, at: str) -> ClusterPolicy:
        return decoded(ClusterPolicy, metadata={"name": name, "creationTimestamp": at})

    made = fleet(
        nodes=[],
        driver_pods=[],
        policies=[made_at("a", "2026-02-01T00:00:00Z"), made_at("b", "2026-01-01T00:00:00Z")],
    )
    assert [pool.name for pool in made.pools] == ["b"]


def test_an_operator_is_live_while_it_renews_its_lease() -> None:
    def lease(age: float, holder: str | None = "one") -> views.Lease:
        return decoded(
            views.Lease,
            metadata={"name": "lease", "namespace": "gpu-operator"},
            spec={
                "holderIdentity": holder,
                "leaseDurationSeconds": 15,
                "renewTime": views.format_micro_time(NOW - age),
            },
        )

    assert operator_of((lease(5),), "", now=NOW).is_live
    assert not operator_of((lease(120),), "", now=NOW).is_live
    assert not operator_of((lease(5, None),), "", now=NOW).is_live
    assert operator_of((lease(120), lease(5)), "", now=NOW).is_live
    assert operator_of((), "gpus", now=NOW) == Operator(namespace="gpus")
