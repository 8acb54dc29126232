"""A startup taint at the API server: gone with the first upgrade-done, others' taints stay."""

from libs.contracts.node import MANAGER, STATE_LABEL
from libs.kube.client import MERGE_PATCH
from libs.policy.kinds.strategy import ROLLOUT_STRATEGY
from tests.component.scheduler.world import NEW, OLD, OTHER, POOL, World, in_world

KEY = "example.com/starting"
STARTUP = {"key": KEY, "effect": "PreferNoSchedule", "value": "yes"}
"""DaemonSets of this world are rendered without the strategy, so their pods must fit."""
OTHERS = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"}
STRATEGY = {
    "apiVersion": "sluice.dev/v1alpha1",
    "kind": ROLLOUT_STRATEGY.name,
    "metadata": {"name": "s"},
    "spec": {"pool": POOL, "startupTaint": KEY},
}


async def taints_of(world: World, name: str) -> list[str]:
    node = await world.node(name)
    return sorted(taint.key for taint in node.spec.taints)


async def set_taints(world: World, name: str, *taints: dict[str, str]) -> None:
    await world.kube.request(
        "PATCH",
        f"/api/v1/nodes/{name}",
        body={"spec": {"taints": list(taints)}},
        content_type=MERGE_PATCH,
    )


@in_world
async def test_the_first_upgrade_done_removes_it_and_later_ones_keep_all(world: World) -> None:
    await world.install_fleet("a", version=OLD)
    await world.apply(STRATEGY)
    await set_taints(world, "a", STARTUP, OTHERS)
    world.start()
    await world.until_state("a", "upgrade-done")
    assert await taints_of(world, "a") == [OTHERS["key"]]
    removals = [
        write
        for write in world.node_writes("a")
        if any(path.startswith("spec.taints") for path in write.changed)
    ]
    assert [write.manager for write in removals] == [MANAGER]
    assert f'metadata.labels["{STATE_LABEL}"]' in removals[0].changed

    await upgrade(world, NEW)  # the list is ours, until the next writer of a taint
    assert await taints_of(world, "a") == [OTHERS["key"]]

    await set_taints(world, "a", OTHERS, STARTUP)  # a person's, from now on
    await upgrade(world, OTHER)
    assert await taints_of(world, "a") == sorted([KEY, OTHERS["key"]])


async def upgrade(world: World, version: str) -> None:
    before = await world.target()
    await world.apply_policy(version)
    await world.wait_until_done("a", before=before)
    await world.sleep(5)  # until the node controller has removed the taint of the cordon
