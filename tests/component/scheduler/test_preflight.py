"""Preflight checks of an upgrade: when they are asked, and what people are told of them."""

import pytest

from libs.contracts.events import GrantEvent
from libs.contracts.waits import WAITS_REASON
from services.driver.node.agent import INTERVAL
from services.scheduler import pod_cache
from tests.component.scheduler.world import NEW, World, in_world, play

FLEET = ("a", "b", "c")


async def granted(world: World) -> list[str]:
    """Return the nodes in the order of their starts."""
    bodies = [event.open() for event in await world.bus_events()]
    return [name for body in bodies if isinstance(body, GrantEvent) for name in body.nodes]


async def findings(world: World) -> dict[str, str]:
    """Return the message of the Event about a preflight check, by node."""
    return {
        event["involvedObject"]["name"]: event["message"]
        for event in await world.events_of(WAITS_REASON)
        if event["message"].startswith("preflight: ")
    }


async def bring_up(world: World) -> str:
    """Bring up the fleet until all nodes are equally busy in the reports; return the target."""
    _, target = await world.complete_first_rollout(*FLEET)
    await world.sleep(2 * INTERVAL)
    return target


async def upgrade(world: World) -> list[str]:
    """Upgrade the fleet; return the nodes in the order of their starts."""
    target = await bring_up(world)
    before = len(await granted(world))
    await world.apply_policy(NEW)
    await world.wait_until_done(*FLEET, before=target)
    return (await granted(world))[before:]


@pytest.mark.parametrize("watched", [pod_cache.MAX_WATCHED_NODES, 0])
def test_agents_are_no_finding_of_the_first_check(
    watched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more nodes than may be watched, the pods of a node are listed for its check alone."""
    monkeypatch.setattr(pod_cache, "MAX_WATCHED_NODES", watched)

    async def story(world: World) -> None:
        assert await upgrade(world) == list(FLEET)
        assert await findings(world) == {}

    play(story)


@in_world
async def test_agents_are_no_finding_of_the_check_before_a_removal(world: World) -> None:
    await world.complete_first_rollout("a")
    await world.label("a", {"nvidia.com/gpu.deploy.driver": "false"})
    await world.until_state("a", "")
    assert await findings(world) == {}


@in_world
async def test_a_true_finding_is_told_within_seconds_wherever_the_node_stands(
    world: World,
) -> None:
    await bring_up(world)
    world.block_preflight("a", "b")
    await world.apply_policy(NEW)
    await world.until_state("a", "upgrade-required")
    await world.sleep(3)
    found = await findings(world)
    assert found.keys() == {"a", "b"}
    assert all("open and is in no pod" in message for message in found.values())
    await world.until_state("c", "upgrade-done")
