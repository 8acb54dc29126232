"""Driver images are brought to nodes that the scheduler's preflight checks name."""

from typing import Any

import msgspec

from libs.bus.slots import SlotWriter
from libs.contracts import subjects
from libs.contracts.commands import PreflightCheck
from libs.contracts.identities import Writer
from libs.contracts.node import STATE_LABEL
from libs.kube.resources import NODES, PODS
from libs.policy.installation import DRIVER_ACCOUNT
from libs.policy.render.rendered import IMAGE_ANNOTATION, IMAGE_LABEL, TARGET_ANNOTATION
from libs.testing.stage.worlds import TimeSpan, WorldOverride
from services.driver.cluster.image_pods import KEEPS_ANNOTATION
from services.scheduler import resources as scheduler_resources
from services.scheduler.snapshot.pod_view import image_pull
from tests.component.driver.cluster.test_drivers import (
    ROLLOUT,
    change_version,
    install_first_driver,
)
from tests.component.driver.cluster.world import DRIVER_PREFIX, World, in_world, play
from tests.component.processes import NAMESPACE

NEW_IMAGE = "r.example/nvidia/driver:590.10-ubuntu22.04"


async def request_image(world: World, label: str, *, prefetch: bool = True) -> None:
    """Store the preflight check that the scheduler sends before it drains node a."""
    bus = world.connect(Writer.SCHEDULER)
    uid = (await world.kube.get(NODES, "a")).metadata.uid
    slot = subjects.Check(
        cluster="default", node="a", component=Writer.DRIVER, asker=Writer.SCHEDULER
    )
    check = PreflightCheck(label=label, prefetch=prefetch)
    writer = SlotWriter(bus=bus, clock=world.sim.clock)
    await writer.put_check(slot, check, id="check-1", node_uid=uid, boot_id="boot")
    bus.kill()


async def image_pods(world: World) -> list[scheduler_resources.Pod]:
    page = await world.kube.list_page(
        scheduler_resources.PODS, namespace=NAMESPACE, labels=IMAGE_LABEL
    )
    return list(page.items)


async def raw_pod(world: World, name: str) -> dict[str, Any]:
    path = PODS.path(namespace=NAMESPACE, name=name)
    return msgspec.json.decode(await world.kube.request("GET", path))


async def install_second_driver(world: World) -> tuple[str, str]:
    """Return the labels of the driver that node a runs, and of the one that it is to get."""
    old = await install_first_driver(world)
    await change_version(world)
    new = await world.driver(but=[old])
    return old.removeprefix(DRIVER_PREFIX), new.removeprefix(DRIVER_PREFIX)


async def set_last_good(world: World, label: str) -> None:
    """Write the Rollout of the pool: the target of this driver is proven."""
    driver = (await world.daemon_sets())[f"{DRIVER_PREFIX}{label}"]
    status = {"lastGood": driver.metadata.annotations[TARGET_ANNOTATION]}
    resource = scheduler_resources.ROLLOUTS
    await world.patch(resource, ROLLOUT, {"status": status}, subresource="status")


@in_world
async def test_images_come_on_request_and_stay_until_the_driver_is_proven(world: World) -> None:
    old, new = await install_second_driver(world)
    resource = scheduler_resources.ROLLOUTS
    rollout = {"apiVersion": resource.api_version, "kind": "Rollout", "metadata": {"name": ROLLOUT}}
    await world.kube.create(resource, rollout)
    await set_last_good(world, old)
    assert await image_pods(world) == []
    driver = (await world.daemon_sets())[f"{DRIVER_PREFIX}{new}"]
    assert driver.metadata.annotations[IMAGE_ANNOTATION] == NEW_IMAGE

    await request_image(world, new)
    await world.sleep(30)
    (pod,) = await image_pods(world)
    assert pod.metadata.labels[IMAGE_LABEL] == new
    assert pod.metadata.annotations[KEEPS_ANNOTATION] == old
    pull = image_pull([pod])
    assert pull is not None
    assert pull.present
    spec = (await raw_pod(world, pod.metadata.name))["spec"]
    assert spec["nodeName"] == "a"
    assert spec["serviceAccountName"] == DRIVER_ACCOUNT
    images = [each["image"] for each in spec["containers"]]
    assert images[0] == NEW_IMAGE
    assert len(images) == len(set(images)) == 2

    await world.set_driver_label("a", f"{DRIVER_PREFIX}{new}")
    await world.sleep(40)
    assert [each.metadata.uid for each in await image_pods(world)] == [pod.metadata.uid]
    await world.label("a", {STATE_LABEL: "upgrade-done"})
    await world.sleep(40)
    assert [each.metadata.uid for each in await image_pods(world)] == [pod.metadata.uid]
    await set_last_good(world, new)
    await world.sleep(40)
    assert await image_pods(world) == []


def test_a_pull_that_fails_says_why() -> None:
    async def story(world: World) -> None:
        _, new = await install_second_driver(world)
        await request_image(world, new)
        await world.sleep(60)
        (pod,) = await image_pods(world)
        pull = image_pull([pod])
        assert pull is not None
        assert (pull.label, pull.present) == (new, False)

    play(story, WorldOverride(container="image-1", pull=TimeSpan(None)))


@in_world
async def test_no_image_is_brought_without_a_request_for_it(world: World) -> None:
    _, new = await install_second_driver(world)
    await request_image(world, new, prefetch=False)
    await request_image(world, "")
    await world.sleep(30)
    assert await image_pods(world) == []


@in_world
async def test_a_request_for_an_unknown_driver_or_an_earlier_node_is_ignored(world: World) -> None:
    _, new = await install_second_driver(world)
    await request_image(world, "unknown")
    await world.sleep(20)
    assert await image_pods(world) == []
    await request_image(world, new)
    await world.sleep(20)
    assert len(await image_pods(world)) == 1
    await request_image(world, "", prefetch=False)
    await world.sleep(20)
    assert await image_pods(world) == []
