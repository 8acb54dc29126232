"""The Rollout after its deletion, after the deletion of its policy, and without its definition."""

from typing import Any

import pytest

from libs.contracts.rollout import RolloutPhase
from libs.contracts.waits import WaitCode
from libs.kube.client import MERGE_PATCH
from libs.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY
from services.scheduler import resources
from tests.component.processes import Process
from tests.component.scheduler.audited import in_audited_world
from tests.component.scheduler.world import NEW, POLICY, POOL, World, in_world

CLUSTER_POLICIES = resources.POLICIES["ClusterPolicy"]
DEFINITION = "rollouts.sluice.dev"


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
        "Ready": ("False", "Rebuilt"),
        "Reconciling": ("True", "Rebuilt"),
        "Stalled": ("False", "NotStalled"),
    }
    for _ in range(2):
        wait = await world.wait_of("a")
        assert wait.code is WaitCode.PAUSED
        assert "rebuilt from the Nodes" in wait.detail
        assert "spec.brake" in wait.who
        await scheduler.kill()
        scheduler = world.start()
        await world.sleep(120)
    target = await world.target()
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
    wait = await world.wait_of("a")
    assert wait.code is WaitCode.POLICY_GONE
    nodes, rollouts = len(world.committed()), rollout_writes(world)
    await scheduler.kill()
    world.start()
    await world.sleep(200)
    assert len(world.committed()) == nodes
    assert rollout_writes(world) == rollouts + 1  # the epoch of the new leader
    await world.apply_policy(NEW)
    await world.wait_until_done("a", "b", before=target)
    assert (await world.rollout()).spec.brake.value == "None"


@in_world
async def test_a_node_that_needs_the_host_method_waits_with_the_reason(world: World) -> None:
    await world.install_fleet("a")
    await world.remove(CLUSTER_POLICIES, POLICY)
    kind = GPU_CLUSTER_POLICY
    policy = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": "gpus"},
        "spec": {"driver": {"version": NEW}},
    }
    await world.apply(policy)
    world.start()
    await world.sleep(200)
    for _ in range(2):
        why = await world.why("a")
        assert why.wait is not None
        assert (why.pool, why.wait.code) == ("gpuclusterpolicy-gpus", WaitCode.TARGET_MISSING)
        assert "there is no ConfigMap sluice-driver-artefacts" in why.wait.detail
        assert "author of the policy" in why.wait.who
        await world.sleep(600)
    await world.remove(resources.POLICIES[kind.name], "gpus")
    await world.sleep(30)
    rollout = await world.kube.get(resources.ROLLOUTS, "gpuclusterpolicy-gpus")
    assert rollout.status.phase is RolloutPhase.POLICY_DELETED
    assert world.node_writes() == []


# Without the definition.


def unread(scheduler: Process) -> str:
    """Return why the scheduler is not ready; empty if it is."""
    return "; ".join(scheduler.service.unready_reasons())


@in_world
async def test_without_the_definition_nothing_is_tried_and_the_reason_is_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.install_fleet("a")
    await world.remove(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
    scheduler = world.start()
    await world.sleep(300)
    lines = [each.getMessage() for each in caplog.records if DEFINITION in each.getMessage()]
    assert 3 <= len(lines) <= 6
    assert world.revisions("Rollout") == []
    assert world.node_writes() == []
    assert DEFINITION in unread(scheduler)
    assert DEFINITION in (await world.pool_status()).because
    wait = await world.wait_of("a")
    assert DEFINITION in wait.detail
    assert "administrator" in wait.who
    await world.install_crds([DEFINITION])
    await world.wait_until_done("a")
    assert unread(scheduler) == ""
    assert (await world.pool_status()).because == ""


@in_world
async def test_a_definition_that_is_removed_during_an_upgrade_is_named_until_it_is_back(
    world: World,
) -> None:
    scheduler, _ = await world.complete_first_rollout("a", "b")
    await world.apply_policy(NEW)
    await world.sleep(3)
    await world.remove(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
    await world.sleep(5)
    tried = len(world.revisions("Rollout"))
    await world.sleep(300)
    assert len(world.revisions("Rollout")) <= tried + 1
    assert DEFINITION in unread(scheduler)
    assert DEFINITION in (await world.pool_status()).because
    await world.install_crds([DEFINITION])
    await world.sleep(90)
    assert unread(scheduler) == ""
    assert (await reasons(world))["Paused"] == ("True", "Rebuilt")
    target = await world.target()
    await set_spec(world, {"brake": "None"})
    await world.wait_until_done("a", "b", target=target)


@pytest.mark.dear("two nodes, then six, are upgraded, and the audit reads it all")
@in_audited_world
async def test_a_complete_target_is_proven_although_the_threshold_exceeds_the_pool(
    world: World,
) -> None:
    await world.install_fleet("a", "b")
    strategy = {"pool": POOL, "failureThreshold": 3}
    await world.apply(
        {
            "apiVersion": "sluice.dev/v1alpha1",
            "kind": "RolloutStrategy",
            "metadata": {"name": "careful"},
            "spec": strategy,
        }
    )
    world.start()
    await world.wait_until_done("a", "b")
    first = await world.target()
    await world.apply_policy(NEW)
    await world.wait_until_done("a", "b", before=first)
    await world.sleep(5)
    status = (await world.rollout()).status
    assert (status.targets[status.target].threshold, status.last_good) == (3, status.target)
    more = ("c", "d", "e", "f")
    await world.add_nodes(*more)
    await world.wait_until_done("a", "b", *more, target=status.target)
    assert [world.swaps(name) for name in more] == [1] * 4
