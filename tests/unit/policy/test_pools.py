"""Assembly of pools: ownership of nodes, conflicts and verdicts."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.policy.findings import Acceptance, PolicyVerdict
from libs.policy.kinds.common import EnvVar, Image, Toleration
from libs.policy.kinds.strategy import OnJobTimeout, StrategySpec
from libs.policy.manifests import ParsedPolicy, parse_manifest
from libs.policy.owners import NodeLabels
from libs.policy.pools import Pools, assemble_pools, pool_key
from libs.policy.wanted import InstallMethod, Operands, PodOverrides
from tests.unit.policy.fields import minimal_object, put

OWNER = "nvidia.com/gpu-operator.driver.owner"
IMAGE = {"repository": "r.example", "image": "driver", "version": "580"}


def obj(
    kind: str, name: str, born: int = 1, *, deleting: bool = False, **spec: Any
) -> ParsedPolicy:
    made = minimal_object(kind)
    at = f"2026-01-01T00:00:{born:02}Z"
    made["metadata"] = {"name": name, "uid": f"uid-{name}", "creationTimestamp": at}
    if deleting:
        made["metadata"]["deletionTimestamp"] = at
    for path, value in spec.items():
        put(made["spec"], path.replace("__", "."), value)
    return parse_manifest(kind, made)


def driver(name: str, born: int = 1, *, deleting: bool = False, **spec: Any) -> ParsedPolicy:
    return obj("NVIDIADriver", name, born, deleting=deleting, **{**IMAGE, **spec})


def node(name: str, **labels: str) -> NodeLabels:
    present = {"nvidia.com/gpu.present": "true"}
    return NodeLabels(name=name, uid=f"uid-{name}", labels={**present, **labels})


def owned(name: str, owner: str, **labels: str) -> NodeLabels:
    return node(name, **{OWNER: owner, **labels})


def verdict_of(result: Pools, name: str) -> PolicyVerdict:
    (found,) = [one for one in result.verdicts if one.name == name]
    return found


def problems(result: Pools, name: str) -> str:
    return " | ".join(str(found) for found in verdict_of(result, name).findings)


def nodes_of(result: Pools) -> dict[str, tuple[str, ...]]:
    return {pool.key: pool.nodes for pool in result.pools}


CRD_MODE = obj("ClusterPolicy", "cp", driver__useNvidiaDriverCRD=True)


# One policy for the whole cluster.


def test_a_cluster_policy_has_every_gpu_node() -> None:
    absent = NodeLabels(name="c", labels={"nvidia.com/gpu.present": "false"})
    result = assemble_pools(
        [obj("ClusterPolicy", "cp")], [node("b"), node("a"), absent, NodeLabels(name="d")]
    )
    assert nodes_of(result) == {"clusterpolicy-cp": ("a", "b")}
    assert result.owners == {"a": "clusterpolicy-cp", "b": "clusterpolicy-cp"}
    assert (result.unowned, result.owner_labels) == ((), {})
    assert [(one.name, one.acceptance) for one in result.verdicts] == [("cp", Acceptance.ACTIVE)]


def test_the_oldest_cluster_policy_takes_effect_and_ties_break_by_name() -> None:
    reads = [
        obj("ClusterPolicy", "younger", 2),
        obj("ClusterPolicy", "b", 1),
        obj("ClusterPolicy", "a", 1),
    ]
    result = assemble_pools(reads, [node("n")])
    assert nodes_of(result) == {"clusterpolicy-a": ("n",)}
    assert result.cluster is reads[2].policy
    for name in ("b", "younger"):
        assert verdict_of(result, name).acceptance is Acceptance.IGNORED
        assert problems(result, name) == (
            f'metadata.name ("{name}") is ignored: ClusterPolicy "a" is older, and only one'
            ' cluster-wide policy takes effect: delete this one, or ClusterPolicy "a"'
        )


def test_precedence_applies_across_cluster_wide_kinds() -> None:
    first, second = obj("GPUClusterPolicy", "g", 1), obj("ClusterPolicy", "c", 2)
    assert nodes_of(assemble_pools([second, first], [node("n")])) == {"gpuclusterpolicy-g": ("n",)}
    result = assemble_pools([obj("ClusterPolicy", "c", 0), first], [node("n")])
    assert nodes_of(result) == {"clusterpolicy-c": ("n",)}
    assert verdict_of(result, "g").acceptance is Acceptance.IGNORED


def test_a_policy_that_is_being_deleted_has_no_effect() -> None:
    reads = [obj("ClusterPolicy", "old", 1, deleting=True), obj("ClusterPolicy", "new", 2)]
    result = assemble_pools(reads, [node("n")])
    assert nodes_of(result) == {"clusterpolicy-new": ("n",)}
    assert verdict_of(result, "old").acceptance is Acceptance.DELETING
    assert "is being deleted" in problems(result, "old")


@pytest.mark.parametrize("kind", ["ClusterPolicy", "GPUClusterPolicy"])
def test_a_gpu_cluster_conflicts_with_a_cluster_wide_policy(kind: str) -> None:
    result = assemble_pools([obj(kind, "c")], [node("n")], gpu_clusters=["gpu-cluster"])
    assert verdict_of(result, "c").acceptance is Acceptance.CONFLICTING
    words = (
        f'conflicting GPUCluster resource "gpu-cluster" detected; {kind} and GPUCluster'
        " cannot co-exist"
    )
    assert words in problems(result, "c")
    assert result.owner_labels is None
    (pool,) = result.pools
    assert [found.quoted for found in pool.held] == [words]


def test_a_gpu_cluster_holds_driver_pools_and_owner_labels() -> None:
    nodes = [owned("a", "x", rack="y"), node("b", rack="x")]
    reads = [CRD_MODE, driver("x", nodeSelector={"rack": "x"})]
    result = assemble_pools(reads, nodes, gpu_clusters=["gpu-cluster"])
    assert nodes_of(result) == {"nvidiadriver-x": ("a",)}
    assert result.owner_labels is None
    assert (result.unowned, result.undecided) == ((), ("b",))
    assert len(result.pools[0].held) == 1
    alone = assemble_pools(reads[1:], nodes, gpu_clusters=["gpu-cluster"])
    assert nodes_of(alone) == {"nvidiadriver-x": ("b",)}
    assert (alone.pools[0].held, alone.unowned) == ((), ("a",))


# Pools by NVIDIADriver.


def test_a_node_gets_the_selecting_driver_else_the_default_else_none() -> None:
    reads = [driver("x", nodeSelector={"rack": "1", "kind": "h"}), driver("d", default=True)]
    nodes = [node("a", rack="1", kind="h"), node("b", rack="1"), NodeLabels(name="c")]
    result = assemble_pools([CRD_MODE, *reads], nodes)
    assert nodes_of(result) == {"nvidiadriver-d": ("b",), "nvidiadriver-x": ("a",)}
    assert result.owner_labels == {"a": "x", "b": "d"}
    without = assemble_pools([CRD_MODE, reads[0]], nodes)
    assert without.unowned == ("b",)
    assert without.owner_labels == {"a": "x"}


@pytest.mark.parametrize("crd", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_without_a_cluster_policy_nodes_keep_their_owners(crd: bool, there: bool) -> None:
    """The cluster policy was deleted or is being deleted; NVIDIADrivers were enabled or not."""
    paths = {"driverInstallDir": "/opt/driver"}
    switch = {"driver__useNvidiaDriverCRD": crd}
    gone = obj("ClusterPolicy", "cp", deleting=True, hostPaths=paths, **switch)
    nodes = [owned("a", "x"), node("b"), owned("c", "deleted")]
    result = assemble_pools([gone, driver("x")] if there else [driver("x")], nodes)
    assert nodes_of(result) == {"nvidiadriver-x": ("a",)}
    assert (result.unowned, result.undecided) == ((), ("b", "c"))
    assert result.owner_labels is None
    (held,) = result.pools[0].held
    assert str(held) == (
        'metadata.name ("x") does not take effect: no ClusterPolicy enables NVIDIADrivers:'
        " create one with spec.driver.useNvidiaDriverCRD true, or delete this object"
    )
    assert verdict_of(result, "x").errors == result.pools[0].held


def test_before_the_first_driver_nodes_are_undecided() -> None:
    result = assemble_pools([CRD_MODE, driver("x", deleting=True)], [owned("a", "x"), node("b")])
    assert (result.pools, result.unowned, result.undecided) == ((), (), ("a", "b"))
    assert result.owner_labels is None
    assert problems(result, "cp") == (
        "spec.driver.useNvidiaDriverCRD (true) leaves GPU nodes without a driver: no NVIDIADriver"
        " selects a and 1 more: create one that selects them, or one with spec.default true"
    )


def test_nodes_that_no_driver_selects_are_reported() -> None:
    reads = [CRD_MODE, driver("x", nodeSelector={"rack": "1"})]
    result = assemble_pools(reads, [node("a", rack="1"), node("b")])
    assert (result.unowned, result.undecided) == (("b",), ())
    assert "no NVIDIADriver selects b: create one" in problems(result, "cp")
    assert problems(assemble_pools(reads, [node("a", rack="1")]), "cp") == ""


def test_an_invalid_host_path_holds_driver_pools() -> None:
    paths = {"driverInstallDir": "opt/driver"}
    cluster = obj("ClusterPolicy", "cp", driver__useNvidiaDriverCRD=True, hostPaths=paths)
    (pool,) = assemble_pools([cluster, driver("x")], [node("a")]).pools
    assert pool.nodes == ("a",)
    assert [found.field for found in pool.held] == ["spec.hostPaths.driverInstallDir"]


@pytest.mark.parametrize("crd", [True, False])
@pytest.mark.parametrize(
    ("default", "kept"),
    [
        ("container", ("plain", "said", "slip")),
        ("vm-vgpu", ("said",)),
        (None, ("plain", "said", "slip", "vm")),
    ],
)
def test_nodes_for_virtual_machines_are_in_no_pool(
    crd: bool, default: str | None, kept: tuple[str, ...]
) -> None:
    label = "nvidia.com/gpu.workload.config"
    nodes = [
        node("plain"),
        node("said", **{label: "container"}),
        node("slip", **{label: "vm"}),
        node("vm", **{label: "vm-passthrough"}),
    ]
    on = {"enabled": True, "defaultWorkload": default} if default else {"enabled": False}
    cluster = obj("ClusterPolicy", "cp", driver__useNvidiaDriverCRD=crd, sandboxWorkloads=on)
    result = assemble_pools([cluster, driver("x")], nodes)
    (pool,) = result.pools
    assert pool.nodes == kept
    assert result.unowned == tuple(one.name for one in nodes if one.name not in kept)


def test_drivers_are_disabled_unless_the_cluster_policy_enables_them() -> None:
    result = assemble_pools([obj("ClusterPolicy", "cp"), driver("x")], [node("n")])
    assert nodes_of(result) == {"clusterpolicy-cp": ("n",)}
    assert verdict_of(result, "x").acceptance is Acceptance.DISABLED
    assert "useNvidiaDriverCRD is not enabled in ClusterPolicy" in problems(result, "x")
    result = assemble_pools([obj("GPUClusterPolicy", "g"), driver("x")], [node("n")])
    assert verdict_of(result, "x").acceptance is Acceptance.DISABLED
    assert problems(result, "x") == (
        'metadata.name ("x") is not used: GPUClusterPolicy "g" determines the driver:'
        ' delete this one, or GPUClusterPolicy "g"'
    )


def test_conflicting_drivers_are_held_and_all_nodes_keep_their_owners() -> None:
    reads = [
        CRD_MODE,
        driver("x", nodeSelector={"rack": "1"}),
        driver("y", nodeSelector={"kind": "h"}),
        driver("z", nodeSelector={"rack": "3"}),
    ]
    nodes = [
        owned("a", "x", rack="1", kind="h"),
        owned("b", "z", rack="1"),
        node("c", rack="3"),
        owned("d", "gone", rack="3"),
        node("e", rack="1", kind="h"),
    ]
    result = assemble_pools(reads, nodes)
    assert result.owner_labels is None
    assert nodes_of(result) == {
        "nvidiadriver-x": ("a",),
        "nvidiadriver-y": (),
        "nvidiadriver-z": ("b",),
    }
    assert (result.unowned, result.undecided) == ((), ("c", "d", "e"))
    words = (
        "spec.nodeSelector conflicts with another NVIDIADriver on 2 nodes:"
        " multiple NVIDIADrivers match the same node a: [x y]: select by labels that"
        " the other's nodes lack; until then nodes keep their owners"
    )
    for name in ("x", "y"):
        assert verdict_of(result, name).acceptance is Acceptance.CONFLICTING
        assert problems(result, name) == words
    assert verdict_of(result, "z").acceptance is Acceptance.ACTIVE
    assert "NVIDIADrivers [x y] conflict" in problems(result, "z")
    assert [len(pool.held) for pool in result.pools] == [1, 1, 0]


def test_two_default_drivers_conflict() -> None:
    reads = [CRD_MODE, driver("b", 1, default=True), driver("a", 2, default=True)]
    result = assemble_pools(reads, [owned("n", "a")])
    assert nodes_of(result) == {"nvidiadriver-a": ("n",), "nvidiadriver-b": ()}
    for name in ("a", "b"):
        assert verdict_of(result, name).acceptance is Acceptance.CONFLICTING
        assert "multiple default NVIDIADrivers found: [a b]" in problems(result, name)


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
def test_an_invalid_node_selector_keeps_all_owners(
    broken: ParsedPolicy,
) -> None:
    reads = [CRD_MODE, broken, driver("y", nodeSelector={"r": "1"})]
    result = assemble_pools(reads, [node("n", r="1"), owned("m", "y")])
    assert result.owner_labels is None
    assert (nodes_of(result)["nvidiadriver-y"], result.undecided) == (("m",), ("n",))
    assert broken.policy is not None
    found = verdict_of(result, broken.policy.metadata.name)
    assert found.acceptance is Acceptance.CONFLICTING
    assert verdict_of(result, "y").acceptance is Acceptance.ACTIVE
    assert len(found.reasons) == 1
    assert found.findings.count(found.reasons[0]) == 1
    assert all(one.remedy for one in found.errors)


# What is wanted.


def test_a_pool_takes_driver_and_operands_from_its_cluster_policy() -> None:
    spec: dict[str, Any] = {
        "driver": {
            **IMAGE,
            "imagePullSecrets": ["s"],
            "repoConfig": {"configMapName": "repo"},
            "manager": {"env": [{"name": "A", "value": "1"}]},
            "upgradePolicy": {"maxParallelUpgrades": 7},
        },
        "daemonsets": {"tolerations": [{"key": "t"}], "priorityClassName": "p"},
        "hostPaths": {"rootFS": "/host", "driverInstallDir": "/drv"},
        "devicePlugin": {"enabled": False},
        "dcgmExporter": {"enabled": False},
    }
    (pool,) = assemble_pools([obj("ClusterPolicy", "CP", **spec)], []).pools
    assert (pool.key, pool.kind, pool.name, pool.uid) == (
        "clusterpolicy-cp",
        "ClusterPolicy",
        "CP",
        "uid-CP",
    )
    wanted = pool.driver
    assert wanted.method is InstallMethod.CONTAINER
    assert wanted.image == Image(
        repository="r.example", image="driver", version="580", image_pull_secrets=("s",)
    )
    assert (wanted.repo_config, wanted.host_root, wanted.install_dir) == ("repo", "/host", "/drv")
    assert wanted.manager_env == (EnvVar(name="A", value="1"),)
    assert wanted.pods == PodOverrides(tolerations=(Toleration(key="t"),), priority_class_name="p")
    assert pool.operands == Operands(device_plugin=False, telemetry=False)
    assert (pool.upgrade.max_parallel_upgrades, pool.upgrade.auto_upgrade) == (7, False)
    assert pool.strategy == StrategySpec(pool="clusterpolicy-cp")
    assert pool.held == ()


def test_a_driver_pool_takes_paths_and_operands_from_the_cluster_policy() -> None:
    cluster = obj(
        "ClusterPolicy",
        "cp",
        driver={"useNvidiaDriverCRD": True},
        hostPaths={"rootFS": "/host/"},
        toolkit={"enabled": False},
        daemonsets={"labels": {"theirs": "1"}},
    )
    mine = driver("x", labels={"mine": "1"}, repoConfig={"name": "repo"})
    (pool,) = assemble_pools([cluster, mine], []).pools
    assert (pool.driver.host_root, pool.driver.repo_config) == ("/host", "repo")
    assert pool.driver.pods == PodOverrides(labels={"mine": "1"})
    assert pool.operands == Operands(toolkit=False)
    assert pool.upgrade.auto_upgrade is True


def test_host_and_pre_installed_drivers() -> None:
    cuda = {"version": "13.0"}
    (pool,) = assemble_pools(
        [obj("GPUClusterPolicy", "g", cuda=cuda, migManager={"enabled": False})], []
    ).pools
    assert (pool.driver.method, pool.driver.version, pool.driver.cuda) == (
        InstallMethod.HOST,
        "580.95.05",
        "13.0",
    )
    assert pool.operands == Operands(mig_manager=False)
    assert pool.upgrade.auto_upgrade is True
    off = {"enabled": False}
    (pool,) = assemble_pools(
        [obj("GPUClusterPolicy", "g", driver=off, cuda={**cuda, **off})], []
    ).pools
    assert (pool.driver.method, pool.driver.cuda) == (InstallMethod.PRE_INSTALLED, "")
    (pool,) = assemble_pools([obj("ClusterPolicy", "c", driver=off)], []).pools
    assert pool.driver.method is InstallMethod.PRE_INSTALLED


# Strategies.


def strategy(name: str, pool: str, born: int = 1, **spec: Any) -> ParsedPolicy:
    return obj("RolloutStrategy", name, born, pool=pool, **spec)


def test_the_oldest_strategy_of_a_pool_applies() -> None:
    reads = [
        obj("ClusterPolicy", "c"),
        strategy("new", "clusterpolicy-c", 2, retries=5),
        strategy("old", "clusterpolicy-c", 1, onJobTimeout="Defer"),
        strategy("lost", "clusterpolicy-x"),
    ]
    result = assemble_pools(reads, [])
    (pool,) = result.pools
    assert pool.strategy == StrategySpec(pool="clusterpolicy-c", on_job_timeout=OnJobTimeout.DEFER)
    assert verdict_of(result, "old").acceptance is Acceptance.ACTIVE
    assert verdict_of(result, "new").acceptance is Acceptance.IGNORED
    assert 'to which the older RolloutStrategy "old" applies' in problems(result, "new")
    assert "use one of these: clusterpolicy-c" in problems(result, "lost")


# Always.


def test_no_policies_give_no_pools() -> None:
    result = assemble_pools([], [node("a")])
    assert (result.pools, result.unowned, result.undecided, result.verdicts) == ((), (), ("a",), ())
    assert assemble_pools([parse_manifest("ClusterPolicy", None)], []).verdicts == ()


_SELECTORS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"), max_size=2)
_DRIVERS = st.lists(st.tuples(_SELECTORS, st.booleans(), st.booleans()), max_size=4)
_NODES = st.lists(st.tuples(_SELECTORS, st.sampled_from(["", "d0", "d1", "gone"])), max_size=5)


@given(_DRIVERS, _NODES, st.randoms(use_true_random=False))
def test_ownership_does_not_depend_on_the_order_of_objects(
    wanted: Sequence[tuple[dict[str, str], bool, bool]],
    there: Sequence[tuple[dict[str, str], str]],
    chance: random.Random,
) -> None:
    reads = [
        driver(
            f"d{at}", at, default=default, nodeSelector={} if default else selector, deleting=gone
        )
        for at, (selector, default, gone) in enumerate(wanted)
    ]
    nodes = [
        owned(f"n{at}", owner, **labels) if owner else node(f"n{at}", **labels)
        for at, (labels, owner) in enumerate(there)
    ]
    result = assemble_pools([CRD_MODE, *reads], nodes)
    shuffled, others = [CRD_MODE, *reads], list(nodes)
    chance.shuffle(shuffled)
    chance.shuffle(others)
    assert assemble_pools(shuffled, others) == result
    names = [name for pool in result.pools for name in pool.nodes]
    assert all(found.remedy for one in result.verdicts for found in one.errors)
    left = result.unowned if result.owner_labels is not None else result.undecided
    assert sorted([*names, *left]) == sorted(one.name for one in nodes)
    live = [(f"d{at}", *one) for at, one in enumerate(wanted) if not one[2]]
    for one in nodes:
        specific = [
            name
            for name, selector, default, _ in live
            if not default and selector.items() <= one.labels.items()
        ]
        if result.owner_labels is None:
            kept = one.labels.get(OWNER, "")
            expected = kept if kept in {name for name, *_ in live} else None
        else:
            assert len(specific) <= 1
            defaults = [name for name, _, default, _ in live if default]
            assert len(defaults) <= 1
            expected = next(iter([*specific, *defaults]), None)
        key = pool_key("NVIDIADriver", expected) if expected else None
        assert result.owners.get(one.name) == key
