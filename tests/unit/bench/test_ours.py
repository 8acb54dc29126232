"""Our engine on a small fleet."""

import pytest

from bench.comparison import CALM, ComparedFleet
from bench.ours import ours
from bench.ours_costs import PAUSES
from bench.recreation.play import incumbent
from libs.forecast.world import ProcessEnd, TimeSpan, ValidationEnd
from libs.testing.stage.worlds import SeededFleet, SteadyWorld, WorldOverride

RETRY = 5.0
"""Seconds between two requests to evict a pod that is refused."""


def _steady(*oddities: WorldOverride) -> SteadyWorld:
    return SteadyWorld(job_seconds=1e6, overrides=oddities)


def test_the_same_seed_gives_the_same_figures() -> None:
    fleet = ComparedFleet(nodes=4, max_parallel=0)
    assert ours(fleet, SeededFleet(3)) == ours(fleet, SeededFleet(3))
    assert ours(fleet, SeededFleet(3)) != ours(fleet, SeededFleet(4))


def test_a_fleet_in_which_nothing_fails_is_done_and_proven() -> None:
    fleet, world = ComparedFleet(nodes=10), SeededFleet(3, profile=CALM)
    figures = ours(fleet, world)
    assert (figures.done, figures.failed, figures.waiting) == (10, 0, 0)
    assert (figures.unproven, figures.harmed, figures.named_after) == (0, 0, None)
    assert figures.makespan == figures.lasted
    assert figures.evictions == incumbent(fleet, world).evictions == 2 * 6


def test_five_states_are_five_writes_and_as_many_events() -> None:
    figures = ours(ComparedFleet(nodes=1, busy=0.0), _steady())
    rollout = 4
    assert figures.events == 5
    assert figures.writes == 5 + rollout + PAUSES
    preflight, release = 2, 1
    assert figures.reads == preflight + release


def test_each_eviction_is_one_write_more() -> None:
    idle, busy = (ours(ComparedFleet(nodes=1, busy=share), _steady()) for share in (0.0, 1.0))
    assert busy.evictions == 2
    assert busy.writes == idle.writes + 2


def test_a_ready_driver_and_a_validation_that_passed_are_seen_at_once() -> None:
    just_missed = WorldOverride(load=ProcessEnd(109.0), validation=ValidationEnd(130.0))
    figures = ours(ComparedFleet(nodes=1), _steady(just_missed))
    assert figures.makespan is not None
    assert 110.0 + 130.0 < figures.makespan < 110.0 + 130.0 + 15.0
    assert 0.1 < figures.idle < 1.0


def test_durations_of_the_cluster_are_not_idle_time() -> None:
    slow = WorldOverride(
        load=ProcessEnd(500.0),
        validation=ValidationEnd(200.0),
        pull=TimeSpan(100.0),
        unload=ProcessEnd(30.0),
    )
    usual, slowly = (ours(ComparedFleet(nodes=1), world) for world in (_steady(), _steady(slow)))
    assert slowly.lasted > usual.lasted + 500.0
    assert slowly.idle == pytest.approx(usual.idle)


def test_only_the_pause_after_a_refusal_is_idle_time() -> None:
    usual = ours(ComparedFleet(nodes=1, busy=1.0), _steady())
    refused = ours(ComparedFleet(nodes=1, busy=1.0), _steady(WorldOverride(refusal=TimeSpan(62.0))))
    assert refused.refusals == 2 * (62 // int(RETRY) + 1)
    assert refused.writes == usual.writes + refused.refusals
    assert refused.idle - usual.idle == pytest.approx(65.0 - 62.0, abs=0.01)


def test_awaited_jobs_are_not_evicted() -> None:
    fleet = ComparedFleet(nodes=2, busy=1.0, age=10.0, wait_for_jobs=True)
    figures = ours(fleet, SteadyWorld(job_seconds=300.0))
    assert (figures.done, figures.evictions, figures.gpu_hours_redone) == (2, 0, 0.0)
    assert figures.idle < 1.0


def test_cordoned_and_skipped_nodes_stay_as_they_are() -> None:
    fleet = ComparedFleet(
        nodes=6,
        max_parallel=0,
        max_unavailable=3,
        cordoned=frozenset({"node-00001"}),
        skipped=frozenset({"node-00002"}),
        not_ready=frozenset({"node-00003"}),
    )
    figures = ours(fleet, _steady())
    assert (figures.done, figures.failed, figures.waiting) == (4, 0, 1)
    assert figures.started_for is not None
    assert figures.started_for > 60.0


def test_no_pod_is_evicted_where_the_driver_may_stay() -> None:
    figures = ours(ComparedFleet(nodes=2, busy=1.0, restart_only=True), _steady())
    assert (figures.done, figures.evictions) == (2, 0)


@pytest.mark.parametrize("parallel", [0, 1])
def test_a_bad_driver_harms_no_more_than_the_threshold(parallel: int) -> None:
    world = SeededFleet(3, profile=CALM, bad_drivers=frozenset({"bad"}))
    fleet = ComparedFleet(nodes=21, max_parallel=parallel)
    figures = ours(fleet, world, target="bad")
    assert (figures.done, figures.failed, figures.harmed, figures.waiting) == (0, 2, 2, 19)
    assert figures.named_after is not None
    assert figures.makespan is None
    incumbent_figures = incumbent(fleet, world, target="bad")
    assert incumbent_figures.named_after is not None
    assert figures.named_after < incumbent_figures.named_after / 5


def test_a_driver_that_never_validates_is_put_into_service_nowhere() -> None:
    world = SeededFleet(3, profile=CALM, unsound_drivers=frozenset({"hollow"}))
    figures = ours(ComparedFleet(nodes=12, max_parallel=0), world, target="hollow")
    assert (figures.done, figures.unproven, figures.failed, figures.harmed) == (0, 0, 1, 0)


def test_a_driver_that_hangs_fails_at_its_limit() -> None:
    figures = ours(ComparedFleet(nodes=1), _steady(WorldOverride(load=ProcessEnd(None))))
    assert figures.failed == figures.harmed == 1
    assert figures.named_after == pytest.approx(1800.0, abs=5.0)


def test_nodes_without_a_driver_pod_are_not_played() -> None:
    with pytest.raises(ValueError, match="node-00000"):
        ours(ComparedFleet(nodes=1, podless={"node-00000": 10.0}), _steady())
