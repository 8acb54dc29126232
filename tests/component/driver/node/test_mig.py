"""The op `mig` through pynvml and the stand-in, by agents that are killed at every sub-step."""

from collections.abc import Sequence

import pytest

from libs.contracts.reports import Outcome, Result
from libs.host.gpus.nvml import NvmlGpus
from tests.component.gpus.conftest import bench
from tests.component.gpus.machine import StandInMachine
from tests.support import played_by
from tests.unit.driver.node.mig_world import MIXED, OFF, SEVEN, MigWorld, facts, in_world, play

__all__ = ["bench"]

Wanted = Sequence[str] | None

TRANSITIONS = [(OFF, SEVEN), (SEVEN, MIXED), (MIXED, OFF), (OFF, MIXED), (MIXED, SEVEN)]


def use(world: MigWorld, bench: StandInMachine) -> NvmlGpus:
    """Give the world's machine the GPUs of the stand-in."""
    world.gpus = bench.gpus
    world.driver.gpus = bench.gpus  # type: ignore[assignment]
    return bench.gpus


@pytest.mark.parametrize(("before", "after"), TRANSITIONS)
@played_by(play)
async def test_a_kill_at_any_call_ends_in_the_same_state(
    world: MigWorld, before: Wanted, after: Wanted
) -> None:
    """In memory: a kill before each call of the op that blocks, each in a run of its own."""
    kills, was_killed = 0, True
    while was_killed:
        world.mig.unload()
        await world.divide(before, OFF)
        result, was_killed = await world.divide_with_kills(after, after, after=kills)
        assert result.outcome is Outcome.DONE
        assert facts(world.gpus) == [after, after]
        kills += was_killed
    assert kills > 10


@in_world
async def test_a_failure_ends_in_the_state_before_it_after_a_kill_at_any_call(
    world: MigWorld,
) -> None:
    kills, was_killed = 0, True
    results = list[Result]()
    while was_killed:
        world.mig.unload()
        await world.divide(MIXED, OFF)
        result, was_killed = await world.divide_with_kills(SEVEN, ("1g.5gb",), after=kills)
        results.append(result)
        assert facts(world.gpus) == [MIXED, OFF]
        kills += was_killed
    assert kills > 20
    assert {(each.outcome, each.code) for each in results} == {(Outcome.FAILED, "unknown-profile")}
    assert len({each.message for each in results}) == 1


@played_by(play)
async def test_geometries_through_nvml_with_a_kill_after_every_change(
    world: MigWorld, bench: StandInMachine
) -> None:
    gpus, kills = use(world, bench), list[int]()
    for wanted in (SEVEN, MIXED, OFF, MIXED, SEVEN, OFF):
        result, killed = await world.crawl(wanted, ("7g.80gb",))
        assert (result.outcome, result.message) == (Outcome.DONE, "the GPUs are divided as test")
        assert facts(gpus)[:3] == [wanted, ("7g.80gb",), OFF]
        assert not bench.held()
        kills.append(killed)
    assert kills == [10, 7, 5, 5, 7, 8]
