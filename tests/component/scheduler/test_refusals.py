"""Permanently refused writes are reported with the error."""

from libs.contracts.events import WaitEvent as Waits
from libs.contracts.waits import WaitCode
from libs.testing.apiserver.faults import Fault, RefuseRequest
from tests.component.scheduler.world import NEW, OLD, POOL, USER, WAITING, World, in_world

WRITING = ("apply", "create", "update", "patch")


async def waits(world: World, name: str) -> list[tuple[str, str]]:
    """Return code and detail of all wait events of a node."""
    bodies = [each.open() for each in await world.bus_events() if each.node == name]
    return [(each.code or "", each.detail) for each in bodies if isinstance(each, Waits)]


@in_world
async def test_a_node_waits_while_its_writes_are_refused(world: World) -> None:
    scheduler, target = await world.complete_first_rollout("a")
    fault = Fault(effect=RefuseRequest(403), verbs=("apply",), kind="Node", name="a", user=USER)
    world.server.faults.add(fault)
    await world.apply_policy(NEW)
    await world.sleep(120)
    code, detail = (await waits(world, "a"))[-1]
    assert code == WaitCode.REFUSED
    assert "forbidden by a fault" in detail
    why = await world.why("a")
    assert why.wait is not None
    assert (why.in_place, why.wait.code, why.wait.until) == (False, WaitCode.REFUSED, None)
    assert "refuses" in why.wait.who
    status = await world.pool_status()
    assert status.waits == {"refused": 1}
    assert scheduler.value(WAITING, code="refused") == 1
    world.server.faults.clear()
    await world.wait_until_done("a", before=target)
    await world.sleep(30)
    assert (await waits(world, "a"))[-1] == ("", "")


@in_world
async def test_an_obsolete_rollout_write_is_not_reported_as_refused(world: World) -> None:
    await world.complete_first_rollout("a")
    world.server.faults.add(
        Fault(effect=RefuseRequest(403), verbs=WRITING, kind="Rollout", user=USER)
    )
    for version, refused in ((NEW, True), (OLD, False)):
        await world.apply_policy(version)
        await world.sleep(60)
        status = await world.pool_status()
        assert bool(status.because) is refused


@in_world
async def test_one_or_two_failures_are_not_reported_as_refused(world: World) -> None:
    _, target = await world.complete_first_rollout("a")
    fault = Fault(effect=RefuseRequest(500), verbs=("apply",), kind="Node", user=USER, times=2)
    for version in (NEW, OLD, NEW):
        if version == NEW:
            world.server.faults.add(fault)
        await world.apply_policy(version)
        await world.wait_until_done("a", before=target)
        target = await world.target()
    assert WaitCode.REFUSED not in [code for code, _ in await waits(world, "a")]


@in_world
async def test_a_failing_rollout_write_is_in_its_events_and_the_status(world: World) -> None:
    _, target = await world.complete_first_rollout("a")
    world.server.faults.add(
        Fault(effect=RefuseRequest(403), verbs=WRITING, kind="Rollout", user=USER)
    )
    await world.apply_policy(NEW)
    await world.sleep(60)
    status = await world.pool_status()
    assert status.because.startswith("the Rollout cannot be written: ")
    assert "forbidden by a fault" in status.because
    reported = [message for about, message in await world.kube_events() if about == POOL]
    assert reported
    assert all(
        "Failed to write the Rollout" in each and "forbidden by a fault" in each
        for each in reported
    )
    world.server.faults.clear()
    await world.wait_until_done("a", before=target)
    after = await world.pool_status()
    assert after.because == ""
