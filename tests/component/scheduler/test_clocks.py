"""The clocks of machines are wrong, or are set: no limit moves with them."""

import pytest

from libs.contracts.journal import EntryPhase
from tests.component.scheduler.world import NEW, World, in_world

STEPS = (-3600.0, -45.0, -2.0, 700.0, 3600.0)
HOUR = 3600.0
NODE_AHEAD = "sluice_scheduler_node_clock_ahead_seconds"
AHEAD = "sluice_scheduler_machine_clock_ahead_seconds"


def refused(world: World, name: str) -> int:
    return world.journalled(name, "swap", EntryPhase.REFUSED)


@pytest.mark.parametrize("state", ["pod-restart-required", "validation-required"])
@pytest.mark.parametrize("step", STEPS)
@in_world
async def test_no_limit_moves_when_the_clock_of_the_leader_is_set(
    world: World, step: float, state: str
) -> None:
    leader, target = await world.complete_first_rollout("a", "b")
    await world.apply_policy(NEW)
    await world.until_state("a", state)
    leader.clock.ahead = step
    await world.wait_until_done("a", "b", before=target, within=120)
    assert (world.swaps("a"), world.swaps("b")) == (2, 2)
    assert leader.value(AHEAD) == pytest.approx(step)


@in_world
async def test_why_names_the_clock_of_the_leaders_machine(world: World) -> None:
    leader, _ = await world.complete_first_rollout("a")
    assert (await world.why("a")).clocks == ""
    leader.clock.ahead = -90.0
    assert (await world.why("a")).clocks == (
        "the clock of the leader's machine is 90 s behind the time that the leader goes by, and no"
        " limit moves with it"
    )


@pytest.mark.parametrize("state", ["pod-restart-required", "validation-required"])
@pytest.mark.parametrize("ahead", [-HOUR, -30.0, 30.0, HOUR])
@in_world
async def test_a_new_leader_whose_clock_is_wrong_goes_by_the_api_servers(
    world: World, ahead: float, state: str
) -> None:
    await world.complete_first_rollout("a", "b")
    target = await world.target()
    other = world.start()
    other.clock.ahead = ahead
    await world.apply_policy(NEW)
    await world.until_state("a", state)
    await world.move_lease(other)
    await world.wait_until_done("a", "b", before=target, within=120)
    assert (world.swaps("a"), world.swaps("b")) == (2, 2)
    assert other.value(AHEAD) == pytest.approx(ahead, abs=1.0)


@pytest.mark.parametrize("ahead", [-HOUR, 130.0, HOUR])
@in_world
async def test_an_agent_whose_clock_is_wrong_takes_its_commands(world: World, ahead: float) -> None:
    leader, target = await world.complete_first_rollout("a")
    for agent in world.agents:
        agent.clock.ahead = ahead
    await world.apply_policy(NEW)
    await world.wait_until_done("a", before=target, within=120)
    assert (world.swaps("a"), refused(world, "a")) == (2, 0)
    await world.sleep(60)
    assert leader.value(NODE_AHEAD) == pytest.approx(ahead, abs=1.0)
    way = "ahead of" if ahead > 0 else "behind"
    text = f"the clock of this node is {abs(ahead):.0f} s {way} the time that the leader goes by"
    assert (await world.why("a")).clocks.startswith(text)
