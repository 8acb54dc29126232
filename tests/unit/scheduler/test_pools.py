"""Pools, builds and assignments from policies, DaemonSets and Nodes."""

from typing import Any

import pytest

from libs.contracts.identities import Writer
from libs.contracts.node import DRIVER_LABEL
from libs.policy.artefacts import NO_ARTEFACTS, Artefacts, parse_artefacts
from libs.policy.kinds.common import Image
from libs.policy.manifests import parse_manifest
from libs.policy.wanted import InstallMethod, WantedDriver
from libs.rollout.views.pool import Build, PoolView, Readiness
from services.scheduler.resources import DaemonSet
from services.scheduler.snapshot.pools import (
    PoolMember,
    PoolSnapshot,
    driver_version,
    hypothetical_builds,
    snapshot_pools,
)
from tests.builders.objects import seen
from tests.unit.policy.situations import (
    SETTINGS,
    Situation,
    cluster_policy,
    drivers,
    from_corpus,
    node,
)

POOL = "clusterpolicy-cluster-policy"


def policy(version: str = "580.95.05", **driver: Any) -> dict[str, Any]:
    """Return a ClusterPolicy for a driver of this version."""
    image = {"repository": "r.example/nvidia", "image": "driver", "version": version}
    return cluster_policy(driver={**image, **driver})


def member(name: str, **facts: Any) -> PoolMember:
    """Return a node with GPUs."""
    more = {key: facts.pop(key) for key in ("label", "record_pool", "record_label") if key in facts}
    return PoolMember(name=name, labels=node(name, **facts).labels, **more)


def daemon_sets_of(*policies: dict[str, Any], **status: int) -> list[DaemonSet]:
    """Return the driver DaemonSets of these policies, as observed by their controller."""
    found: list[DaemonSet] = []
    for each in policies:
        for wanted in drivers(
            Situation([each], [node("a"), node("b", version="24.04")]).rendering(SETTINGS)
        ):
            metadata = {**wanted["metadata"], "uid": wanted["metadata"]["name"], "generation": 1}
            body = {"metadata": metadata, "status": {"observedGeneration": 1, **status}}
            found.append(seen(DaemonSet, body))
    return found


def pools_of(
    wanted: list[dict[str, Any]], members: list[PoolMember], sets: list[DaemonSet], **rollouts: str
) -> PoolSnapshot:
    reads = [parse_manifest(each["kind"], each) for each in wanted]
    return snapshot_pools(reads, members, sets, rollouts=rollouts)


def test_agents_that_the_policy_switches_off_are_not_waited_for() -> None:
    def absent(**switches: bool) -> frozenset[Writer]:
        sections = {name: {"enabled": value} for name, value in switches.items()}
        return pools_of([cluster_policy(**sections)], [], []).absent_agents

    assert absent() == {Writer.DRA}
    assert absent(devicePlugin=False, dra=True) == {Writer.PLUGIN}
    assert absent(devicePlugin=False, dcgmExporter=False) == {
        *(Writer.PLUGIN, Writer.DRA),
        Writer.TELEMETRY,
    }


def test_a_driver_on_hosts_is_settled_where_an_artefact_is_named() -> None:
    policies = [
        parse_manifest(each["kind"], each) for each in from_corpus("gpu-cluster-policy.yaml")
    ]
    line = f"sha256:{'a' * 64} run a.run"
    named = parse_artefacts(
        {
            "driver-580.95.05-ubuntu22.04-amd64": line,
            "cuda-13.0-ubuntu22.04-amd64": line,
            "driver-580.95.05-ubuntu24.04-amd64": line,
        }
    )

    def builds(artefacts: Artefacts) -> list[Build]:
        members = [member("a"), member("b", version="24.04")]
        snapshot = snapshot_pools(policies, members, [], artefacts=artefacts, rollouts={})
        (view,) = snapshot.pools.values()
        return [
            each
            for name in ("a", "b")
            if (each := view.build(view.target, snapshot.assignments[name].variant)) is not None
        ]

    settled, missing = builds(named)
    assert (settled.readiness, settled.detail) == (Readiness.SETTLED, "")
    assert named.find(settled.artefact) is not None
    assert (missing.readiness, missing.artefact) == (Readiness.MISSING, "")
    assert "names no artefact cuda-13.0-ubuntu24.04-amd64" in missing.detail
    without = builds(NO_ARTEFACTS)
    assert [each.readiness for each in without] == [Readiness.MISSING] * 2
    assert without[0].label != settled.label
    assert without[1].label == missing.label
    # What a plan supposes is installed on hosts too, not by a driver pod.
    driver = WantedDriver(method=InstallMethod.HOST, version="590")
    (supposed,) = hypothetical_builds(
        PoolView(key="p", uid="u"), driver, ["ubuntu/22.04/6.8.0-48/amd64"], NO_ARTEFACTS
    ).values()
    assert supposed.artefact


def test_other_files_of_one_system_are_another_target_and_move_the_nodes_of_that_system() -> None:
    policies = [
        parse_manifest(each["kind"], each) for each in from_corpus("gpu-cluster-policy.yaml")
    ]

    def pool(digit: str) -> tuple[str, list[str]]:
        lines = {"22.04": digit * 64, "24.04": "b" * 64}
        data = {
            f"{what}-ubuntu{version}-amd64": f"sha256:{each} run a.run"
            for version, each in lines.items()
            for what in ("driver-580.95.05", "cuda-13.0")
        }
        members = [member("a"), member("b", version="24.04")]
        snapshot = snapshot_pools(
            policies, members, [], artefacts=parse_artefacts(data), rollouts={}
        )
        (view,) = snapshot.pools.values()
        builds = [view.build(view.target, snapshot.assignments[name].variant) for name in "ab"]
        return view.target, [each.label for each in builds if each is not None]

    (first, before), (second, after) = pool("a"), pool("c")
    assert first != second
    assert (before[0] == after[0], before[1] == after[1]) == (False, True)
    assert pool("a") == (first, before)


def test_nodes_choose_a_configuration_of_the_plugin_where_the_policy_has_some() -> None:
    def choosing(**section: Any) -> frozenset[str]:
        return pools_of([cluster_policy(devicePlugin=section)], [], []).with_plugin_configs

    assert choosing(config={"name": "ours"}) == {"clusterpolicy-cluster-policy"}
    assert choosing(config={"default": "shared"}) == frozenset()
    assert choosing(enabled=False, config={"name": "ours"}) == frozenset()


def test_nodes_get_the_build_of_their_system() -> None:
    members = [member("a"), member("b", version="24.04")]
    found = pools_of([policy()], members, daemon_sets_of(policy()))
    view = found.pools[POOL]
    assert view.method is InstallMethod.CONTAINER
    labels = set[str]()
    for name in ("a", "b"):
        assignment = found.assignments[name]
        assert assignment.pool == POOL
        build = view.build(view.target, assignment.variant)
        assert build is not None
        assert build.readiness is Readiness.SETTLED
        labels.add(build.label)
    assert len(labels) == 2


def test_a_build_is_missing_without_a_daemon_set_and_unsettled_until_observed() -> None:
    members = [member("a")]
    none = pools_of([policy()], members, [])
    variant = none.assignments["a"].variant
    build = none.pools[POOL].build(none.pools[POOL].target, variant)
    assert build is not None
    assert build.readiness is Readiness.MISSING
    unobserved = pools_of([policy()], members, daemon_sets_of(policy(), observedGeneration=0))
    build = unobserved.pools[POOL].build(unobserved.pools[POOL].target, variant)
    assert build is not None
    assert build.readiness is Readiness.UNSETTLED


def test_an_earlier_target_has_builds_while_its_daemon_set_exists() -> None:
    old, new = policy("570.86.15"), policy()
    members = [member("a")]
    before = pools_of([old], members, daemon_sets_of(old)).pools[POOL]
    found = pools_of([new], members, daemon_sets_of(old, new))
    view, variant = found.pools[POOL], found.assignments["a"].variant
    assert view.target != before.target
    assert view.build(before.target, variant) == before.build(before.target, variant)
    assert (
        pools_of([new], members, daemon_sets_of(new)).pools[POOL].build(before.target, variant)
        is None
    )


def test_precompiled_drivers_keep_the_variant_of_the_node() -> None:
    members = [member("a")]
    plain = pools_of([policy()], members, [])
    compiled = pools_of([policy(usePrecompiled=True, version="580")], members, [])
    assert plain.assignments["a"] == compiled.assignments["a"]


def test_a_node_of_unknown_system_has_no_variant() -> None:
    bare = PoolMember(name="a", labels={"nvidia.com/gpu.present": "true"})
    assert pools_of([policy()], [bare], []).assignments["a"].variant == ""


def test_nodes_of_a_deleted_policy_stay_in_its_gone_pool() -> None:
    (each, *_) = daemon_sets_of(policy())
    label = each.metadata.labels[DRIVER_LABEL]
    members = [member("a", label=label, record_pool=POOL, record_label=label)]
    found = pools_of([], members, [each], **{POOL: "t"})
    assignment, view = found.assignments["a"], found.pools[POOL]
    assert assignment.pool == POOL
    assert view.gone
    target = each.metadata.annotations["sluice.dev/target"]
    build = view.build(target, assignment.variant)
    assert build is not None
    assert build.label == label


def test_a_gone_pool_is_kept_while_a_record_names_it() -> None:
    (each, *_) = daemon_sets_of(policy())
    label = each.metadata.labels[DRIVER_LABEL]
    other = policy()
    other["metadata"]["name"] = "another-policy"
    recorded = member("a", label=label, record_pool=POOL, record_label=label)
    found = pools_of([other], [recorded, member("b")], [each])
    assert {name: assignment.pool for name, assignment in found.assignments.items()} == {
        "a": "clusterpolicy-another-policy",
        "b": "clusterpolicy-another-policy",
    }
    view = found.pools[POOL]
    assert view.gone
    build = view.build(
        each.metadata.annotations["sluice.dev/target"], found.assignments["a"].variant
    )
    assert build is not None
    assert build.label == label
    assert POOL not in pools_of([other], [member("a"), member("b")], [each]).pools


def test_a_gone_pool_is_kept_while_its_rollout_exists() -> None:
    found = pools_of([], [member("a")], [], **{POOL: "t"})
    view = found.pools[POOL]
    assert (view.gone, view.target) == (True, "t")
    assert found.assignments["a"].pool == ""


def test_an_unselected_node_is_in_no_pool() -> None:
    labels = {"nvidia.com/gpu.present": "false"}
    other = PoolMember(name="a", labels=labels, record_pool=POOL)
    found = pools_of([policy()], [other], [])
    assert found.assignments["a"].pool == ""


def test_a_policy_with_errors_keeps_its_last_target() -> None:
    invalid = policy(image=None)
    found = pools_of([invalid], [member("a")], [], **{POOL: "before"})
    view = found.pools[POOL]
    assert view.errors
    assert view.target == "before"


DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("method", "wanted", "shown"),
    [
        (InstallMethod.HOST, {"version": "580.95.05"}, "580.95.05"),
        (InstallMethod.PRE_INSTALLED, {}, "pre-installed"),
        (InstallMethod.CONTAINER, {"image": ("r.example", "driver", "580")}, "580"),
        (InstallMethod.CONTAINER, {"image": ("r.example:5000", "driver", "580")}, "580"),
        (InstallMethod.CONTAINER, {"image": ("", "r.example:5000/driver:580", "")}, "580"),
        (InstallMethod.CONTAINER, {"image": ("r.example", "driver", DIGEST)}, DIGEST[:19]),
        (InstallMethod.CONTAINER, {"image": ("", f"r.example/driver@{DIGEST}", "")}, DIGEST[:19]),
        (InstallMethod.CONTAINER, {"image": ("", "r.example:5000/driver", "")}, ""),
        (InstallMethod.CONTAINER, {}, ""),
    ],
)
def test_the_version_of_a_driver_is_its_tag_or_digest(
    method: InstallMethod, wanted: dict[str, Any], shown: str
) -> None:
    repository, image, version = wanted.pop("image", ("", "", ""))
    path = Image(repository=repository, image=image, version=version)
    assert driver_version(WantedDriver(method=method, image=path, **wanted)) == shown


def test_a_pool_names_the_version_that_its_policy_wants() -> None:
    assert pools_of([policy("580.95.05")], [member("a")], []).pools[POOL].version == "580.95.05"


def test_who_switched_auto_upgrade_off_is_of_the_pool_of_that_policy_while_it_is_off() -> None:
    def author(*, auto_upgrade: bool) -> str:
        wanted = policy(upgradePolicy={"autoUpgrade": auto_upgrade})
        snapshot = snapshot_pools(
            [parse_manifest(wanted["kind"], wanted)],
            [member("a")],
            [],
            rollouts={},
            auto_upgrade_set_by={("ClusterPolicy", "cluster-policy"): "somebody with helm"},
        )
        return snapshot.pools[POOL].auto_upgrade_off_by

    assert author(auto_upgrade=False) == "somebody with helm"
    assert author(auto_upgrade=True) == ""
