"""Queries are answered while a scheduler leads, also if NATS was away when its term began."""

import pytest

from libs.bus.port import NoResponders
from libs.contracts.queries import StatusQuery
from tests.component.scheduler.world import NEW, World, in_world

SERVING = "sluice_scheduler_serving_queries"
LEADING = "sluice_scheduler_leading"


@in_world
async def test_a_term_that_begins_without_nats_answers_once_it_is_back(world: World) -> None:
    first, target = await world.complete_first_rollout("a")
    standby = world.start()
    await world.sleep(10)
    assert (first.value(SERVING), standby.value(SERVING)) == (1, 0)
    world.bus.stop()
    await first.kill()
    await world.sleep(60)
    assert (standby.value(LEADING), standby.value(SERVING)) == (1, 0)
    world.bus.start()
    await world.sleep(15)
    assert standby.value(SERVING) == 1
    assert (await world.why("a")).in_place
    await world.apply_policy(NEW)
    await world.wait_until_done("a", before=target)


@in_world
async def test_the_status_says_what_each_node_waits_for_as_why_does(world: World) -> None:
    await world.complete_first_rollout("a", "b")
    await world.apply_policy(NEW)
    pool = await world.pool_status()
    while not pool.node_waits:
        await world.sleep(2)
        pool = await world.pool_status()
    waits = {node: (await world.why(node)).wait for node in ("a", "b")}
    told = {each.node: (each.code, each.detail) for each in pool.node_waits}
    assert told == {node: (wait.code, wait.detail) for node, wait in waits.items() if wait}
    assert sum(pool.waits.values()) == len(told) >= 1


@in_world
async def test_the_end_of_a_term_ends_the_answers(world: World) -> None:
    first, _ = await world.complete_first_rollout("a")
    await first.stop()
    assert first.value(SERVING) == 0
    with pytest.raises(NoResponders):
        await world.ask(StatusQuery())
