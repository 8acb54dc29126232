"""Files of policies that are not applied yet: what is read, and what they would change."""

import json
from typing import Any

import msgspec
import pytest

from libs.contracts.queries import PlanQuery
from libs.ctl.applied_policy import merged
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.policy_change import PolicyChange, policy_change
from libs.ctl.policy_file import FilePolicy, PolicyFile, parse_policy_file
from libs.kube.resources import CustomObject
from libs.kube.views import Metadata
from libs.policy.digest import target_digest
from libs.policy.owners import NodeLabels
from libs.policy.wanted import WantedDriver, with_version

OLD, NEW = "580.95.05", "590.48.01"
CLUSTER_KEY, DRIVER_KEY = "clusterpolicy-cluster-policy", "nvidiadriver-serving"
SECTIONS = ("operator", "daemonsets", "toolkit", "devicePlugin", "dcgmExporter", "dcgm", "gfd")
DRIVER = {"repository": "r.example", "image": "driver", "version": OLD}
NODES = [
    NodeLabels(name=name, labels={"nvidia.com/gpu.present": "true", "role": role})
    for name, role in (("node-1", "serve"), ("node-2", "serve"), ("node-3", "train"))
]


def cluster_spec(**driver: Any) -> dict[str, Any]:
    sections: dict[str, Any] = {name: {} for name in (*SECTIONS, "nodeStatusExporter")}
    return {**sections, "driver": {**DRIVER, **driver}}


def cluster_policy(name: str = "cluster-policy", **driver: Any) -> dict[str, Any]:
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"driver": driver},
    }


def nvidia_driver(name: str = "serving", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {"name": name},
        "spec": spec,
    }


CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mig"}}


def stored(spec: Any, name: str = "cluster-policy", last: Any = None) -> CustomObject:
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": last})}
    metadata = Metadata(
        name=name,
        uid=name,
        creation_timestamp="2026-01-01T00:00:00Z",
        annotations=applied if last is not None else {},
    )
    return CustomObject(metadata=metadata, spec=spec)


def file_of(*objects: Any, name: str = "policy.yaml") -> PolicyFile:
    text = "\n---\n".join(json.dumps(each) for each in objects)
    return parse_policy_file(name, text.encode())


def key_of(policy: FilePolicy) -> str:
    return policy.key


def change_of(
    *objects: Any,
    cluster: Any = None,
    drivers: tuple[CustomObject, ...] = (),
    last: Any = None,
    pool: str = "",
) -> PolicyChange:
    spec = cluster_spec() if cluster is None else cluster
    live = {"ClusterPolicy": [stored(spec, last=last)], "NVIDIADriver": drivers}
    return policy_change(file_of(*objects), live, NODES, pool=pool, name_of=key_of)


def refused(*objects: Any, **world: Any) -> Failure:
    with pytest.raises(Failure) as caught:
        change_of(*objects, **world)
    return caught.value


# The file.


def test_documents_of_yaml_and_the_items_of_lists_are_read_and_other_objects_are_named() -> None:
    text = b"""\
# comment
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy, annotations: {made: 2026-05-01}}
spec: {driver: {version: 590.48.01}}
---
---
apiVersion: v1
kind: List
items:
  - {apiVersion: nvidia.com/v1alpha1, kind: NVIDIADriver, metadata: {name: serving}}
  - {apiVersion: v1, kind: Namespace}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: labels}
"""
    file = parse_policy_file("all.yaml", text)
    assert [policy.title for policy in file.policies] == [
        "ClusterPolicy cluster-policy",
        "NVIDIADriver serving",
    ]
    assert [policy.key for policy in file.policies] == [CLUSTER_KEY, DRIVER_KEY]
    assert file.left_out == ("Namespace", "ClusterPolicy labels")
    assert file.policies[0].manifest["metadata"]["annotations"] == {"made": "2026-05-01"}


def test_json_is_read_with_tabs_too() -> None:
    text = json.dumps(cluster_policy(version=NEW), indent="\t")
    assert parse_policy_file("-", text.encode()).policies[0].name == "cluster-policy"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a: [1", "line 2, column 1: it is no YAML"),
        (b"a: \xff", "it is no YAML"),
        (b"a: &a {b: *a}", "line 1, column 11: it uses an alias: write the value out"),
        (b"a: {<<: {b: c}}", "line 1, column 5: it merges mappings by <<"),
        (b"[" * 100_000, "it has more than 100 lists and mappings within each other"),
        (b"a: 1\na: 2", "line 2, column 1: its key 'a' occurs twice"),
        (b"? [a]\n: b", "it has a list or mapping for a key"),
        (b"", "it has neither ClusterPolicy (nvidia.com/v1) nor NVIDIADriver"),
        (b"- 1", "document 1 is not an object"),
        (b"kind: List\nitems: [1]", "document 1: items[0] is not an object"),
        (b"kind: ClusterPolicy", "document 1: apiVersion is not set"),
        (b"apiVersion: nvidia.com/v1", "document 1: kind is not set"),
        (b"{apiVersion: nvidia.com/v1, kind: ClusterPolicy}", "metadata.name of the ClusterPolicy"),
        (b"{apiVersion: v1, kind: Pod, metadata: {name: p}}", "; it has Pod p"),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_why(content: bytes, problem: str) -> None:
    with pytest.raises(Failure) as caught:
        parse_policy_file("p.yaml", content)
    assert caught.value.code is ExitCode.WRONG_ARGUMENTS
    assert str(caught.value).startswith("p.yaml: ")
    assert problem in str(caught.value)


def test_the_same_policy_twice_is_refused() -> None:
    with pytest.raises(Failure, match="ClusterPolicy cluster-policy is in it twice"):
        file_of(cluster_policy(version=OLD), cluster_policy(version=NEW))


# What is left of the live policy.


def test_applying_keeps_what_others_wrote_and_removes_what_is_gone_from_the_file() -> None:
    live = {"a": 1, "b": {"mine": 1, "theirs": 2}, "c": [1], "d": 4}
    before = {"a": 1, "b": {"mine": 1}, "d": 4}
    assert merged(live, {"b": {"new": 3}, "c": [2], "d": None}, before) == {
        "b": {"theirs": 2, "new": 3},
        "c": [2],
    }
    assert merged({"a": 1}, {"a": {"b": 1}}, {}) == {"a": {"b": 1}}


# What is asked, and what is not planned.


def test_version_and_limits_are_asked_for_and_the_target_is_that_of_the_policy() -> None:
    upgrade = {"maxUnavailable": 2, "maxParallelUpgrades": 0}
    change = change_of(cluster_policy(version=NEW, upgradePolicy=upgrade))
    query = change.query(PlanQuery(pool=""))
    assert query == PlanQuery(
        pool=CLUSTER_KEY, driver_version=NEW, max_unavailable="2", max_parallel=0
    )
    assert target_digest(change.after.driver) == target_digest(
        with_version(change.before.driver, NEW)
    )
    planned = change.planned_file(query)
    assert (planned.policy, planned.version) == ("ClusterPolicy cluster-policy", NEW)
    assert planned.nodes == ("node-1", "node-2", "node-3")
    assert not planned.changes_nothing
    assert planned.not_planned == planned.joining == planned.leaving == planned.left_out == ()


FROM_OLD_TO_NEW = f'spec.driver.version "{NEW}" (now "{OLD}")'


def test_a_driver_that_changes_in_its_version_only_is_asked_for_by_that() -> None:
    change = change_of(cluster_policy(version=NEW))
    query = change.query(PlanQuery(pool=""))
    assert query.driver == ""
    assert change.planned_file(query).driver_changes == (FROM_OLD_TO_NEW,)
    overridden = change.query(PlanQuery(pool="", driver_version="1"))
    assert change.planned_file(overridden).driver_changes == ()


def test_another_driver_of_the_same_version_is_asked_for_with_its_parts() -> None:
    policy = cluster_policy(version=OLD, kernelModuleType="open")
    policy["spec"]["gdrcopy"] = {**DRIVER, "enabled": True}
    policy["spec"]["toolkit"] = {"enabled": False}
    change = change_of(policy)
    query = change.query(PlanQuery(pool=""))
    assert query.driver_version == ""
    planned = change.planned_file(query)
    assert planned.driver_changes[0].startswith("spec.driver.kernelModuleType ")
    assert "spec.gdrcopy.enabled true (now false)" in planned.driver_changes
    no_node = "Sluice upgrades no node for it"
    assert planned.not_planned == (f"spec.toolkit.enabled false (now true): {no_node}",)


DRIVER_PODS: list[tuple[str, dict[str, Any]]] = [
    ("spec.daemonsets.labels", {"daemonsets": {"labels": {"team": "ml"}}}),
    ("spec.daemonsets.annotations", {"daemonsets": {"annotations": {"a": "b"}}}),
    ("spec.daemonsets.tolerations", {"daemonsets": {"tolerations": [{"key": "team"}]}}),
    ("spec.daemonsets.priorityClassName", {"daemonsets": {"priorityClassName": "low"}}),
    ("spec.daemonsets.podSecurityContext", {"daemonsets": {"podSecurityContext": {"fsGroup": 1}}}),
    ("spec.hostPaths.rootFS", {"hostPaths": {"rootFS": "/host"}}),
    ("spec.hostPaths.driverInstallDir", {"hostPaths": {"driverInstallDir": "/opt/driver"}}),
]


@pytest.mark.parametrize(("path", "spec"), DRIVER_PODS, ids=[path for path, _ in DRIVER_PODS])
def test_fields_outside_the_driver_that_its_pods_are_made_of_are_planned(
    path: str, spec: dict[str, Any]
) -> None:
    policy = cluster_policy(version=OLD)
    policy["spec"] |= spec
    change = change_of(policy)
    query = change.query(PlanQuery(pool=""))
    assert msgspec.json.decode(query.driver, type=WantedDriver) == change.after.driver
    planned = change.planned_file(query)
    (told,) = planned.driver_changes
    assert told.split(" ")[0] == path
    assert planned.not_planned == ()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"daemonsets": {"labels": {"helm.sh/chart": "2"}}},
            "spec.daemonsets.labels: Sluice upgrades no node for it",
        ),
        (
            {"gdrcopy": {"version": "2"}},
            'spec.gdrcopy.version "2" (now unset): Sluice upgrades no node for it',
        ),
        (
            {"mig": {"strategy": "mixed"}},
            'spec.mig.strategy "mixed" (now unset): Sluice upgrades no node for it',
        ),
        (
            {"operator": {"labels": {"a": "b"}}},
            "spec.operator.labels: it has no effect in Sluice, because Sluice has no operator pod",
        ),
    ],
)
def test_fields_that_make_no_other_driver_say_what_they_do(
    spec: dict[str, Any], words: str
) -> None:
    policy = cluster_policy(version=NEW)
    policy["spec"] |= spec
    change = change_of(policy)
    query = change.query(PlanQuery(pool=""))
    assert query.driver == ""
    planned = change.planned_file(query)
    assert planned.driver_changes == (FROM_OLD_TO_NEW,)
    assert planned.not_planned == (words,)


def test_options_override_the_file() -> None:
    given = PlanQuery(pool="", driver_version="1", max_unavailable="20%", max_parallel=3)
    change = change_of(cluster_policy(version=NEW, upgradePolicy={"maxUnavailable": 2}))
    query = change.query(given)
    assert (query.driver_version, query.max_unavailable, query.max_parallel) == ("1", "20%", 3)
    assert change.planned_file(query).version == "1"
    assert change.planned_file(query).not_planned == ()


def test_what_the_cluster_has_already_changes_nothing() -> None:
    change = change_of(cluster_policy(version=OLD), CONFIG_MAP)
    query = change.query(PlanQuery(pool=""))
    assert query.driver_version == ""
    planned = change.planned_file(query)
    assert planned.changes_nothing
    assert (planned.version, planned.left_out) == (OLD, ("ConfigMap mig",))


def test_each_other_field_that_changes_is_named_with_its_values() -> None:
    policy = cluster_policy(
        version=NEW,
        upgradePolicy={"autoUpgrade": True, "drain": {"enable": True}},
        env=[{"name": "A", "value": "1"}],
    )
    policy["spec"]["toolkit"] = {"enabled": False}
    policy["spec"]["driver"]["upgradePolicy"]["maxParalel"] = 3
    change = change_of(policy)
    query = change.query(PlanQuery(pool=""))
    assert msgspec.json.decode(query.driver, type=WantedDriver) == change.after.driver
    assert set(change.planned_file(query).driver_changes) == {FROM_OLD_TO_NEW, "spec.driver.env"}
    as_now = "the plan goes by the value of now"
    assert change.planned_file(query).not_planned == (
        f"spec.driver.upgradePolicy.autoUpgrade true (now false): {as_now}",
        f"spec.driver.upgradePolicy.drain.enable true (now false): {as_now}",
        "spec.toolkit.enabled false (now true): Sluice upgrades no node for it",
        (
            "spec.driver.upgradePolicy.maxParalel (3) is not a field of this kind: check the"
            " spelling, or remove it"
        ),
    )
    drains = frozenset({"upgradePolicy.drain.enable"})
    planned = change.planned_file(change.query(PlanQuery(pool="")), more=drains)
    assert not any("drain" in each for each in planned.not_planned)


def test_a_field_that_was_applied_and_is_gone_from_the_file_gets_its_default() -> None:
    upgrade = {"maxUnavailable": 3, "autoUpgrade": True}
    spec, last = cluster_spec(upgradePolicy=upgrade), {"driver": {"upgradePolicy": upgrade}}
    change = change_of(cluster_policy(version=OLD), cluster=spec, last=last)
    query = change.query(PlanQuery(pool=""))
    assert query.max_unavailable == "25%"
    removed = change.planned_file(query).not_planned
    field = "spec.driver.upgradePolicy.autoUpgrade false (now true)"
    assert f"{field}: the plan goes by the value of now" in removed
    kept = change_of(cluster_policy(version=OLD), cluster=spec)
    assert kept.query(PlanQuery(pool="")).max_unavailable == "3"


def test_a_cluster_policy_has_the_section_of_evictions_only_if_it_is_written() -> None:
    assert not change_of(cluster_policy(version=NEW)).has_pod_deletion
    written = cluster_policy(version=NEW, upgradePolicy={"podDeletion": {}})
    assert change_of(written).has_pod_deletion
    driver = change_of(nvidia_driver(version=NEW), cluster=WITH_DRIVERS, drivers=DRIVERS)
    assert driver.has_pod_deletion


# Nodes and pools.

WITH_DRIVERS = cluster_spec(useNvidiaDriverCRD=True)
SERVING: dict[str, Any] = {**DRIVER, "nodeSelector": {"role": "serve"}}
DRIVERS = (stored(SERVING, "serving"),)


def test_nodes_that_join_and_leave_are_told() -> None:
    selects = nvidia_driver(version=NEW, nodeSelector={"role": "train"})
    change = change_of(selects, cluster=WITH_DRIVERS, drivers=DRIVERS)
    query = change.query(PlanQuery(pool=""))
    assert (query.pool, query.driver_version) == (DRIVER_KEY, NEW)
    planned = change.planned_file(query)
    assert planned.nodes == planned.joining == ("node-3",)
    assert planned.leaving == ("node-1", "node-2")
    assert planned.not_planned == ()


def test_of_several_policies_one_is_planned_and_named() -> None:
    other = stored({**DRIVER, "nodeSelector": {"role": "train"}}, "training")
    drivers = (*DRIVERS, other)
    both = (nvidia_driver(version=NEW), nvidia_driver("training", version=NEW))
    several = refused(*both, cluster=WITH_DRIVERS, drivers=drivers)
    assert several.code is ExitCode.WRONG_ARGUMENTS
    assert f"name one of: {DRIVER_KEY}, nvidiadriver-training" in str(several)
    change = change_of(*both, cluster=WITH_DRIVERS, drivers=drivers, pool=DRIVER_KEY)
    planned = change.planned_file(change.query(PlanQuery(pool="")))
    assert planned.left_out == ("NVIDIADriver training",)
    unknown = refused(*both, cluster=WITH_DRIVERS, drivers=drivers, pool="other")
    assert unknown.code is ExitCode.NOT_FOUND
    assert f"no pool 'other'; its pools: {DRIVER_KEY}, nvidiadriver-training" in str(unknown)


def test_paths_of_a_cluster_policy_in_the_file_are_planned_for_an_nvidia_driver() -> None:
    cluster = cluster_policy(useNvidiaDriverCRD=True)
    cluster["spec"] |= {"hostPaths": {"rootFS": "/host"}, "toolkit": {"enabled": False}}
    objects = (cluster, nvidia_driver(priorityClassName="low"))
    change = change_of(*objects, cluster=WITH_DRIVERS, drivers=DRIVERS)
    query = change.query(PlanQuery(pool=""))
    assert msgspec.json.decode(query.driver, type=WantedDriver).host_root == "/host"
    planned = change.planned_file(query)
    assert planned.driver_changes == (
        'spec.priorityClassName "low" (now unset)',
        'ClusterPolicy cluster-policy: spec.hostPaths.rootFS "/host" (now unset)',
    )
    assert planned.left_out == ("ClusterPolicy cluster-policy (its other fields)",)
    assert planned.not_planned == ()


def test_a_pool_that_is_not_in_the_cluster_yet_is_told_with_its_nodes() -> None:
    new = nvidia_driver("training", **DRIVER, nodeSelector={"role": "train"})
    failure = refused(new, cluster=WITH_DRIVERS, drivers=DRIVERS)
    assert failure.code is ExitCode.NOT_FOUND
    assert "not in the cluster yet" in str(failure)
    assert "it selects 1 node (node-3)" in str(failure)


SECOND = {**cluster_policy("second"), "spec": cluster_spec()}


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (nvidia_driver(**SERVING), 'makes no pool: metadata.name ("serving") is not used'),
        (SECOND, "is ignored: ClusterPolicy"),
        (cluster_policy(useNvidiaDriverCRD=True), "spec.driver.useNvidiaDriverCRD is true"),
        (cluster_policy(enabled=False), "spec.driver.enabled is false"),
    ],
)
def test_a_policy_without_an_upgrade_says_why(policy: Any, problem: str) -> None:
    failure = refused(policy)
    assert failure.code is ExitCode.WRONG_ARGUMENTS
    assert problem in str(failure)


# Files that the API server, or the services, would refuse.


def test_an_error_that_is_in_the_cluster_already_is_said_to_be_and_comes_last() -> None:
    broken = cluster_spec(upgradePolicy={"maxUnavailable": "lots"})
    already = "the policy in the cluster has that error already: a file that mends it"
    kept = str(refused(cluster_policy(version=NEW), cluster=broken))
    assert "spec.driver.upgradePolicy.maxUnavailable" in kept
    assert already in kept
    worse = str(refused(cluster_policy(version=590.48), cluster=broken))
    assert "cluster-policy: spec.driver.version (590.48) is not a string" in worse
    assert already not in worse
    mended = cluster_policy(version=NEW, upgradePolicy={"maxUnavailable": 2})
    assert change_of(mended, cluster=broken).query(PlanQuery(pool="")).max_unavailable == "2"
    assert already not in str(refused(cluster_policy(upgradePolicy={"maxUnavailable": "lots"})))


@pytest.mark.parametrize(
    ("driver", "problem"),
    [
        ({"upgradePolicy": {"maxUnavailable": "lots"}}, "maxUnavailable"),
        ({"upgradePolicy": {"maxParallelUpgrades": -1}}, "is not from 0 to"),
        ({"version": 590.48}, "spec.driver.version (590.48) is not a string"),
    ],
)
def test_an_error_names_file_policy_field_and_reason(driver: Any, problem: str) -> None:
    failure = refused(cluster_policy(**driver))
    assert failure.code is ExitCode.WRONG_ARGUMENTS
    assert str(failure).startswith("policy.yaml: ClusterPolicy cluster-policy: spec.driver.")
    assert problem in str(failure)


def test_of_several_errors_the_first_is_told_and_the_others_counted() -> None:
    upgrade = {"maxParallelUpgrades": "x", "maxUnavailable": "y"}
    assert str(refused(cluster_policy(upgradePolicy=upgrade))).endswith("; and 1 more error")


def test_a_wrong_version_of_the_kind_is_an_error() -> None:
    policy = {**cluster_policy(version=NEW), "apiVersion": "nvidia.com/v1alpha1"}
    assert 'apiVersion ("nvidia.com/v1alpha1") is not nvidia.com/v1' in str(refused(policy))


def test_a_field_that_cannot_change_is_refused_as_the_api_server_does() -> None:
    failure = refused(nvidia_driver(usePrecompiled=True), cluster=WITH_DRIVERS, drivers=DRIVERS)
    assert "spec.usePrecompiled (true) is refused: usePrecompiled is an immutable" in str(failure)


def test_drivers_that_would_select_the_same_node_are_refused() -> None:
    other = nvidia_driver("other", **DRIVER, nodeSelector={"role": "serve"})
    failure = refused(other, cluster=WITH_DRIVERS, drivers=DRIVERS)
    assert "spec.nodeSelector conflicts with another NVIDIADriver on 2 nodes" in str(failure)
