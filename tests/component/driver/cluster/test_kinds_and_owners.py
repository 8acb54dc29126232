"""Kinds that are not installed, and the owner labels of nodes."""

import logging

import pytest

from libs.policy.crds import crd_manifests
from libs.policy.validation import OWNER_LABEL
from libs.testing.apiserver.faults import Fault, RefuseRequest
from services.driver.cluster import resources
from tests.component.definitions import open_definition
from tests.component.driver.cluster.world import AGENTS, World, in_world
from tests.component.processes import user_of
from tests.unit.policy.situations import cluster_policy, crd_mode_policy, nvidia_driver


@in_world
async def test_missing_definitions_are_named_and_the_others_take_effect(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def errors() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]

    await world.install(crds=[])
    world.add_kubelet("a")
    await world.sleep(5)
    role = await world.lead()
    (reason,) = role.service.unready_reasons()
    watched = crd_manifests().keys() - {"devices.gpu.nvidia.com"}
    assert all(name in reason for name in watched)
    assert await world.daemon_sets() == {}
    assert len(errors()) == len(watched)
    # Missing kinds are requested again every ten seconds.
    await world.install_crds(["clusterpolicies.nvidia.com"])
    await world.apply(cluster_policy())
    await world.sleep(30)
    assert len(await world.drivers()) == 1
    (reason,) = role.service.unready_reasons()
    assert "clusterpolicies.nvidia.com" not in reason
    await world.install_crds(crd_manifests())
    await world.sleep(60)
    assert role.service.unready_reasons() == []
    assert await world.state() == "notReady"
    assert all("CustomResourceDefinition not installed" in each for each in errors())


@in_world
async def test_nothing_is_written_before_the_policies_are_listed(world: World) -> None:
    await world.install()
    await world.apply(cluster_policy())
    fault = Fault(
        effect=RefuseRequest(500),
        kind="ClusterPolicy",
        verbs=("get", "list"),
        user=user_of(World.WRITER),
    )
    world.server.faults.add(fault)
    role = await world.lead()
    assert world.revisions() == []
    (reason,) = role.service.unready_reasons()
    assert "clusterpolicies" in reason
    world.server.faults.clear()
    await world.sleep(60)
    assert role.service.unready_reasons() == []
    assert sorted(await world.daemon_sets()) == AGENTS


async def owners(world: World) -> dict[str, str | None]:
    page = await world.kube.list_page(resources.NODES)
    return {each.metadata.name: each.metadata.labels.get(OWNER_LABEL) for each in page.items}


async def two_pools(world: World) -> None:
    await world.install()
    world.add_kubelet("a")
    world.add_kubelet("b", pool="canary")
    world.cluster.fleet.add("plain")
    await world.apply(crd_mode_policy())
    await world.apply(nvidia_driver("canary", nodeSelector={"pool": "canary"}, version="590.10"))
    await world.apply(nvidia_driver("rest", default=True))
    await world.sleep(5)


@in_world
async def test_each_node_gets_its_driver_label_once(world: World) -> None:
    await two_pools(world)
    await world.lead()
    assert await owners(world) == {"a": "rest", "b": "canary", "plain": None}
    assert [name for _, kind, name in world.written if kind == "Node"] == ["a", "b"]
    assert len(await world.drivers()) == 2
    await world.label("b", {"pool": "other"})
    await world.sleep(10)
    assert (await owners(world))["b"] == "rest"
    assert [name for _, kind, name in world.written if kind == "Node"] == ["a", "b", "b"]


@in_world
async def test_contradicting_policies_change_no_node_and_both_report_it(world: World) -> None:
    await two_pools(world)
    await world.lead()
    before = len([each for each in world.written if each[1] == "Node"])
    await world.apply(nvidia_driver("second", nodeSelector={"pool": "canary"}))
    await world.label("a", {OWNER_LABEL: "rest"})
    await world.sleep(10)
    assert await owners(world) == {"a": "rest", "b": "canary", "plain": None}
    assert len([each for each in world.written if each[1] == "Node"]) == before
    for name in ("canary", "second"):
        conditions = await world.conditions("NVIDIADriver", name)
        assert conditions["Error"]["reason"] == "ConflictingNodeSelector"


@in_world
async def test_an_obsolete_owner_label_is_removed_only_on_verified_caches(world: World) -> None:
    await two_pools(world)
    await world.lead()
    faults = [
        world.server.faults.add(
            Fault(
                effect=RefuseRequest(500),
                kind="GPUClusterPolicy",
                verbs=(verb,),
                user=user_of(World.WRITER),
            )
        )
        for verb in ("list", "watch")
    ]
    world.server.faults.drop_watches(kind="GPUClusterPolicy", clean=False)
    await world.sleep(60)
    await world.label("a", {"nvidia.com/gpu.present": None})
    await world.sleep(60)
    assert (await owners(world))["a"] == "rest"
    for fault in faults:
        world.server.faults.remove(fault)
    await world.sleep(300)
    assert (await owners(world))["a"] is None


@in_world
async def test_a_gpu_cluster_beside_a_policy_stops_both(world: World) -> None:
    await world.install()
    world.add_kubelet("a")
    await world.apply(cluster_policy())
    await world.apply(open_definition(resources.GPU_CLUSTERS))
    await world.sleep(5)
    api = resources.GPU_CLUSTERS
    created = {
        "apiVersion": api.api_version,
        "kind": api.kind,
        "metadata": {"name": "gpu-cluster"},
    }
    await world.kube.create(api, created)
    await world.lead()
    assert await world.drivers() == []
    conditions = await world.conditions()
    assert (
        'conflicting GPUCluster resource "gpu-cluster" detected' in conditions["Error"]["message"]
    )
