"""Upgrades complete although schedulers are killed, compete or are cut off."""

import pytest

from libs.contracts.events import EventKind
from libs.contracts.events import WaitEvent as Waits
from libs.testing.apiserver.faults import Cut, Delay, Fault, FaultEffect, Hang, RefuseRequest
from services.scheduler import resources
from tests.component.scheduler.world import (
    CORDON,
    LABEL,
    NEW,
    OLD,
    OTHER,
    POOL,
    STATES,
    USER,
    World,
    in_world,
    most_cordoned,
    play,
)

LEASE_SECONDS = 15.0
WRITES = 22
"""The writes of all kinds in an upgrade of one node; the scheduler is killed after some."""


def assert_nothing_repeated(world: World, name: str, *, since: int) -> None:
    """Assert that each state was written once in order, with one cordon, eviction and unload."""
    written = world.committed(name, since=since)
    states = [each.changed[LABEL][1] for each in written if LABEL in each.changed]
    assert states == STATES
    assert [each.changed[CORDON] for each in written if CORDON in each.changed] == [
        (None, True),
        (True, None),
    ]
    assert len(written) <= 7
    assert len([each for each in world.revisions("Pod") if each.code < 300]) == 1
    assert world.unloads(name) == 1
    assert world.machines[name].driver is not None
    assert world.machines[name].incidents == ()


@pytest.mark.parametrize("after", range(0, WRITES, 3))
def test_a_successor_continues_after_a_kill_at_any_write(after: int) -> None:
    async def story(world: World) -> None:
        scheduler, target = await world.complete_first_rollout("a")
        await world.start_job("train", "a")
        await scheduler.stop()
        since = world.server.revision
        killed = world.start(cut_after=after)
        await world.sleep(70)
        await world.apply_policy(NEW)

        async def is_cut_or_done() -> bool:
            return killed.transport.cut.is_set() or (await world.state("a")) == "upgrade-done"

        await world.sleep(1)
        await world.until(is_cut_or_done)
        await killed.kill()
        world.start()
        await world.wait_until_done("a", before=target)
        await world.sleep(60)
        assert_nothing_repeated(world, "a", since=since)

    play(story, seed=after)


@in_world
async def test_two_concurrent_leaders_duplicate_nothing(world: World) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.start_job("train", "a")
    since = world.server.revision
    other = world.start()
    await world.sleep(5)
    await world.apply_policy(NEW)
    await world.move_lease(other)
    await world.wait_until_done("a", before=target)
    await world.sleep(60)
    assert_nothing_repeated(world, "a", since=since)
    assert (await world.rollout()).status.epoch >= 2  # the first may take the free lease again
    assert other.value("sluice_scheduler_leading") == 1


@pytest.mark.parametrize(
    "effect",
    [
        RefuseRequest(409),
        RefuseRequest(429, retry_after=1),
        RefuseRequest(500),
        Hang(),
        Cut("after"),
        Delay(2.0),
    ],
    ids=lambda effect: f"{type(effect).__name__}{getattr(effect, 'code', '')}",
)
@in_world
async def test_failed_writes_succeed_later_exactly_once(world: World, effect: FaultEffect) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.start_job("train", "a")
    since = world.server.revision
    for kind in ("Node", "Rollout"):
        fault = Fault(
            effect=effect,
            verbs=("apply", "update", "patch"),
            kind=kind,
            user=USER,
            probability=0.5,
        )
        world.server.faults.add(fault)
    await world.apply_policy(NEW)
    await world.wait_until_done("a", before=target, within=1200)
    world.server.faults.clear()
    assert_nothing_repeated(world, "a", since=since)


@in_world
async def test_an_upgrade_waits_while_nats_is_unreachable(world: World) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.start_job("train", "a")
    since = world.server.revision
    await world.apply_policy(NEW)
    await world.until_state("a", "pod-restart-required")
    world.bus.stop()
    await world.sleep(600)
    assert await world.state("a") == "pod-restart-required"
    world.bus.start()
    await world.wait_until_done("a", before=target)
    assert_nothing_repeated(world, "a", since=since)
    await world.sleep(30)
    waits = [each.open() for each in await world.bus_events() if each.kind is EventKind.WAIT]
    assert "bus" in [each.code for each in waits if isinstance(each, Waits)]


@in_world
async def test_events_of_consecutive_leaders_differ_without_a_written_epoch(world: World) -> None:
    """Both leaders have the same epoch, because it was not written."""
    verbs = ("apply", "create", "update", "patch")
    world.server.faults.add(
        Fault(effect=RefuseRequest(500), verbs=verbs, kind="Rollout", user=USER)
    )
    await world.install_fleet("a")
    reported: list[int] = []
    for _ in range(2):
        scheduler = world.start()
        await world.sleep(120)
        await scheduler.kill()
        events = await world.bus_events()
        assert len({each.id for each in events}) == len(events)
        reported.append(sum(each.kind is EventKind.WAIT for each in events))
    assert 0 < reported[0] < reported[1]


@in_world
async def test_agents_obey_the_next_leader_after_a_lost_rollout(world: World) -> None:
    """The epoch of the lost Rollout is also in Nodes and slots."""
    scheduler, target = await world.complete_first_rollout("a")
    for version in (NEW, OLD):
        await scheduler.kill()
        scheduler = world.start()
        await world.apply_policy(version)
        await world.wait_until_done("a", before=target)
        lost = await world.rollout()
        target = lost.status.target
    await scheduler.kill()
    await world.patch(resources.ROLLOUTS, POOL, {"metadata": {"finalizers": None}})
    await world.kube.request("DELETE", resources.ROLLOUTS.path(name=POOL))
    world.start()
    await world.sleep(LEASE_SECONDS + 90)
    created = await world.rollout()
    assert created.metadata.uid != lost.metadata.uid
    assert (lost.status.epoch, created.status.epoch) == (3, 4)
    await world.patch(resources.ROLLOUTS, POOL, {"spec": {"brake": "None"}})
    await world.apply_policy(NEW)
    await world.wait_until_done("a", before=target)


@in_world
async def test_a_failing_node_does_not_delay_the_others(world: World) -> None:
    _, target = await world.complete_first_rollout("a", "b")
    for verb in ("apply", "get"):
        world.server.faults.add(
            Fault(effect=Hang(), verbs=(verb,), kind="Node", name="a", user=USER)
        )
    await world.apply_policy(NEW, maxUnavailable=2, maxParallelUpgrades=2)

    async def other() -> bool:
        return await world.state("b") == "upgrade-done" and len(world.committed("b")) > 4

    await world.until(other, within=120)
    world.server.faults.clear()
    await world.wait_until_done("a", "b", before=target)


@in_world
async def test_a_scheduler_started_without_the_bus_waits_for_it(world: World) -> None:
    await world.install_fleet("a")
    world.bus.stop()
    scheduler = world.start()
    await world.sleep(300)
    assert scheduler.service.failure is None
    assert any("is unreachable" in reason for reason in scheduler.service.unready_reasons())
    assert world.revisions("Lease") == []
    world.bus.start()
    await world.wait_until_done("a")
    assert scheduler.service.unready_reasons() == []


@in_world
async def test_a_granted_node_keeps_its_grant_when_the_target_changes(world: World) -> None:
    _, target = await world.complete_first_rollout("a", "b")
    since = world.server.revision
    unblock = world.block_preflight("a", "b")
    await world.apply_policy(NEW)
    await world.sleep(60)
    delay = Fault(effect=Delay(9.0, "way"), verbs=("apply",), kind="Node", user=USER, times=1)
    active = world.server.faults.add(delay)
    unblock()

    async def is_delayed() -> bool:
        return active.hit_count == 1

    await world.until(is_delayed)
    # Only the kept grant allows a start now: another preflight would find this process.
    unblock = world.block_preflight("a")
    await world.apply_policy(OTHER)
    await world.sleep(60)
    unblock()
    await world.wait_until_done("a", "b", before=target)
    assert most_cordoned(world.committed(since=since)) <= 1


@in_world
async def test_a_standby_starts_nodes_as_soon_as_it_leads(world: World) -> None:
    """A new process would wait up to a minute for a heartbeat of each agent."""
    scheduler, _ = await world.complete_first_rollout("a")
    other = world.start()
    await world.sleep(80)
    await scheduler.kill()
    await world.apply_policy(NEW)

    async def is_cordoned() -> bool:
        return any(CORDON in each.changed for each in world.committed("a"))

    assert await world.until(is_cordoned, within=LEASE_SECONDS + 10.0) > 5.0
    assert other.value("sluice_scheduler_leading") == 1


@in_world
async def test_a_gone_pod_is_evicted_once_while_the_watch_lags(world: World) -> None:
    scheduler, target = await world.complete_first_rollout("a")
    await world.start_job("train", "a")
    faults = world.server.faults
    refusal = faults.add(Fault(effect=RefuseRequest(500), verbs=("evict",), kind="Pod"))
    await world.apply_policy(NEW)
    await world.sleep(10)
    assert await world.state("a") == "pod-deletion-required"
    faults.add(Fault(effect=RefuseRequest(500), verbs=("list", "watch"), kind="Pod", user=USER))
    faults.drop_watches(kind="Pod", user=USER)
    pod = (await world.kube.list_page(resources.PODS, namespace="default")).items[0].metadata
    await world.kube.delete(resources.PODS, pod.name, namespace="default", uid=pod.uid, grace=0)
    faults.remove(refusal)
    await world.sleep(20)
    labels = {"kind": "eviction", "outcome": "done"}
    assert scheduler.value("sluice_scheduler_api_writes_total", **labels) == 1
    faults.clear()
    await world.wait_until_done("a", before=target)
