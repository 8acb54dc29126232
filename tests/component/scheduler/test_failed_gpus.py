"""Nodes with failed GPUs, from the GPU of a machine to the Rollout: all agents are real.

docs/states.md#failed-gpus
"""

import pytest

from libs.contracts.message import decode
from libs.contracts.node import (
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    NodeRecord,
)
from libs.health.record import XID_END
from libs.kube.resources import NODES
from services.scheduler import resources
from services.scheduler.resources import ROLLOUTS
from services.validator.node.probe import GPUS_STEP
from tests.component.scheduler.world import NEW, OTHER, POOL, World, in_world

SEEN = 65.0
"""Seconds after which the scheduler knows a failed GPU."""


async def fail_gpus(world: World, name: str, *indices: int) -> None:
    for index in indices:
        world.machines[name].break_gpu(index)
    await world.sleep(SEEN)


async def request(world: World, name: str) -> None:
    """Request the upgrade of the node, as a person does."""
    change = {"metadata": {"annotations": {REQUESTED_ANNOTATION: "true"}}}
    await world.patch(NODES, name, change)


async def record(world: World, name: str) -> NodeRecord:
    node = await world.kube.get(resources.NODES, name)
    return decode(NodeRecord, node.metadata.annotations[RECORD_ANNOTATION].encode())


async def until_counted(world: World, *, done: int, excluded: int) -> None:
    """Wait until the Rollout is complete with these counts."""

    async def counted() -> bool:
        status = (await world.rollout()).status
        counts = status.counts.done, status.counts.excluded
        return status.phase == "Complete" and counts == (done, excluded)

    await world.until_written(counted)


async def exclude(world: World) -> None:
    """Bring up two nodes; a GPU of one fails, and the other is upgraded."""
    _, target = await world.complete_first_rollout("a", "b")
    await fail_gpus(world, "a", 1)
    await world.apply_policy(NEW)
    await world.until_state("b", "pod-restart-required")
    await until_counted(world, done=1, excluded=1)
    assert (await world.rollout()).status.target != target


@in_world
async def test_a_rollout_completes_without_the_node_which_waits_and_names_the_gpu(
    world: World,
) -> None:
    await exclude(world)
    assert (world.swaps("a"), world.swaps("b")) == (1, 2)
    assert await world.state("a") == "upgrade-required"
    wait = (await world.why("a")).wait
    assert wait is not None
    assert wait.code == "gpu-failed"
    assert "has failed: the GPU cannot be used: it hangs" in wait.detail


@in_world
async def test_a_requested_upgrade_is_proven_by_the_other_gpu(world: World) -> None:
    await exclude(world)
    await request(world, "a")
    await until_counted(world, done=2, excluded=0)
    proven = (await record(world, "a")).evidence
    assert proven is not None
    assert proven.passed
    # The GPU has still failed: the node waits again when there is another target.
    await world.apply_policy(OTHER)
    await world.until_state("b", "pod-restart-required")
    await until_counted(world, done=1, excluded=1)
    assert world.swaps("a") == 2


@in_world
async def test_a_driver_that_cures_the_gpu_ends_the_exclusion(world: World) -> None:
    await exclude(world)
    await request(world, "a")

    async def unloaded() -> bool:
        return world.unloads("a") == 1

    await world.until(unloaded)
    world.machines["a"].repair_gpu(1)
    await until_counted(world, done=2, excluded=0)
    await world.sleep(XID_END + SEEN)
    await world.apply_policy(OTHER)
    await world.until_state("a", "pod-restart-required")
    await until_counted(world, done=2, excluded=0)


@pytest.mark.dear("what an XID takes to end, twice, on two nodes with all agents")
@in_world
async def test_a_gpu_that_fails_in_the_upgrade_fails_it_and_counts_as_harm(world: World) -> None:
    await world.complete_first_rollout("a", "b")
    await world.apply_policy(NEW)
    await world.until_state("a", "pod-restart-required")
    await fail_gpus(world, "a", 0)
    await world.until_state("a", "upgrade-failed")
    assert "validation: gpus: failed in this operation: GPU-" in (await record(world, "a")).cause
    await world.sleep(600)
    status = (await world.rollout()).status
    assert status.phase == "Halted"
    # Once the GPU works again, the driver is validated; what it did stays counted.
    world.machines["a"].repair_gpu(0)
    await world.sleep(XID_END + SEEN)
    spec = {"spec": {"release": {"target": status.target, "failures": 1}}}
    await world.patch(ROLLOUTS, POOL, spec)
    await until_counted(world, done=2, excluded=0)


@in_world
async def test_a_node_that_is_forgotten_accepts_what_failed_in_its_upgrade(world: World) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.apply_policy(NEW)
    await world.until_state("a", "pod-restart-required")
    await fail_gpus(world, "a", 0)
    await world.until_state("a", "upgrade-failed")
    wanted = (await world.rollout()).status.target
    assert wanted != target
    spec = {"spec": {"release": {"target": wanted, "failures": 1}}}
    await world.patch(ROLLOUTS, POOL, spec)
    forget = {"metadata": {"annotations": {REQUEST_ANNOTATION: "forget"}}}
    await world.patch(NODES, "a", forget)
    await request(world, "a")
    await until_counted(world, done=1, excluded=0)
    proven = (await record(world, "a")).evidence
    assert proven is not None
    assert not (await world.kube.get(resources.NODES, "a")).spec.unschedulable
    (found,) = (step for step in proven.steps if step.name == GPUS_STEP)
    assert found.message.startswith("1 of 2 GPUs work; failed before this operation: GPU-")


@in_world
async def test_without_a_gpu_that_works_no_driver_is_proven(world: World) -> None:
    await world.complete_first_rollout("a", "b")
    await fail_gpus(world, "a", 0, 1)
    await world.apply_policy(NEW)
    await request(world, "a")
    await world.until_state("a", "upgrade-failed")
    assert "validation: gpus: no GPU works" in (await record(world, "a")).cause
