"""The objects in the namespace of the drivers are deleted while a node waits for its new driver."""

from contextlib import suppress
from typing import Any

import pytest

from libs.contracts.node import REQUEST_ANNOTATION, NodeRequest
from libs.contracts.waits import WaitCode
from libs.kube.errors import NotFound
from libs.kube.resources import DAEMON_SETS, PODS, Resource
from tests.component.processes import NAMESPACE
from tests.component.scheduler.world import CORDON, NEW, World, in_world

STARTING = "pod-restart-required"


async def delete_all(world: World, resource: Resource[Any]) -> None:
    page = await world.kube.list_page(resource, namespace=NAMESPACE)
    for name in [each.metadata.name for each in page.items]:
        with suppress(NotFound):  # the garbage collector was faster
            await world.remove(resource, name)


async def lose_namespace(world: World) -> None:
    """Delete all DaemonSets and pods of the namespace, and with them the agents."""
    await world.kill_agents()
    await delete_all(world, DAEMON_SETS)
    await delete_all(world, PODS)


async def restore_namespace(world: World, node: str) -> None:
    await world.apply_policy(NEW)
    await world.start_agents(node)


async def start_and_lose(world: World) -> None:
    await world.complete_first_rollout("a")
    await world.apply_policy(NEW)
    await world.until_state("a", STARTING)
    await lose_namespace(world)


def uncordons(world: World, name: str) -> int:
    return sum(
        CORDON in each.changed and not each.changed[CORDON][1] for each in world.committed(name)
    )


@in_world
async def test_why_names_the_missing_daemon_set_and_the_node_continues_when_it_is_back(
    world: World,
) -> None:
    await start_and_lose(world)
    for seconds in (30, 400):
        await world.sleep(seconds)
        why = await world.why("a")
        assert why.wait is not None
        assert (why.state, why.wait.code) == (STARTING, WaitCode.TARGET_MISSING)
        assert "DaemonSet of driver" in why.wait.detail
        assert "namespace" in why.wait.detail
    target = await world.target()
    await restore_namespace(world, "a")
    await world.wait_until_done("a", target=target)
    assert uncordons(world, "a") == 1


@pytest.mark.dear("the limits of a node in flight, with agents that look each second")
@in_world
async def test_the_node_stays_cordoned_until_a_person_forgets_it_or_it_is_validated(
    world: World,
) -> None:
    await start_and_lose(world)
    await world.sleep(2400)
    assert await world.state("a") == "upgrade-failed"
    wait = await world.wait_of("a")
    assert "DaemonSet of driver" in wait.detail
    scheduler = world.roles[-1]
    writes = len(world.committed())
    await scheduler.kill()
    world.start()
    await world.sleep(400)
    assert len(world.committed()) == writes
    await world.annotate("a", {REQUEST_ANNOTATION: NodeRequest.FORGET.value})
    await world.sleep(30)
    node = await world.node("a")
    assert node.spec.unschedulable
    assert await world.state("a") == ""
    assert uncordons(world, "a") == 0
    await restore_namespace(world, "a")
    # The driver never began, so that nothing was counted against its target.
    await world.wait_until_done("a")
    assert uncordons(world, "a") == 1
