"""Upgrades from the edit of a policy to the uncordon: writes, events, evictions, queries."""

from collections import Counter

import pytest

from libs.contracts.events import EditEvent, EventKind, RolloutEvent
from libs.contracts.message import decode
from libs.contracts.node import LEASE_ANNOTATION, RECORD_ANNOTATION, SKIP_LABEL, NodeRecord
from libs.contracts.queries import PlanQuery, WhyQuery
from libs.contracts.waits import WAITS_REASON
from libs.ctl import leases
from services.driver.node.agent import INTERVAL
from services.scheduler import resources
from tests.component.scheduler.world import (
    CORDON,
    LABEL,
    NEW,
    OLD,
    POLICY,
    POOL,
    STATES,
    WAITING,
    World,
    in_world,
    most_cordoned,
)


@in_world
async def test_a_bare_node_is_brought_up_in_three_writes_and_without_a_cordon(world: World) -> None:
    await world.complete_first_rollout("a")
    written = world.node_writes()
    states = [each.changed[LABEL][1] for each in written]
    assert states == ["pod-restart-required", "validation-required", "upgrade-done"]
    assert not any(CORDON in each.changed for each in written)
    assert world.swaps("a") == 1


@in_world
async def test_an_upgrade_is_five_writes_one_eviction_and_an_event_for_each_state(
    world: World,
) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.start_job("train", "a")
    # A repetition within two minutes would be counted in the same Event.
    await world.sleep(130)
    first, events = len(world.node_writes()), len(await world.kube_events())
    await world.apply_policy(NEW)
    await world.wait_until_done("a", before=target)
    written = world.node_writes()[first:]
    assert [each.code for each in written] == [200] * 5
    assert [each.changed[LABEL][1] for each in written] == STATES
    cordons = [each.changed[CORDON] for each in written if CORDON in each.changed]
    assert cordons == [(None, True), (True, None)]
    assert {each.verb for each in written} == {"apply"}
    assert [each.verb for each in world.revisions("Pod")] == ["evict"]
    lines = (await world.kube_events())[events:]
    assert lines == [("a", f"Successfully updated node state label to {each}") for each in STATES]
    assert (world.swaps("a"), world.unloads("a")) == (2, 1)


@in_world
async def test_only_the_record_remains_on_an_upgraded_node(world: World) -> None:
    await world.complete_first_rollout("a")
    node = await world.node("a")
    assert LEASE_ANNOTATION not in node.metadata.annotations
    assert not node.spec.unschedulable
    record = decode(NodeRecord, node.metadata.annotations[RECORD_ANNOTATION].encode())
    assert record.evidence is not None
    assert record.evidence.passed
    assert record.evidence.boot_id == node.status.node_info.boot_id
    driver = world.machines["a"].driver
    assert driver is not None
    assert driver.label == record.label


@in_world
async def test_the_budget_serializes_upgrades(world: World) -> None:
    _, target = await world.complete_first_rollout("a", "b", "c")
    first = len(world.node_writes())
    await world.apply_policy(NEW)
    await world.wait_until_done("a", "b", "c", before=target)
    written = world.node_writes()[first:]
    assert most_cordoned(written) == 1
    per_node = Counter(each.name for each in written if each.code < 300)
    assert set(per_node) == {"a", "b", "c"}
    assert max(per_node.values()) <= 7


@in_world
async def test_status_names_the_nodes_that_reach_the_limit(world: World) -> None:
    await world.complete_first_rollout("a", "b", "c")
    assert (await world.pool_status()).budget == ""
    await world.apply_policy(NEW, maxParallelUpgrades=0)
    status = await world.pool_status()
    while not status.waits.get("budget"):
        await world.sleep(1)
        status = await world.pool_status()
    nodes = (await world.kube.list_page(resources.NODES)).items
    (name,) = [node.metadata.name for node in nodes if node.spec.unschedulable]
    words = "1 of at most 1 nodes (maxUnavailable) are unavailable"
    assert status.budget == f"{words}: {name} (in an upgrade)"


@in_world
async def test_a_skipped_node_is_not_counted_as_waiting(world: World) -> None:
    await world.complete_first_rollout("a", "b", "c")
    await world.patch(resources.NODES, "c", {"metadata": {"labels": {SKIP_LABEL: "true"}}})
    for brake, waits in (("Freeze", {"frozen": 2}), ("Pause", {"paused": 2})):
        await world.patch(resources.ROLLOUTS, POOL, {"spec": {"brake": brake}})
        await world.apply_policy(NEW)
        await world.sleep(30)
        status = await world.pool_status()
        assert (status.waits, status.counts.skipped) == (waits, 1)


@pytest.mark.dear("two nodes with all agents, for minutes after each of two restarts")
@in_world
async def test_a_restart_writes_nothing_when_nothing_changed(world: World) -> None:
    scheduler, _ = await world.complete_first_rollout("a", "b")
    for graceful in (True, False):
        nodes = len(world.committed())
        events = len(await world.kube_events())
        await (scheduler.stop() if graceful else scheduler.kill())
        scheduler = world.start()
        await world.sleep(400)
        assert scheduler.value("sluice_scheduler_leading") == 1
        assert len(world.committed()) == nodes
        assert len(await world.kube_events()) == events
        assert (await world.rollout()).status.phase == "Complete"


@in_world
async def test_each_event_is_published_once_in_order(world: World) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.apply_policy(NEW)
    await world.wait_until_done("a", before=target)
    await world.sleep(1)
    reported = await world.bus_events()
    assert len({each.id for each in reported}) == len(reported)
    steps = [each.open() for each in reported if each.kind is EventKind.STEP]
    after = [getattr(each, "after", "") for each in steps]
    assert after[-5:] == STATES
    kinds = Counter(each.kind for each in reported)
    assert kinds[EventKind.LEADER] == 1
    assert kinds[EventKind.GRANT] == 2
    assert all(each.message for each in reported)


@in_world
async def test_a_preflight_finding_blocks_its_node_with_the_reason(world: World) -> None:
    scheduler, _ = await world.complete_first_rollout("a")
    unblock = world.block_preflight("a")
    await world.apply_policy(NEW)
    await world.sleep(90)
    assert await world.state("a") == "upgrade-required"
    answer = await world.why("a")
    assert answer.wait is not None
    assert answer.wait.code == "preflight"
    assert "open and is in no pod" in answer.wait.detail
    assert scheduler.value(WAITING, code="preflight") == 1
    target = await world.target()
    unblock()
    await world.wait_until_done("a", target=target)


@in_world
async def test_a_failed_validation_fails_the_node_and_halts(world: World) -> None:
    scheduler, _ = await world.complete_first_rollout("a", "b")
    await world.sleep(2 * INTERVAL)  # both nodes are equally busy again, as their agents report
    await world.apply_policy(NEW)
    await world.until_state("a", "pod-restart-required")
    world.machines["a"].break_gpu(0)
    await world.until_state("a", "upgrade-failed")
    await world.sleep(120)
    assert await world.state("a") == "upgrade-failed"
    assert await world.state("b") == "upgrade-required"
    assert (await world.rollout()).status.phase == "Halted"
    *_, told = await world.events_of(WAITS_REASON)
    release = f"by `sluice upgrade release {NEW} {POOL} --failures 1`"
    assert f"Can be ended by: an administrator, {release}" in told["message"]
    assert scheduler.value("gpu_operator_nodes_upgrades_failed") == 1
    assert scheduler.value("gpu_operator_nodes_upgrades_pending") == 1
    node = await world.node("a")
    assert node.spec.unschedulable


@in_world
async def test_status_is_answered_and_unknown_names_are_not_found(world: World) -> None:
    await world.complete_first_rollout("a", "b")
    status = await world.status()
    (pool,) = status.pools
    assert (pool.pool, pool.phase, pool.counts.done) == (POOL, "Complete", 2)
    assert status.epoch == 1
    assert max(status.sources.values()) < 90
    unknown = await world.ask(PlanQuery(pool="unknown"))
    assert unknown.code == "not-found"


@in_world
async def test_nodes_in_flight_finish_after_their_policy_is_deleted(world: World) -> None:
    scheduler, _ = await world.complete_first_rollout("a", "b")
    await world.start_job("train", "a")
    await world.apply_policy(NEW, maxParallelUpgrades=1)
    await world.until_state("a", "pod-restart-required")
    policies = resources.POLICIES["ClusterPolicy"]
    policy = await world.kube.get(policies, POLICY)
    await world.kube.delete(policies, POLICY, uid=policy.metadata.uid)
    await scheduler.kill()
    world.start()

    async def finished() -> bool:
        rollout = await world.rollout()
        return await world.state("a") == "upgrade-done" and not rollout.status.in_flight

    await world.until_written(finished)
    node = await world.node("a")
    assert not node.spec.unschedulable
    why = await world.why("b")
    assert why.wait is not None
    assert (why.pool, why.wait.code) == (POOL, "policy-gone")
    await world.sleep(120)
    assert await world.state("b") != "pod-restart-required"


@in_world
async def test_a_policy_that_is_deleted_and_created_again_moves_no_node(world: World) -> None:
    await world.complete_first_rollout("a", "b")
    before = [await world.node(name) for name in ("a", "b")]
    policies = resources.POLICIES["ClusterPolicy"]
    policy = await world.kube.get(policies, POLICY)
    await world.kube.delete(policies, POLICY, uid=policy.metadata.uid)
    await world.sleep(120)
    await world.apply_policy(OLD)
    await world.sleep(300)
    assert (await world.kube.get(policies, POLICY)).metadata.uid != policy.metadata.uid
    after = [await world.node(name) for name in ("a", "b")]
    for node_before, node_after in zip(before, after, strict=True):
        assert node_after.metadata.labels == node_before.metadata.labels
        assert not node_after.spec.unschedulable
    assert [world.swaps(name) for name in ("a", "b")] == [1, 1]


@in_world
async def test_cordons_of_people_are_published_and_those_of_an_upgrade_are_not(
    world: World,
) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.patch(resources.NODES, "a", {"spec": {"unschedulable": True}})
    await world.apply_policy(NEW)
    await world.wait_until_done("a", before=target)
    await world.patch(resources.NODES, "a", {"spec": {"unschedulable": None}})
    await world.sleep(5)
    target = await world.target()
    await world.apply_policy(OLD)
    await world.wait_until_done("a", before=target)
    told = [
        f"{event.node}: {event.message}"
        for event in await world.bus_events()
        if isinstance(event.open(), EditEvent)
    ]
    by, unknown = "a: cordoned by somebody with kubectl", "somebody, who is not recorded"
    assert told == [by, f"a: uncordoned by {unknown}"]
    why = await world.ask(WhyQuery(node="a"))
    assert f"uncordoned by {unknown}" in why.history
    assert len(why.history_at) == len(why.history)
    assert list(why.history_at) == sorted(why.history_at)


@in_world
async def test_the_lease_of_a_person_is_published_when_it_is_taken_and_returned(
    world: World,
) -> None:
    await world.complete_first_rollout("a")
    node = await world.node("a")
    at = world.sim.clock.now()
    taken = leases.take(node.metadata, who="alice", reason="swap a riser", at=at)
    await world.patch(resources.NODES, "a", taken.patch)
    await world.sleep(300)
    node = await world.node("a")
    await world.patch(resources.NODES, "a", leases.give_back(node.metadata, who="alice").patch)
    await world.sleep(5)
    told = [
        event.message for event in await world.bus_events() if isinstance(event.open(), EditEvent)
    ]
    assert told == [
        "leased by alice: swap a riser",
        "returned; alice had it for 5 min: swap a riser",
    ]


@in_world
async def test_a_set_brake_and_a_released_halt_are_published(world: World) -> None:
    _, target = await world.complete_first_rollout("a")
    for spec in (
        {"brake": "Pause"},
        {"release": {"target": target, "failures": 2}},
        {"brake": "None", "release": None},
    ):
        await world.patch(resources.ROLLOUTS, POOL, {"spec": spec}, manager="kubectl-edit")
        await world.sleep(5)
    events = [
        (event.message, body)
        for event in await world.bus_events()
        if isinstance(body := event.open(), RolloutEvent) and body.because in ("brake", "release")
    ]
    assert events[0][0] == f"{POOL}: paused by somebody with kubectl (spec.brake: Pause)"
    changes = [(body.because, body.before, body.after) for _, body in events]
    accepted = f"2 failures of {target}"
    assert changes == [
        ("brake", "None", "Pause"),
        ("release", "", accepted),
        ("brake", "Pause", "None"),
        ("release", accepted, ""),
    ]
