"""Rollouts on a simulated cluster, each judged by the audit and by its end.

A failing seed is reported as the smallest scenario that fails in the same way.
`python -m tools.soak engine --seeds N` runs many more seeds; `--only SEED` reports one.
"""

import pytest
from msgspec.structs import replace

from libs.rollout.decide import decide
from libs.rollout.decision import Decision
from libs.rollout.views.fleet import Fleet, Instant
from libs.testing.not_none import not_none
from tests.component.rollout.simulation.failures import failure_report, shrink_failure
from tests.component.rollout.simulation.runner import Decide, run_scenario
from tests.component.rollout.simulation.scenario import (
    GPUS,
    IMAGES,
    LEASES,
    MIG,
    SMALL,
    TAINTS,
    scenario,
)

SEEDS = (
    *(range(first, first + 5) for first in range(100, 120, 5)),
    *(range(first, first + 25) for kind in (SMALL, MIG) for first in (kind, kind + 25)),
    *(range(first, first + 12) for first in (GPUS, IMAGES, LEASES, TAINTS)),
    *(range(first + 12, first + 25) for first in (GPUS, IMAGES, LEASES, TAINTS)),
)
"""Chunks of seeds, so that test processes can share them: large fleets, then small ones, of which
`make soak ARGS='engine --first 1000000'` plays more."""


@pytest.mark.parametrize(
    "seeds", SEEDS, ids=lambda seeds: f"{len(seeds)}-seeds-{seeds[0]}-to-{seeds[-1]}"
)
def test_every_rollout_keeps_its_invariants_and_ends_with_all_nodes_in_place(seeds: range) -> None:
    for seed in seeds:
        result = run_scenario(scenario(seed))
        assert result.failure is None, failure_report(shrink_failure(result))
        assert result.nodes_in_place == len(result.stage.state.nodes)


def test_a_seed_repeats_exactly() -> None:
    first, second = run_scenario(scenario(105)), run_scenario(scenario(105))
    assert first.stage.log_lines == second.stage.log_lines


def decide_nothing(fleet: Fleet, now: Instant) -> Decision:
    return Decision()


def decide_without_waits(fleet: Fleet, now: Instant) -> Decision:
    return replace(decide(fleet, now), waits={})


@pytest.mark.parametrize("broken", [decide_nothing, decide_without_waits])
def test_a_missing_wait_is_found_and_its_scenario_shrinks(broken: Decide) -> None:
    result = run_scenario(scenario(6), broken)
    assert not_none(result.failure).kind == "silence"
    shrunk = shrink_failure(result, broken, tries=40)
    assert not_none(shrunk.failure).kind == "silence"
    assert len(shrunk.scenario.nodes) == 1
    assert "WRONG: silence" in failure_report(shrunk)
