"""Assembly of pools: ownership of nodes, conflicts and verdicts."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.policy.findings import Acceptance, PolicyVerdict
from libs.policy.kinds.common import Image, Toleration
from libs.policy.kinds.strategy import OnJobTimeout, StrategySpec
from libs.policy.manifests import ParsedPolicy, parse_manifest
from libs.policy.owners import NodeLabels
from libs.policy.pool import Pools, pool_key
from libs.policy.pools import assemble_pools
from libs.policy.wanted import InstallMethod, Operands, PodOverrides
from tests.unit.policy.fields import minimal_object, put

OWNER = "nvidia.com/gpu-operator.driver.owner"
IMAGE = {"repository": "r.example", "image": "driver", "version": "580"}


def parsed(
    kind: str, name: str, created: int = 1, *, deleting: bool = False, **spec: Any
) -> ParsedPolicy:
    obj = minimal_object(kind)
    time = f"2026-01-01T00:00:{created:02}Z"
    obj["metadata"] = {"name": name, "uid": f"uid-{name}", "creationTimestamp": time}
    if deleting:
        obj["metadata"]["deletionTimestamp"] = time
    for path, value in spec.items():
        put(obj["spec"], path.replace("__", "."), value)
    return parse_manifest(kind, obj)


def driver(name: str, created: int = 1, *, deleting: bool = False, **spec: Any) -> ParsedPolicy:
    return parsed("NVIDIADriver", name, created, deleting=deleting, **{**IMAGE, **spec})


def strategy(name: str, pool: str, created: int = 1, **spec: Any) -> ParsedPolicy:
    return parsed("RolloutStrategy", name, created, pool=pool, **spec)


def node(name: str, **labels: str) -> NodeLabels:
    labels = {"nvidia.com/gpu.present": "true", **labels}
    return NodeLabels(name=name, uid=f"uid-{name}", labels=labels)


def owned(name: str, owner: str, **labels: str) -> NodeLabels:
    return node(name, **{OWNER: owner, **labels})


def verdict_of(pools: Pools, name: str) -> PolicyVerdict:
    (found,) = [verdict for verdict in pools.verdicts if verdict.name == name]
    return found


def acceptance_of(pools: Pools, name: str) -> Acceptance:
    return verdict_of(pools, name).acceptance


def problems(pools: Pools, name: str) -> str:
    return " | ".join(str(finding) for finding in verdict_of(pools, name).findings)


def nodes_of(pools: Pools) -> dict[str, tuple[str, ...]]:
    return {pool.key: pool.nodes for pool in pools.pools}


CLUSTER = parsed("ClusterPolicy", "cp")
CRD_MODE = parsed("ClusterPolicy", "cp", driver__useNvidiaDriverCRD=True)


# One policy for the whole cluster.


def test_a_cluster_policy_has_every_gpu_node() -> None:
    absent = NodeLabels(name="c", labels={"nvidia.com/gpu.present": "false"})
    pools = assemble_pools([CLUSTER], [node("b"), node("a"), absent, NodeLabels(name="d")])
    assert nodes_of(pools) == {"clusterpolicy-cp": ("a", "b")}
    assert pools.owners == {"a": "clusterpolicy-cp", "b": "clusterpolicy-cp"}
    assert (pools.unowned, pools.owner_labels) == ((), {})
    assert acceptance_of(pools, "cp") is Acceptance.ACTIVE


def test_the_oldest_cluster_policy_takes_effect_and_ties_break_by_name() -> None:
    policies = [
        parsed("ClusterPolicy", name, time) for name, time in (("c", 2), ("b", 1), ("a", 1))
    ]
    pools = assemble_pools(policies, [node("n")])
    assert nodes_of(pools) == {"clusterpolicy-a": ("n",)}
    assert pools.cluster is policies[2].policy
    for name in ("b", "c"):
        assert acceptance_of(pools, name) is Acceptance.IGNORED
        assert problems(pools, name) == (
            f'metadata.name ("{name}") is ignored: ClusterPolicy "a" is older, and only one'
            ' cluster-wide policy takes effect: delete this one, or ClusterPolicy "a"'
        )


@pytest.mark.parametrize(
    ("created", "pool", "ignored"), [(2, "gpuclusterpolicy-g", "c"), (0, "clusterpolicy-c", "g")]
)
def test_precedence_applies_across_cluster_wide_kinds(
    created: int, pool: str, ignored: str
) -> None:
    policies = [parsed("ClusterPolicy", "c", created), parsed("GPUClusterPolicy", "g", 1)]
    pools = assemble_pools(policies, [node("n")])
    assert nodes_of(pools) == {pool: ("n",)}
    assert acceptance_of(pools, ignored) is Acceptance.IGNORED


def test_a_policy_that_is_being_deleted_has_no_effect() -> None:
    policies = [parsed("ClusterPolicy", "old", 1, deleting=True), parsed("ClusterPolicy", "new", 2)]
    pools = assemble_pools(policies, [node("n")])
    assert nodes_of(pools) == {"clusterpolicy-new": ("n",)}
    assert acceptance_of(pools, "old") is Acceptance.DELETING
    assert "is being deleted" in problems(pools, "old")


@pytest.mark.parametrize("kind", ["ClusterPolicy", "GPUClusterPolicy"])
def test_a_gpu_cluster_conflicts_with_a_cluster_wide_policy(kind: str) -> None:
    pools = assemble_pools([parsed(kind, "c")], [node("n")], gpu_clusters=["gpu-cluster"])
    assert acceptance_of(pools, "c") is Acceptance.CONFLICTING
    conflict = (
        f'conflicting GPUCluster resource "gpu-cluster" detected; {kind} and GPUCluster'
        " cannot co-exist"
    )
    assert conflict in problems(pools, "c")
    assert pools.owner_labels is None
    assert [found.quoted for found in pools.pools[0].held] == [conflict]


def test_a_gpu_cluster_holds_driver_pools_and_owner_labels() -> None:
    nodes = [owned("a", "x", rack="y"), node("b", rack="x")]
    policies = [CRD_MODE, driver("x", nodeSelector={"rack": "x"})]
    pools = assemble_pools(policies, nodes, gpu_clusters=["gpu-cluster"])
    assert nodes_of(pools) == {"nvidiadriver-x": ("a",)}
    assert (pools.owner_labels, pools.unowned, pools.undecided) == (None, (), ("b",))
    assert len(pools.pools[0].held) == 1
    without_cluster_policy = assemble_pools(policies[1:], nodes, gpu_clusters=["gpu-cluster"])
    assert nodes_of(without_cluster_policy) == {"nvidiadriver-x": ("b",)}
    assert (without_cluster_policy.pools[0].held, without_cluster_policy.unowned) == ((), ("a",))


# Pools by NVIDIADriver.


def test_a_node_gets_the_selecting_driver_else_the_default_else_none() -> None:
    drivers = [driver("x", nodeSelector={"rack": "1", "kind": "h"}), driver("d", default=True)]
    nodes = [node("a", rack="1", kind="h"), node("b", rack="1"), NodeLabels(name="c")]
    pools = assemble_pools([CRD_MODE, *drivers], nodes)
    assert nodes_of(pools) == {"nvidiadriver-d": ("b",), "nvidiadriver-x": ("a",)}
    assert pools.owner_labels == {"a": "x", "b": "d"}
    pools = assemble_pools([CRD_MODE, drivers[0]], nodes)
    assert (pools.unowned, pools.undecided, pools.owner_labels) == (("b",), (), {"a": "x"})
    assert "no NVIDIADriver selects b: create one" in problems(pools, "cp")
    assert problems(assemble_pools([CRD_MODE, drivers[0]], nodes[:1]), "cp") == ""


@pytest.mark.parametrize("crd", [True, False])
@pytest.mark.parametrize("deleting", [True, False])
def test_without_a_cluster_policy_nodes_keep_their_owners(crd: bool, deleting: bool) -> None:
    """The ClusterPolicy is being deleted or missing, and enabled NVIDIADrivers or not."""
    spec: dict[str, Any] = {
        "hostPaths": {"driverInstallDir": "/opt/driver"},
        "driver__useNvidiaDriverCRD": crd,
    }
    cluster = parsed("ClusterPolicy", "cp", deleting=True, **spec)
    nodes = [owned("a", "x"), node("b"), owned("c", "deleted")]
    pools = assemble_pools([cluster, driver("x")] if deleting else [driver("x")], nodes)
    assert nodes_of(pools) == {"nvidiadriver-x": ("a",)}
    assert (pools.owner_labels, pools.unowned, pools.undecided) == (None, (), ("b", "c"))
    (held,) = pools.pools[0].held
    assert str(held) == (
        'metadata.name ("x") does not take effect: no ClusterPolicy enables NVIDIADrivers:'
        " create one with spec.driver.useNvidiaDriverCRD true, or delete this object"
    )
    assert verdict_of(pools, "x").errors == pools.pools[0].held


def test_before_the_first_driver_nodes_are_undecided() -> None:
    pools = assemble_pools([CRD_MODE, driver("x", deleting=True)], [owned("a", "x"), node("b")])
    assert (pools.pools, pools.unowned, pools.undecided) == ((), (), ("a", "b"))
    assert pools.owner_labels is None
    assert problems(pools, "cp") == (
        "spec.driver.useNvidiaDriverCRD (true) leaves GPU nodes without a driver: no NVIDIADriver"
        " selects a and 1 more: create one that selects them, or one with spec.default true"
    )


def test_an_invalid_host_path_holds_driver_pools() -> None:
    paths = {"driverInstallDir": "opt/driver"}
    cluster = parsed("ClusterPolicy", "cp", driver__useNvidiaDriverCRD=True, hostPaths=paths)
    (pool,) = assemble_pools([cluster, driver("x")], [node("a")]).pools
    assert pool.nodes == ("a",)
    assert [found.field for found in pool.held] == ["spec.hostPaths.driverInstallDir"]


@pytest.mark.parametrize("crd", [True, False])
@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("container", ("containers", "none", "unknown")),
        ("vm-vgpu", ("containers",)),
        (None, ("containers", "none", "unknown", "vm")),
    ],
)
def test_nodes_for_virtual_machines_are_in_no_pool(
    crd: bool, default: str | None, expected: tuple[str, ...]
) -> None:
    workloads = {"containers": "container", "unknown": "vm", "vm": "vm-passthrough"}
    nodes = [
        node(name, **{"nvidia.com/gpu.workload.config": workload})
        for name, workload in workloads.items()
    ]
    sandbox = {"enabled": True, "defaultWorkload": default} if default else {"enabled": False}
    spec: dict[str, Any] = {"driver__useNvidiaDriverCRD": crd, "sandboxWorkloads": sandbox}
    policies = [parsed("ClusterPolicy", "cp", **spec), driver("x")]
    pools = assemble_pools(policies, [*nodes, node("none")])
    assert pools.pools[0].nodes == expected
    assert set(pools.unowned) == {"containers", "none", "unknown", "vm"} - set(expected)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("ClusterPolicy", "is not used: useNvidiaDriverCRD is not enabled in ClusterPolicy: set"),
        ("GPUClusterPolicy", 'is not used: GPUClusterPolicy "cp" determines the driver: delete'),
    ],
)
def test_drivers_are_disabled_unless_the_cluster_policy_enables_them(
    kind: str, problem: str
) -> None:
    pools = assemble_pools([parsed(kind, "cp"), driver("x")], [node("n")])
    assert nodes_of(pools) == {f"{kind.lower()}-cp": ("n",)}
    assert acceptance_of(pools, "x") is Acceptance.DISABLED
    assert problems(pools, "x").startswith(f'metadata.name ("x") {problem}')


def test_conflicting_drivers_are_held_and_all_nodes_keep_their_owners() -> None:
    selectors = {"x": {"rack": "1"}, "y": {"kind": "h"}, "z": {"rack": "3"}}
    drivers = [driver(name, nodeSelector=selector) for name, selector in selectors.items()]
    nodes = [
        owned("a", "x", rack="1", kind="h"),
        owned("b", "z", rack="1"),
        node("c", rack="3"),
        owned("d", "deleted", rack="3"),
        node("e", rack="1", kind="h"),
    ]
    pools = assemble_pools([CRD_MODE, *drivers], nodes)
    owners = {"nvidiadriver-x": ("a",), "nvidiadriver-y": (), "nvidiadriver-z": ("b",)}
    assert nodes_of(pools) == owners
    assert (pools.owner_labels, pools.unowned, pools.undecided) == (None, (), ("c", "d", "e"))
    conflict = (
        "spec.nodeSelector conflicts with another NVIDIADriver on 2 nodes:"
        " multiple NVIDIADrivers match the same node a: [x y]: select by labels that"
        " the other's nodes lack; until then nodes keep their owners"
    )
    for name in ("x", "y"):
        assert acceptance_of(pools, name) is Acceptance.CONFLICTING
        assert problems(pools, name) == conflict
    assert acceptance_of(pools, "z") is Acceptance.ACTIVE
    assert "NVIDIADrivers [x y] conflict" in problems(pools, "z")
    assert [len(pool.held) for pool in pools.pools] == [1, 1, 0]


def test_two_default_drivers_conflict() -> None:
    drivers = [driver("b", 1, default=True), driver("a", 2, default=True)]
    pools = assemble_pools([CRD_MODE, *drivers], [owned("n", "a")])
    assert nodes_of(pools) == {"nvidiadriver-a": ("n",), "nvidiadriver-b": ()}
    for name in ("a", "b"):
        assert acceptance_of(pools, name) is Acceptance.CONFLICTING
        assert "multiple default NVIDIADrivers found: [a b]" in problems(pools, name)


@pytest.mark.parametrize(
    "broken",
    [
        driver("x", nodeSelector={OWNER: "x"}),
        driver("x", default=True, nodeSelector={"a": "b"}),
        driver("x", nodeSelector={"rack": 7}),
        driver("x", nodeSelector="rack=7"),
        driver("x", default="no"),
        driver("x" * 64, nodeSelector={"r": "2"}),
    ],
)
def test_an_invalid_node_selector_keeps_all_owners(broken: ParsedPolicy) -> None:
    policies = [CRD_MODE, broken, driver("y", nodeSelector={"r": "1"})]
    pools = assemble_pools(policies, [node("n", r="1"), owned("m", "y")])
    assert (pools.owner_labels, pools.undecided) == (None, ("n",))
    assert nodes_of(pools)["nvidiadriver-y"] == ("m",)
    assert acceptance_of(pools, "y") is Acceptance.ACTIVE
    assert broken.policy is not None
    verdict = verdict_of(pools, broken.policy.metadata.name)
    assert verdict.acceptance is Acceptance.CONFLICTING
    assert len(verdict.reasons) == verdict.findings.count(verdict.reasons[0]) == 1
    assert all(found.remedy for found in verdict.errors)


# The driver and operands of a pool.


def test_a_pool_takes_driver_and_operands_from_its_cluster_policy() -> None:
    spec: dict[str, Any] = {
        "driver": {
            **IMAGE,
            "imagePullSecrets": ["s"],
            "repoConfig": {"configMapName": "repo"},
            "upgradePolicy": {"maxParallelUpgrades": 7},
        },
        "daemonsets": {"tolerations": [{"key": "t"}], "priorityClassName": "p"},
        "hostPaths": {"rootFS": "/host", "driverInstallDir": "/drv"},
        "devicePlugin": {"enabled": False},
        "dcgmExporter": {"enabled": False},
    }
    (pool,) = assemble_pools([parsed("ClusterPolicy", "CP", **spec)], []).pools
    identity = ("clusterpolicy-cp", "ClusterPolicy", "CP", "uid-CP")
    assert (pool.key, pool.kind, pool.name, pool.uid) == identity
    pool_driver = pool.driver
    assert pool_driver.method is InstallMethod.CONTAINER
    assert pool_driver.image == Image(**IMAGE, image_pull_secrets=("s",))
    assert (pool_driver.repo_config, pool_driver.host_root, pool_driver.install_dir) == (
        "repo",
        "/host",
        "/drv",
    )
    assert pool_driver.pods == PodOverrides(
        tolerations=(Toleration(key="t"),), priority_class_name="p"
    )
    assert pool.operands == Operands(device_plugin=False, telemetry=False)
    assert (pool.upgrade.max_parallel_upgrades, pool.upgrade.auto_upgrade) == (7, False)
    assert (pool.strategy, pool.held) == (StrategySpec(pool="clusterpolicy-cp"), ())


def test_a_driver_pool_takes_paths_and_operands_from_the_cluster_policy() -> None:
    spec: dict[str, Any] = {
        "driver": {"useNvidiaDriverCRD": True},
        "hostPaths": {"rootFS": "/host/"},
        "toolkit": {"enabled": False},
        "daemonsets": {"labels": {"cluster": "1"}},
    }
    policies = [
        parsed("ClusterPolicy", "cp", **spec),
        driver("x", labels={"driver": "1"}, repoConfig={"name": "repo"}),
    ]
    (pool,) = assemble_pools(policies, []).pools
    assert (pool.driver.host_root, pool.driver.repo_config) == ("/host", "repo")
    assert pool.driver.pods == PodOverrides(labels={"driver": "1"})
    assert pool.operands == Operands(toolkit=False)
    assert pool.upgrade.auto_upgrade is True


OFF = {"enabled": False}
CUDA = {"version": "13.0"}


@pytest.mark.parametrize(
    ("kind", "spec", "driver", "operands"),
    [
        (
            "GPUClusterPolicy",
            {"cuda": CUDA, "migManager": OFF},
            (InstallMethod.HOST, "580.95.05", "13.0"),
            Operands(mig_manager=False, artefacts=True),
        ),
        (
            "GPUClusterPolicy",
            {"driver": OFF, "cuda": {**CUDA, **OFF}},
            (InstallMethod.PRE_INSTALLED, "", ""),
            Operands(),
        ),
        ("ClusterPolicy", {"driver": OFF}, (InstallMethod.PRE_INSTALLED, "", ""), Operands()),
    ],
)
def test_host_and_pre_installed_drivers_have_their_method_and_operands(
    kind: str, spec: dict[str, Any], driver: tuple[Any, ...], operands: Operands
) -> None:
    (pool,) = assemble_pools([parsed(kind, "c", **spec)], []).pools
    assert (pool.driver.method, pool.driver.version, pool.driver.cuda) == driver
    assert pool.operands == operands
    assert pool.upgrade.auto_upgrade is (kind == "GPUClusterPolicy")


# Strategies.


def test_the_oldest_strategy_of_a_pool_applies() -> None:
    strategies = [
        strategy("new", "clusterpolicy-cp", 2, retries=5),
        strategy("old", "clusterpolicy-cp", 1, onJobTimeout="Defer"),
        strategy("lost", "clusterpolicy-x"),
    ]
    pools = assemble_pools([CLUSTER, *strategies], [])
    expected = StrategySpec(pool="clusterpolicy-cp", on_job_timeout=OnJobTimeout.DEFER)
    assert pools.pools[0].strategy == expected
    assert acceptance_of(pools, "old") is Acceptance.ACTIVE
    assert acceptance_of(pools, "new") is Acceptance.IGNORED
    assert 'to which the older RolloutStrategy "old" applies' in problems(pools, "new")
    assert "use one of these: clusterpolicy-cp" in problems(pools, "lost")


def test_errors_of_a_policy_and_of_its_strategy_hold_a_pool() -> None:
    broken = parsed("ClusterPolicy", "c", driver={"version": "1"})
    policies = [broken, strategy("s", "clusterpolicy-c", retries="many")]
    (pool,) = assemble_pools(policies, []).pools
    fields = ["spec.driver.repository", 'spec.retries of RolloutStrategy "s"']
    assert [found.field for found in pool.held] == fields


# Any objects in any order.


def test_no_policies_give_no_pools() -> None:
    pools = assemble_pools([], [node("a")])
    assert (pools.pools, pools.unowned, pools.undecided, pools.verdicts) == ((), (), ("a",), ())
    assert assemble_pools([parse_manifest("ClusterPolicy", None)], []).verdicts == ()


_SELECTORS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"), max_size=2)
_DRIVERS = st.lists(st.tuples(_SELECTORS, st.booleans(), st.booleans()), max_size=4)
_NODES = st.lists(st.tuples(_SELECTORS, st.sampled_from(["", "d0", "d1", "gone"])), max_size=5)


@given(_DRIVERS, _NODES, st.randoms(use_true_random=False))
def test_ownership_does_not_depend_on_the_order_of_objects(
    specs: Sequence[tuple[dict[str, str], bool, bool]],
    labelled: Sequence[tuple[dict[str, str], str]],
    source: random.Random,
) -> None:
    policies = [CRD_MODE]
    live: dict[str, tuple[dict[str, str], bool]] = {}
    for number, (labels, default, deleting) in enumerate(specs):
        name, selector = f"d{number}", {} if default else labels
        spec: dict[str, Any] = {"default": default, "nodeSelector": selector}
        policies.append(driver(name, number, deleting=deleting, **spec))
        if not deleting:
            live[name] = (selector, default)
    nodes = [
        owned(f"n{number}", owner, **labels) if owner else node(f"n{number}", **labels)
        for number, (labels, owner) in enumerate(labelled)
    ]
    pools = assemble_pools(policies, nodes)
    assert assemble_pools(source.sample(policies, len(policies)), nodes[::-1]) == pools
    assert all(found.remedy for verdict in pools.verdicts for found in verdict.errors)
    settled = pools.owner_labels is not None
    names = [name for pool in pools.pools for name in pool.nodes]
    without_owner = pools.unowned if settled else pools.undecided
    assert sorted([*names, *without_owner]) == sorted(each.name for each in nodes)
    defaults = [name for name, (_, default) in live.items() if default]
    for each in nodes:
        if settled:
            specific = [
                name
                for name, (selector, default) in live.items()
                if not default and selector.items() <= each.labels.items()
            ]
            assert len(specific) <= 1
            assert len(defaults) <= 1
            expected = next(iter([*specific, *defaults]), None)
        else:
            owner = each.labels.get(OWNER, "")
            expected = owner if owner in live else None
        key = pool_key("NVIDIADriver", expected) if expected else None
        assert pools.owners.get(each.name) == key


# Node affinity, and drivers that came with the machine.

PRE_INSTALLED = {"nvidia.com/gpu.deploy.driver": "pre-installed"}


def affinity(operator: str, *zones: str) -> dict[str, Any]:
    expression = {"key": "zone", "operator": operator, "values": list(zones)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def test_required_affinity_selects_among_the_nodes_of_the_selector() -> None:
    policies = [
        CRD_MODE,
        driver("x", nodeSelector={"pool": "p"}, nodeAffinity=affinity("In", "a")),
        driver("y", 2, nodeSelector={"pool": "p"}, nodeAffinity=affinity("NotIn", "a", "b")),
        driver("rest", 3, default=True, nodeAffinity=affinity("NotIn", "b")),
    ]
    nodes = [
        node("in-a", pool="p", zone="a"),
        node("in-b", pool="p", zone="b"),
        node("in-c", pool="p", zone="c"),
        node("other", zone="a"),
    ]
    pools = assemble_pools(policies, nodes)
    assert nodes_of(pools) == {
        "nvidiadriver-rest": ("other",),
        "nvidiadriver-x": ("in-a",),
        "nvidiadriver-y": ("in-c",),
    }
    assert pools.unowned == ("in-b",)
    assert all(verdict.errors == () for verdict in pools.verdicts)


def test_while_an_affinity_is_refused_all_nodes_keep_their_owners() -> None:
    policies = [CRD_MODE, driver("x", nodeAffinity={"required": {}}), driver("y", 2, default=True)]
    pools = assemble_pools(policies, [owned("a", "x"), owned("b", "y"), node("c")])
    assert nodes_of(pools) == {"nvidiadriver-x": ("a",), "nvidiadriver-y": ("b",)}
    assert "spec.nodeAffinity (an object) cannot be used" in problems(pools, "x")


@pytest.mark.parametrize("key", ["sluice.dev/driver", "nvidia.com/gpu-driver-upgrade-state", OWNER])
def test_labels_that_follow_from_the_driver_cannot_select_it(key: str) -> None:
    expression = {"key": key, "operator": "Exists"}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    for selecting in (
        driver("x", nodeSelector={key: "a"}),
        driver("x", nodeAffinity={"requiredDuringSchedulingIgnoredDuringExecution": required}),
    ):
        pools = assemble_pools([CRD_MODE, selecting], [owned("a", "x"), node("b")])
        assert nodes_of(pools) == {"nvidiadriver-x": ("a",)}
        assert "reserved label" in problems(pools, "x")


@pytest.mark.parametrize(
    ("policies", "key"),
    [
        ([parsed("ClusterPolicy", "cp", driver=IMAGE)], "clusterpolicy-cp"),
        ([CRD_MODE, driver("x", default=True)], "nvidiadriver-x"),
        ([parsed("GPUClusterPolicy", "g", driver__version="1")], "gpuclusterpolicy-g"),
    ],
)
def test_nodes_with_a_driver_of_their_own_are_a_pool_that_installs_nothing(
    policies: list[ParsedPolicy], key: str
) -> None:
    policies = [*policies, strategy("s", key, retries=3)]
    pools = assemble_pools(policies, [node("a"), node("b", **PRE_INSTALLED)])
    assert nodes_of(pools) == {key: ("a",), f"preinstalled-{key}": ("b",)}
    own = pools.pools[-1] if pools.pools[0].key == key else pools.pools[0]
    other = pools.pools[0] if pools.pools[0].key == key else pools.pools[-1]
    assert own.driver.method is InstallMethod.PRE_INSTALLED
    assert other.driver.method is not InstallMethod.PRE_INSTALLED
    assert (own.kind, own.name, own.uid) == (other.kind, other.name, other.uid)
    assert own.strategy.retries == other.strategy.retries == 3
    alone = assemble_pools(policies, [node("a")])
    assert [pool.key for pool in alone.pools] == [key]


def test_without_a_driver_to_install_every_node_is_in_one_pool() -> None:
    policy = parsed("ClusterPolicy", "cp", driver__enabled=False)
    pools = assemble_pools([policy], [node("a"), node("b", **PRE_INSTALLED)])
    assert nodes_of(pools) == {"clusterpolicy-cp": ("a", "b")}
