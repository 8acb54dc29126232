"""An eviction that a disruption budget refuses is tried again, and the pod is never deleted."""

from libs.contracts.events import EventKind, EvictionEvent
from libs.contracts.journal import Revision
from libs.contracts.waits import WAITS_REASON, WaitCode
from libs.testing.cluster.views import BUDGETS
from services.scheduler import resources
from services.scheduler.wait_events import QUIET
from tests.builders.objects import budget
from tests.component.scheduler.world import NEW, World, in_world

BUDGET = budget("train", "train", minAvailable=1)


def evictions(world: World) -> list[Revision]:
    return [each for each in world.revisions("Pod") if each.verb == "evict"]


@in_world
async def test_a_refused_eviction_is_repeated_with_pauses_until_the_budget_allows_it(
    world: World,
) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.start_job("train", "a")
    created = await world.kube.create(BUDGETS, BUDGET, namespace="default")
    await world.sleep(5)
    await world.apply_policy(NEW)
    await world.until_state("a", "pod-deletion-required")
    await world.sleep(200)
    assert await world.state("a") == "pod-deletion-required"
    wait = await world.wait_of("a")
    assert wait.code is WaitCode.PDB
    assert "default/train-" in wait.detail
    assert "disruption budget" in wait.detail
    refused = evictions(world)
    assert {each.code for each in refused} == {429}
    assert 8 <= len(refused) <= 40
    assert {each.verb for each in world.revisions("Pod")} == {"evict"}
    (pod,) = (await world.kube.list_page(resources.PODS, namespace="default")).items
    assert not pod.metadata.deletion_timestamp
    uid = created.metadata.uid
    await world.kube.delete(BUDGETS, "train", namespace="default", uid=uid)
    await world.wait_until_done("a", before=target)
    granted = [each for each in evictions(world) if each.code < 300]
    assert [each.uid for each in granted] == [pod.metadata.uid]
    await world.sleep(5)
    bodies = [each.open() for each in await world.bus_events() if each.kind is EventKind.EVICTION]
    answers = [body.answer for body in bodies if isinstance(body, EvictionEvent)]
    assert answers == ["refused", "evicted"]


@in_world
async def test_a_wait_is_told_in_one_event_whoever_leads(world: World) -> None:
    leader, _ = await world.complete_first_rollout("a")
    await world.start_job("train", "a")
    await world.kube.create(BUDGETS, BUDGET, namespace="default")
    await world.apply_policy(NEW)
    assert world.sim.clock.monotonic() < QUIET, "the wait begins early in the term"
    await world.until_state("a", "pod-deletion-required")
    await world.sleep(30)
    told = [each["message"] for each in await world.events_of(WAITS_REASON)]
    assert [each.startswith("pdb: ") for each in told].count(True) == 1
    for _ in range(2):
        await leader.kill()
        leader = await world.lead()
        await world.sleep(QUIET)
        wait = await world.wait_of("a")
        assert wait.code is WaitCode.PDB
    assert [each["message"] for each in await world.events_of(WAITS_REASON)] == told
