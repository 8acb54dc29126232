"""Nodes with failed GPUs, from the GPU of a machine to the Rollout: all agents are real.

docs/states.md#failed-gpus
"""

import pytest

from libs.contracts.node import (
    REQUEST_ANNOTATION,
)
from libs.health.record import XID_END
from services.scheduler.resources import ROLLOUTS
from services.validator.node.probe import GPUS_STEP
from tests.component.scheduler.world import NEW, OTHER, POOL, World, in_world

SEEN = 65.0
"""Seconds after which the scheduler knows a failed GPU."""


async def fail_gpus(world: World, name: str, *indices: int) -> None:
    for index in indices:
        world.machines[name].break_gpu(index)
    await world.sleep(SEEN)


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
    assert await world.target() != target


@in_world
async def test_a_rollout_completes_without_the_node_which_waits_and_names_the_gpu(
    world: World,
) -> None:
    await exclude(world)
    assert (world.swaps("a"), world.swaps("b")) == (1, 2)
    assert await world.state("a") == "upgrade-required"
    wait = await world.wait_of("a")
    assert wait.code == "gpu-failed"
    assert "has failed: the GPU cannot be used: it hangs" in wait.detail


@in_world
async def test_a_requested_upgrade_is_proven_by_the_other_gpu(world: World) -> None:
    await exclude(world)
    await world.request_upgrade("a")
    await until_counted(world, done=2, excluded=0)
    proven = await world.evidence("a")
    assert proven.passed
    # The GPU has still failed: the node waits again when there is another target.
    await world.apply_policy(OTHER)
    await world.until_state("b", "pod-restart-required")
    await until_counted(world, done=1, excluded=1)
    assert world.swaps("a") == 2


@in_world
async def test_a_driver_that_cures_the_gpu_ends_the_exclusion(world: World) -> None:
    await exclude(world)
    await world.request_upgrade("a")

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
    assert "validation: gpus: failed in this operation: GPU-" in (await world.record("a")).cause
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
    wanted = await world.target()
    assert wanted != target
    spec = {"spec": {"release": {"target": wanted, "failures": 1}}}
    await world.patch(ROLLOUTS, POOL, spec)
    await world.annotate("a", {REQUEST_ANNOTATION: "forget"})
    await world.request_upgrade("a")
    await until_counted(world, done=1, excluded=0)
    proven = await world.evidence("a")
    assert not (await world.node("a")).spec.unschedulable
    (found,) = (step for step in proven.steps if step.name == GPUS_STEP)
    assert found.message.startswith("1 of 2 GPUs work; failed before this operation: GPU-")


@in_world
async def test_without_a_gpu_that_works_no_driver_is_proven(world: World) -> None:
    await world.complete_first_rollout("a", "b")
    await fail_gpus(world, "a", 0, 1)
    await world.apply_policy(NEW)
    await world.request_upgrade("a")
    await world.until_state("a", "upgrade-failed")
    assert "validation: gpus: no GPU works" in (await world.record("a")).cause
