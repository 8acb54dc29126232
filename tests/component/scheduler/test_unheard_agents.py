"""Agents that are not heard: what their nodes wait for, and that no driver is blamed for it."""

import pytest

from libs.contracts.identities import Identity, Writer
from libs.contracts.reports import SILENT_AFTER
from libs.contracts.subjects import Beat
from tests.component.scheduler.world import NEW, World, in_world

AGENT = Identity(writer=Writer.DRIVER, node="a")
LONGER_THAN_A_DRIVER_MAY_TAKE = 45 * 60


async def until_swap_begins(world: World) -> None:
    await world.complete_first_rollout("a")
    await world.apply_policy(NEW)
    await world.until_state("a", "pod-restart-required")
    while world.swaps("a") < 2:
        await world.sleep(0.05)


async def failed_nodes(world: World) -> int:
    """Return how many nodes the target has harmed once a node in flight has passed its limits."""
    waited = 0
    while not any("failed: driver-start" in text for text in (await world.why("a")).history):
        assert waited < LONGER_THAN_A_DRIVER_MAY_TAKE
        await world.sleep(60)
        waited += 60
    status = (await world.rollout()).status
    assert (status.phase == "Halted") == bool(status.targets[status.target].failed)
    return len(status.targets[status.target].failed)


@pytest.mark.dear("the half hour that a driver may take, with agents that look each second")
@in_world
async def test_a_swap_that_never_began_is_no_harm(world: World) -> None:
    await world.complete_first_rollout("a")
    await world.apply_policy(NEW)
    await world.until_state("a", "pod-deletion-required")
    world.bus.cut(AGENT)
    assert await failed_nodes(world) == 0
    world.bus.restore(AGENT)
    await world.wait_until_done("a", within=300)


@pytest.mark.parametrize("seconds", [0.0, 0.1, 1.0])
@in_world
async def test_a_machine_that_goes_down_after_the_beginning_is_harm(
    world: World, seconds: float
) -> None:
    """Also where the report of the beginning has not left the machine."""
    await until_swap_begins(world)
    await world.sleep(seconds)
    world.bus.cut(AGENT)
    await world.power_off("a")
    assert await failed_nodes(world) == 1


@in_world
async def test_the_wait_for_an_agent_that_was_cut_off_names_what_it_sent(world: World) -> None:
    await world.complete_first_rollout("a")
    hostile = world.bus.connect(AGENT)
    for _ in range(3 * 1_000):
        await hostile.publish(
            str(Beat(cluster="default", node="a", component=Writer.DRIVER)), b"{}"
        )
    await world.sleep(1)
    world.bus.cut(AGENT)
    await world.sleep(2 * SILENT_AFTER)
    await world.apply_policy(NEW)
    await world.sleep(60)
    wait = await world.wait_of("a")
    assert "the driver agent has stopped sending heartbeats: it sent " in wait.detail
