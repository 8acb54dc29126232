"""A Node that cannot be read is one line of a report: it is left as it is, the others go on."""

import pytest

from libs.contracts.identities import Identity, Writer
from libs.contracts.queries import QueryError, WhyQuery
from libs.contracts.subjects import STATE, State
from tests.component.scheduler.world import NEW, World, in_world

UNREADABLE = "sluice_scheduler_objects_unreadable"
BROKEN = b'"finalizers":7,"name":"a"'


async def has_report(world: World, node: str) -> bool:
    report = State(cluster="default", node=node, component="driver", kind="facts")
    reader = world.bus.connect(Identity(writer=Writer.SCHEDULER))
    try:
        return await reader.last(STATE, str(report)) is not None
    finally:
        reader.kill()


@pytest.mark.parametrize("restarts", [False, True])
@in_world
async def test_an_unreadable_node_stops_no_other_and_is_not_taken_for_deleted(
    world: World, restarts: bool
) -> None:
    scheduler, _ = await world.complete_first_rollout("a", "b")
    if restarts:
        await scheduler.kill()
        scheduler = world.start()
    scheduler.transport.rewrite = lambda body: body.replace(b'"name":"a"', BROKEN)
    world.server.faults.drop_watches(kind="Node")
    await world.apply_policy(NEW)

    async def b_is_done() -> bool:
        return world.driver_version("b") == NEW

    await world.until(b_is_done)
    await world.until_state("b", "upgrade-done")
    await world.sleep(60)
    assert scheduler.value(UNREADABLE) == 1
    assert await has_report(world, "a")
    if restarts:
        answer = await world.ask(WhyQuery(node="a"))
        assert isinstance(answer, QueryError)
        assert "cannot be read" in answer.message
    scheduler.transport.rewrite = lambda body: body
    world.server.faults.drop_watches(kind="Node")
    await world.label("a", {"some": "label"})
    await world.wait_until_done("a", "b")
    assert scheduler.value(UNREADABLE) == 0
    assert scheduler.service.failure is None
