"""An upgrade with both cluster roles: images are on nodes before these are drained."""

from typing import Any

from libs.contracts.identities import Writer
from libs.contracts.waits import WaitCode
from libs.forecast.world import TimeSpan
from libs.policy.render.rendered import IMAGE_LABEL
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from services.scheduler import resources
from tests.component import world as component_world
from tests.component.processes import NAMESPACE
from tests.component.scheduler.world import NEW, OLD, World
from tests.unit.policy.situations import cluster_policy

PULL = 90.0
MISSING = WorldOverride(node="b", container="image-1", pull=TimeSpan(None))
DRAINED = "sluice_scheduler_drained_seconds"
PULLING = "sluice_scheduler_drained_pulling_seconds"


def policy(version: str) -> dict[str, Any]:
    upgrade = {"autoUpgrade": True, "maxParallelUpgrades": 0, "maxUnavailable": "100%"}
    return cluster_policy(
        driver={
            "repository": "r.example/nvidia",
            "image": "driver",
            "version": version,
            "upgradePolicy": upgrade,
        }
    )


async def install(world: World, *names: str) -> None:
    """Bring up the nodes with the first driver, under both cluster roles."""
    await world.install()
    await world.add_nodes(*names)
    world.start(Writer.DRIVER_CLUSTER)
    await world.apply(policy(OLD))


def play(story: Any, *overrides: WorldOverride) -> Any:
    model = SteadyWorld(overrides=overrides)
    return component_world.run_world(story, lambda sim, folder: World(sim, folder, model))


def test_a_node_whose_image_is_missing_is_not_drained_and_others_are_upgraded() -> None:
    async def story(world: World) -> None:
        await install(world, "a", "b")
        scheduler = world.start()
        await world.wait_until_done("a", "b")
        first = await world.target()
        assert (await image_pods(world)) == []
        assert scheduler.value(f"{DRAINED}_count") == 0.0

        await world.apply(policy(NEW))
        await world.until_written(lambda: is_upgraded(world, "a", before=first), within=600.0)
        await world.sleep(120)
        waiting = await world.node("b")
        assert not waiting.spec.unschedulable
        wait = await world.wait_of("b")
        assert wait.code is WaitCode.PREFLIGHT
        assert f"r.example/nvidia/driver:{NEW}" in wait.detail
        assert await world.state("b") == "upgrade-required"
        assert scheduler.value(f"{DRAINED}_count") == 1.0
        assert (scheduler.value(f"{PULLING}_sum") or 0.0) <= 3.0
        assert {pod.spec.node_name for pod in await image_pods(world)} == {"b"}

    play(story, MISSING)


async def is_upgraded(world: World, name: str, *, before: str) -> bool:
    status = (await world.rollout()).status
    return status.target != before and await world.state(name) == "upgrade-done"


async def image_pods(world: World) -> list[resources.Pod]:
    page = await world.kube.list_page(resources.PODS, namespace=NAMESPACE, labels=IMAGE_LABEL)
    return list(page.items)
