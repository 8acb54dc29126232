"""Rollouts by the thousand on a simulated cluster, each judged by the audit and by its end.

A seed that goes wrong is told as the shortest story that goes wrong in the same way;
`python -m tools.soak engine --only SEED` tells it again, `--seeds N` tries others.
"""

import pytest
from msgspec.structs import replace

from libs.rollout.deciding import decide
from libs.rollout.decision import Decision
from libs.rollout.views.fleet import Fleet, Instant
from tests.component.rollout.simulation.play import Decide, play
from tests.component.rollout.simulation.scenario import SMALL, scenario
from tests.component.rollout.simulation.shrinking import shrunk
from tests.component.rollout.simulation.story import story

BATCH = 20
MANY = 100


@pytest.mark.parametrize("first", range(100, 260, BATCH))
def test_every_rollout_keeps_its_promises_and_comes_to_its_end(first: int) -> None:
    for seed in range(first, first + BATCH):
        played = play(scenario(seed))
        assert played.wrong is None, story(shrunk(played))
        assert played.done == len(played.stage.state.nodes)


@pytest.mark.parametrize("first", range(SMALL, SMALL + 1900, MANY))
def test_so_does_every_rollout_of_a_node_or_two(first: int) -> None:
    for seed in range(first, first + MANY):
        played = play(scenario(seed))
        assert played.wrong is None, story(shrunk(played))
        assert played.done == len(played.stage.state.nodes)


def test_a_seed_tells_the_same_story_each_time() -> None:
    assert play(scenario(105)).stage.story == play(scenario(105)).stage.story


def idle(fleet: Fleet, now: Instant) -> Decision:
    """An engine that does nothing, and says nothing."""
    return Decision()


def heedless(fleet: Fleet, now: Instant) -> Decision:
    """An engine that never says why a node waits."""
    return replace(decide(fleet, now), waits={})


@pytest.mark.parametrize("broken", [idle, heedless])
def test_an_engine_that_leaves_nodes_in_silence_is_found_and_its_story_shrinks(
    broken: Decide,
) -> None:
    played = play(scenario(6), broken)
    assert played.wrong is not None
    assert played.wrong.kind == "silence"
    short = shrunk(played, broken, tries=40)
    assert short.wrong is not None
    assert short.wrong.kind == "silence"
    assert len(short.scenario.nodes) == 1
    assert "WRONG: silence" in story(short)
