"""Nodes that vanish while their driver is changed: it may have taken their machines down."""

from typing import Any

import pytest

from libs.contracts.rollout import RolloutStatus
from services.scheduler import resources
from tests.component.scheduler.audited import in_audited_world
from tests.component.scheduler.world import NEW, POOL, World

ALL_AT_ONCE: Any = {"maxUnavailable": "100%", "maxParallelUpgrades": 0}


async def vanish(world: World, name: str, state: str) -> None:
    await world.until_state(name, state)
    await world.power_off(name)
    await world.remove(resources.NODES, name)


async def status(world: World) -> RolloutStatus:
    return (await world.rollout()).status


async def first_in_flight(world: World) -> str:
    while not (in_flight := (await status(world)).in_flight):
        await world.sleep(0.1)
    return min(each.node for each in in_flight.values())


@pytest.mark.dear("three nodes are upgraded twice, one vanishes, and the audit reads it all")
@pytest.mark.parametrize("state", ["pod-restart-required", "validation-required"])
@in_audited_world
async def test_a_node_that_vanishes_after_its_start_halts_an_unproven_target(
    world: World, state: str
) -> None:
    await world.complete_first_rollout("a", "b", "c")
    await world.apply_policy(NEW, **ALL_AT_ONCE)
    first = await first_in_flight(world)
    await vanish(world, first, state)
    await world.sleep(300)
    after = await status(world)
    (halted,) = [each for each in after.conditions if each.type == "Halted"]
    assert (after.phase, halted.status, halted.reason) == ("Halted", "True", "Vanished")
    assert first in after.because
    assert not after.in_flight
    others = {"a", "b", "c"} - {first}
    wait = await world.wait_of(min(others))
    assert (wait.code, first in wait.detail) == ("halted", True)
    release = {"spec": {"release": {"target": after.target, "failures": 1}}}
    await world.patch(resources.ROLLOUTS, POOL, release)
    await world.wait_until_done(*others, target=after.target)


@in_audited_world
async def test_a_node_that_vanishes_before_its_start_costs_nothing(world: World) -> None:
    _, target = await world.complete_first_rollout("a", "b", "c")
    for name in ("a", "b", "c"):
        await world.start_job(f"train-{name}", name)
    await world.apply_policy(NEW, **ALL_AT_ONCE)
    first = await first_in_flight(world)
    await vanish(world, first, "pod-deletion-required")
    await world.wait_until_done(*{"a", "b", "c"} - {first}, before=target)
    assert not (await status(world)).targets[(await status(world)).target].vanished
