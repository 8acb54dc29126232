"""The Rollout after its deletion, after the deletion of its policy, and without its definition."""

from typing import Any

from libs.contracts.node import WaitCode
from libs.contracts.rollout import RolloutPhase
from libs.kube.client import MERGE_PATCH
from services.scheduler import resources
from tests.component.scheduler.world import NEW, POLICY, POOL, World, in_world

CLUSTER_POLICIES = resources.POLICIES["ClusterPolicy"]


async def reasons(world: World) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition."""
    conditions = (await world.rollout()).status.conditions
    return {each.type.value: (each.status.value, each.reason) for each in conditions}


async def set_spec(world: World, spec: dict[str, Any]) -> None:
    path = resources.ROLLOUTS.path(name=POOL)
    await world.kube.request("PATCH", path, body={"spec": spec}, content_type=MERGE_PATCH)


def rollout_writes(world: World) -> int:
    written = world.revisions("Rollout", name=POOL)
    return sum(revision.code < 300 and bool(revision.changed) for revision in written)


@in_world
async def test_a_rollout_that_is_made_again_says_why_it_is_paused(world: World) -> None:
    scheduler, _ = await world.complete_first_rollout("a")
    await world.remove(resources.ROLLOUTS, POOL)
    await world.sleep(30)
    await world.apply_policy(NEW)
    await world.sleep(60)
    assert await reasons(world) == {
        "Complete": ("False", "Proving"),
        "Halted": ("False", "NotHalted"),
        "Paused": ("True", "Rebuilt"),
    }
    for _ in range(2):
        why = await world.why("a")
        assert why.wait is not None
        assert why.wait.code is WaitCode.PAUSED
        assert "rebuilt from the Nodes" in why.wait.detail
        assert "spec.brake" in why.wait.who
        await scheduler.kill()
        scheduler = world.start()
        await world.sleep(120)
    target = (await world.rollout()).status.target
    await set_spec(world, {"brake": "None"})
    await world.wait_until_done("a", target=target)
    assert (await reasons(world))["Paused"] == ("False", "NotPaused")


@in_world
async def test_the_rollout_of_a_deleted_policy_says_so(world: World) -> None:
    scheduler, target = await world.complete_first_rollout("a", "b")
    assert (await reasons(world))["Complete"] == ("True", "Complete")
    await world.remove(CLUSTER_POLICIES, POLICY)
    await world.sleep(30)
    assert (await world.rollout()).status.phase is RolloutPhase.POLICY_DELETED
    assert (await reasons(world))["Complete"] == ("False", "PolicyDeleted")
    why = await world.why("a")
    assert why.wait is not None
    assert why.wait.code is WaitCode.POLICY_GONE
    nodes, rollouts = len(world.committed()), rollout_writes(world)
    await scheduler.kill()
    world.start()
    await world.sleep(200)
    assert len(world.committed()) == nodes
    assert rollout_writes(world) == rollouts + 1  # the epoch of the new leader
    await world.apply_policy(NEW)
    await world.wait_until_done("a", "b", before=target)
    assert (await world.rollout()).spec.brake.value == "None"
