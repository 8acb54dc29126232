"""Nodes whose driver came with the machine, beside nodes that get one."""

import msgspec

from libs.contracts.identities import Writer
from libs.contracts.node import DRIVER_LABEL
from libs.testing.machines.base_files import PLAIN
from services.scheduler import resources
from tests.component.scheduler.world import CORDON, NEW, POOL, World, in_world

LABEL = {"nvidia.com/gpu.deploy.driver": "pre-installed"}
VERSION = "550.54.14"
OWN_POOL = f"preinstalled-{POOL}"


async def add_node(world: World, name: str, *, driver: str) -> None:
    system = msgspec.structs.replace(PLAIN, driver=driver)
    await world.add_nodes(name, labels=LABEL, system=system)


@in_world
async def test_a_pre_installed_driver_is_validated_and_never_changed(world: World) -> None:
    await world.install_fleet("a")
    await add_node(world, "own", driver=VERSION)
    world.start()

    async def validated() -> bool:
        return [await world.state(name) for name in ("a", "own")] == ["upgrade-done"] * 2

    await world.until_written(validated)
    target = (await world.kube.get(resources.ROLLOUTS, POOL)).status.target
    await world.apply_policy(NEW)

    async def upgraded() -> bool:
        rollout = await world.kube.get(resources.ROLLOUTS, POOL)
        return rollout.status.target != target and rollout.status.phase == "Complete"

    await world.until_written(upgraded)
    await world.sleep(300)
    assert await validated()
    assert world.swaps("own") == 0
    assert {entry.command for entry in world.journals["own", Writer.DRIVER]} <= {"idle"}
    driver = world.machines["own"].driver
    assert driver is not None
    assert (driver.version, driver.pod_uid) == (VERSION, "")
    writes = [each for each in world.node_writes() if each.name == "own"]
    assert writes
    assert not any(CORDON in each.changed for each in writes)


@in_world
async def test_a_node_without_the_driver_that_it_should_have_waits_with_a_reason(
    world: World,
) -> None:
    await world.install_fleet("a")
    await add_node(world, "own", driver="")
    world.start()
    await world.sleep(120)
    why = await world.why("own")
    assert why.wait is not None
    assert (why.pool, why.wait.code) == (OWN_POOL, "target-missing")
    found = await world.node("own")
    assert not found.spec.unschedulable
    assert DRIVER_LABEL not in found.metadata.labels
