"""Upgrades from the edit of a policy to the uncordon: writes, events, evictions, queries."""

from collections import Counter

from libs.contracts.events import EventKind, RolloutEvent
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import decode
from libs.contracts.node import LEASE_ANNOTATION, RECORD_ANNOTATION, NodeRecord
from libs.contracts.queries import PlanQuery, StatusAnswer, StatusQuery, WhyAnswer, WhyQuery
from libs.contracts.reports import Finding
from libs.testing.bus.queries import send_query
from services.scheduler import resources
from tests.component.scheduler.world import NEW, POLICY, POOL, STATE, SchedulerProcess, World, play

STATES = [
    "upgrade-required",
    "pod-deletion-required",
    "pod-restart-required",
    "validation-required",
    "upgrade-done",
]
LABEL = f'metadata.labels["{STATE}"]'
CORDON = "spec.unschedulable"


async def brought_up(world: World, *nodes: str) -> tuple[SchedulerProcess, str]:
    """A fleet that is where its policy wants it, and the target that it is on."""
    await world.install(*nodes)
    scheduler = world.start()
    await world.wait_until_done(*nodes)
    return scheduler, (await world.rollout()).status.target


async def upgraded(world: World, *nodes: str, before: str, within: float = 600.0) -> None:
    """Until all nodes are on another target than before."""

    async def so() -> bool:
        status = (await world.rollout()).status
        finished = status.phase == "Complete" and status.counts.done == len(nodes)
        return status.target != before and finished

    await world.until(so, within=within)


def test_a_bare_node_is_brought_up_in_three_writes_and_without_a_cordon() -> None:
    async def story(world: World) -> None:
        await brought_up(world, "a")
        written = world.revisions()
        shown = [one.changed[LABEL][1] for one in written]
        assert shown == ["pod-restart-required", "validation-required", "upgrade-done"]
        assert not any(CORDON in one.changed for one in written)
        assert world.agents.machines["a"].swaps == 1

    play(story)


def test_an_upgrade_is_five_writes_one_eviction_and_an_event_for_each_state() -> None:
    async def story(world: World) -> None:
        _, target = await brought_up(world, "a")
        await world.start_job("train", "a")
        await world.sleep(130)  # what is said again sooner is the same event once more
        first, events = len(world.revisions()), len(await world.kube_events())
        await world.apply_policy(NEW)
        await upgraded(world, "a", before=target)
        written = world.revisions()[first:]
        assert [one.code for one in written] == [200] * 5
        assert [one.changed[LABEL][1] for one in written] == STATES
        cordons = [one.changed[CORDON] for one in written if CORDON in one.changed]
        assert cordons == [(None, True), (True, None)]
        assert {one.verb for one in written} == {"apply"}
        assert [one.verb for one in world.revisions("Pod")] == ["evict"]
        said = (await world.kube_events())[events:]
        assert said == [("a", f"Successfully updated node state label to {one}") for one in STATES]
        machine = world.agents.machines["a"]
        assert (machine.swaps, machine.unloads) == (2, 1)

    play(story)


def test_only_the_record_remains_on_an_upgraded_node() -> None:
    async def story(world: World) -> None:
        await brought_up(world, "a")
        node = await world.kube.get(resources.NODES, "a")
        assert LEASE_ANNOTATION not in node.metadata.annotations
        assert not node.spec.unschedulable
        record = decode(NodeRecord, node.metadata.annotations[RECORD_ANNOTATION].encode())
        assert record.evidence is not None
        assert record.evidence.passed
        assert record.evidence.boot_id == node.status.node_info.boot_id
        proven = world.agents.machines["a"].proven
        assert proven is not None
        assert proven.label == record.label

    play(story)


def test_the_budget_serializes_upgrades() -> None:
    async def story(world: World) -> None:
        _, target = await brought_up(world, "a", "b", "c")
        first = len(world.revisions())
        await world.apply_policy(NEW)
        await upgraded(world, "a", "b", "c", before=target)
        cordoned = set[str]()
        most = 0
        for one in world.revisions()[first:]:
            if CORDON in one.changed:
                (cordoned.add if one.changed[CORDON][1] else cordoned.discard)(one.name)
                most = max(most, len(cordoned))
        assert most == 1
        per_node = Counter(one.name for one in world.revisions()[first:] if one.code < 300)
        assert set(per_node) == {"a", "b", "c"}
        assert max(per_node.values()) <= 7

    play(story)


def test_a_restart_writes_nothing_when_nothing_changed() -> None:
    async def story(world: World) -> None:
        scheduler, _ = await brought_up(world, "a", "b")
        for kindly in (True, False):
            nodes = len(world.committed())
            events = len(await world.kube_events())
            await (scheduler.stop() if kindly else scheduler.kill())
            scheduler = world.start()
            await world.sleep(400)
            assert scheduler.value("sluice_scheduler_leading") == 1
            assert len(world.committed()) == nodes
            assert len(await world.kube_events()) == events
            assert (await world.rollout()).status.phase == "Complete"

    play(story)


def test_each_event_is_published_once_in_order() -> None:
    async def story(world: World) -> None:
        _, target = await brought_up(world, "a")
        await world.apply_policy(NEW)
        await upgraded(world, "a", before=target)
        await world.sleep(1)
        told = await world.bus_events()
        assert len({one.id for one in told}) == len(told)
        steps = [one.open() for one in told if one.kind is EventKind.STEP]
        after = [getattr(one, "after", "") for one in steps]
        assert after[-5:] == STATES
        kinds = Counter(one.kind for one in told)
        assert kinds[EventKind.LEADER] == 1
        assert kinds[EventKind.GRANT] == 2
        assert all(one.message for one in told)

    play(story)


def test_a_preflight_finding_blocks_its_node_with_the_reason() -> None:
    async def story(world: World) -> None:
        scheduler, _ = await brought_up(world, "a")
        finding = Finding(code="nouveau", message="nouveau is loaded", remedy="blacklist it")
        machine = world.agents.machines["a"]
        machine.findings = (finding,)
        await world.apply_policy(NEW)
        await world.sleep(90)
        assert await world.state("a") == "upgrade-required"
        answer = await asked(world, WhyQuery(node="a"))
        assert isinstance(answer, WhyAnswer)
        assert answer.wait is not None
        assert (answer.wait.code, answer.wait.detail) == (
            "preflight",
            "preflight check failed: nouveau is loaded",
        )
        assert scheduler.value("sluice_scheduler_nodes_waiting", code="preflight") == 1
        target = (await world.rollout()).status.target
        machine.findings = ()
        await world.wait_until_done("a", target=target)

    play(story)


def test_a_failed_validation_fails_the_node_and_halts() -> None:
    async def story(world: World) -> None:
        scheduler, _ = await brought_up(world, "a", "b")
        world.agents.machines["a"].fails = True
        await world.apply_policy(NEW)
        await world.sleep(900)
        assert await world.state("a") == "upgrade-failed"
        assert await world.state("b") == "upgrade-required"
        assert (await world.rollout()).status.phase == "Halted"
        assert scheduler.value("gpu_operator_nodes_upgrades_failed") == 1
        assert scheduler.value("gpu_operator_nodes_upgrades_pending") == 1
        node = await world.kube.get(resources.NODES, "a")
        assert node.spec.unschedulable

    play(story)


async def asked(world: World, question: StatusQuery | WhyQuery | PlanQuery) -> object:
    """As a person asks."""
    bus = world.bus.connect(Identity(writer=Writer.CTL))
    try:
        return await send_query(
            question,
            bus=bus,
            clock=world.sim.clock,
            cluster="default",
            service="scheduler",
            timeout=10.0,
        )
    finally:
        bus.kill()


def test_status_is_answered_and_unknown_names_are_not_found() -> None:
    async def story(world: World) -> None:
        await brought_up(world, "a", "b")
        status = await asked(world, StatusQuery())
        assert isinstance(status, StatusAnswer)
        (pool,) = status.pools
        assert (pool.pool, pool.phase, pool.counts.done) == (POOL, "Complete", 2)
        assert status.epoch == 1
        assert max(status.sources.values()) < 90
        unknown = await asked(world, PlanQuery(pool="nobody"))
        assert getattr(unknown, "code", "") == "not-found"

    play(story)


def test_nodes_in_flight_finish_after_their_policy_is_deleted() -> None:
    async def story(world: World) -> None:
        scheduler, _ = await brought_up(world, "a", "b")
        await world.start_job("train", "a")
        await world.apply_policy(NEW, maxParallelUpgrades=1)

        async def begun() -> bool:
            return await world.state("a") == "pod-restart-required"

        await world.until(begun)
        policies = resources.POLICIES["ClusterPolicy"]
        policy = await world.kube.get(policies, POLICY)
        await world.kube.delete(policies, POLICY, uid=policy.metadata.uid)
        await scheduler.kill()
        world.start()

        async def finished() -> bool:
            rollout = await world.rollout()
            return await world.state("a") == "upgrade-done" and not rollout.status.in_flight

        await world.until(finished)
        node = await world.kube.get(resources.NODES, "a")
        assert not node.spec.unschedulable
        why = await asked(world, WhyQuery(node="b"))
        assert isinstance(why, WhyAnswer)
        assert why.wait is not None
        assert (why.pool, why.wait.code) == (POOL, "policy-gone")
        await world.sleep(120)
        assert await world.state("b") != "pod-restart-required"

    play(story)


def test_a_set_brake_and_a_released_halt_are_published() -> None:
    async def story(world: World) -> None:
        _, target = await brought_up(world, "a")
        for spec in (
            {"brake": "Pause"},
            {"release": {"target": target, "failures": 2}},
            {"brake": "None", "release": None},
        ):
            await world.patch(resources.ROLLOUTS, POOL, {"spec": spec})
            await world.sleep(5)
        bodies = [event.open() for event in await world.bus_events()]
        steered = [
            (body.because, body.before, body.after)
            for body in bodies
            if isinstance(body, RolloutEvent) and body.because in ("brake", "release")
        ]
        accepted = f"2 failures of {target}"
        assert steered == [
            ("brake", "None", "Pause"),
            ("release", "", accepted),
            ("brake", "Pause", "None"),
            ("release", accepted, ""),
        ]

    play(story)
