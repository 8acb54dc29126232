"""Rollouts by the thousand on a simulated cluster, each judged by the audit and by its end.

A seed that goes wrong is told as the shortest story that goes wrong in the same way;
`python -m tools.soak engine --only SEED` tells it again, `--seeds N` tries others.
"""

import pytest
from msgspec.structs import replace

from libs.rollout.decide import decide
from libs.rollout.decision import Decision
from libs.rollout.views.fleet import Fleet, Instant
from tests.component.rollout.simulation.report import failure_report
from tests.component.rollout.simulation.runner import Decide, run_scenario
from tests.component.rollout.simulation.scenario import SMALL, scenario
from tests.component.rollout.simulation.shrink import shrink_failure

BATCH = 20
MANY = 100


@pytest.mark.parametrize("first", range(100, 260, BATCH))
def test_every_rollout_keeps_its_promises_and_comes_to_its_end(first: int) -> None:
    for seed in range(first, first + BATCH):
        played = run_scenario(scenario(seed))
        assert played.wrong is None, failure_report(shrink_failure(played))
        assert played.done == len(played.stage.state.nodes)


@pytest.mark.parametrize("first", range(SMALL, SMALL + 1900, MANY))
def test_so_does_every_rollout_of_a_node_or_two(first: int) -> None:
    for seed in range(first, first + MANY):
        played = run_scenario(scenario(seed))
        assert played.wrong is None, failure_report(shrink_failure(played))
        assert played.done == len(played.stage.state.nodes)


def test_a_seed_tells_the_same_story_each_time() -> None:
    assert (
        run_scenario(scenario(105)).stage.log_lines == run_scenario(scenario(105)).stage.log_lines
    )


def decide_nothing(fleet: Fleet, now: Instant) -> Decision:
    """An engine that does nothing, and says nothing."""
    return Decision()


def decide_without_waits(fleet: Fleet, now: Instant) -> Decision:
    """An engine that never says why a node waits."""
    return replace(decide(fleet, now), waits={})


@pytest.mark.parametrize("broken", [decide_nothing, decide_without_waits])
def test_an_engine_that_leaves_nodes_in_silence_is_found_and_its_story_shrinks(
    broken: Decide,
) -> None:
    played = run_scenario(scenario(6), broken)
    assert played.wrong is not None
    assert played.wrong.kind == "silence"
    short = shrink_failure(played, broken, tries=40)
    assert short.wrong is not None
    assert short.wrong.kind == "silence"
    assert len(short.scenario.nodes) == 1
    assert "WRONG: silence" in failure_report(short)
