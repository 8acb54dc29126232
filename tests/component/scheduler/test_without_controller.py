"""A fleet whose policy has `autoUpgrade` off: people upgrade it by deleting driver pods."""

import pytest

from libs.contracts.node import DRIVER_LABEL, RECORD_ANNOTATION
from services.scheduler import resources
from tests.component.processes import NAMESPACE
from tests.component.scheduler.world import CORDON, LABEL, NEW, World, in_world

MARKED = {LABEL, f'metadata.annotations["{RECORD_ANNOTATION}"]'}
"""What is written on a node that has another driver than the policy wants."""
DRAIN_WEB = {"ENABLE_AUTO_DRAIN": "true", "DRAIN_POD_SELECTOR_LABEL": "app=web"}
"""Variables of the driver manager, by which one of the users' pods without GPUs is evicted."""


async def delete_driver_pod(world: World, node: str) -> None:
    pods = (await world.kube.list_page(resources.PODS, namespace=NAMESPACE)).items
    (pod,) = [
        each
        for each in pods
        if each.spec.node_name == node and DRIVER_LABEL in each.metadata.labels
    ]
    path = resources.PODS.path(namespace=NAMESPACE, name=pod.metadata.name)
    await world.kube.request("DELETE", path)


async def pods(world: World) -> dict[str, str]:
    """Return the uid of each user's pod, by its label."""
    found = (await world.kube.list_page(resources.PODS, namespace="default")).items
    return {each.metadata.labels["app"]: each.metadata.uid for each in found}


async def labels(world: World, *nodes: str) -> list[str]:
    found = [await world.node(name) for name in nodes]
    return [each.metadata.labels.get(DRIVER_LABEL, "") for each in found]


@pytest.mark.dear("two nodes with all agents, for minutes in which nothing may happen")
@in_world
async def test_a_deleted_driver_pod_upgrades_its_node(world: World) -> None:
    await world.install_fleet("a", "b", autoUpgrade=False)
    world.start()
    for name in ("a", "b"):  # the first driver of an empty node takes nothing away
        await world.until_state(name, "upgrade-done")
    (old, _) = await labels(world, "a", "b")
    await world.start_job("train", "a")
    for name in ("web", "db"):
        await world.start_job(name, "a", gpus=0)
    running = await pods(world)
    before = world.committed()[-1].revision
    await world.apply_policy(NEW, autoUpgrade=False, manager=DRAIN_WEB)
    await world.sleep(300)
    assert {key for each in world.committed(since=before) for key in each.changed} <= MARKED
    wait = await world.wait_of("a")
    assert (wait.code, world.swaps("a")) == ("paused", 1)
    assert await pods(world) == running
    await delete_driver_pod(world, "a")

    async def upgraded() -> bool:
        (label,) = await labels(world, "a")
        return label != old and await world.state("a") == "upgrade-done"

    await world.until_written(upgraded)
    await world.sleep(300)
    assert (world.swaps("a"), world.swaps("b")) == (2, 1)
    after = await pods(world)
    assert [name for name in running if after[name] == running[name]] == ["db"]
    assert (await labels(world, "b"), await world.state("b")) == ([old], "upgrade-required")
    cordons = [each for each in world.committed("a", since=before) if CORDON in each.changed]
    assert [each.changed[CORDON][1] for each in cordons] == [True, None]
    assert world.driver_version("a") == NEW
