"""The incumbent on a small fleet."""

import pytest

from bench.comparison import CALM, ComparedFleet, UpgradeFigures
from bench.recreation.controller import TICK
from bench.recreation.play import incumbent
from libs.forecast.world import NEVER, ProcessEnd, TimeSpan, ValidationEnd
from libs.testing.stage.worlds import SeededFleet, SteadyWorld, WorldOverride

LABELS = 8
"""The labels that one node goes through."""


def _steady(*oddities: WorldOverride) -> SteadyWorld:
    return SteadyWorld(job_seconds=1e6, overrides=oddities)


def test_the_same_seed_gives_the_same_figures() -> None:
    fleet = ComparedFleet(nodes=30, max_parallel=0)
    assert incumbent(fleet, SeededFleet(3)) == incumbent(fleet, SeededFleet(3))
    assert incumbent(fleet, SeededFleet(3)) != incumbent(fleet, SeededFleet(4))


def test_a_fleet_in_which_nothing_fails_is_done_and_proven() -> None:
    figures = incumbent(ComparedFleet(nodes=20), SeededFleet(3, profile=CALM))
    assert (figures.done, figures.failed, figures.waiting) == (20, 0, 0)
    assert (figures.unproven, figures.harmed, figures.named_after) == (0, 0, None)
    assert figures.makespan == figures.lasted
    assert figures.evictions == 2 * 12


def test_each_pass_reads_every_node() -> None:
    small, large = (
        incumbent(ComparedFleet(nodes=count), SeededFleet(3, profile=CALM)) for count in (50, 200)
    )
    assert large.reads / small.reads == pytest.approx(4.0, rel=0.15)
    assert large.reads > 1000


def test_eight_labels_of_a_node_are_eight_events_and_twice_as_many_requests() -> None:
    figures = incumbent(ComparedFleet(nodes=1, busy=0.0), _steady())
    annotation_taken_away_in_vain = 1
    cordons, deletion, driver_manager = 2, 1, 2
    assert figures.events == LABELS + annotation_taken_away_in_vain
    assert figures.writes == figures.events + cordons + deletion + driver_manager


def test_ready_drivers_and_validators_are_seen_at_the_next_tick() -> None:
    just_missed = WorldOverride(load=ProcessEnd(109.0), validation=ValidationEnd(130.0))
    figures = incumbent(ComparedFleet(nodes=1), _steady(just_missed))
    assert figures.makespan == pytest.approx(3 * TICK, abs=1.0)
    assert 0.8 * TICK < figures.idle < TICK


def test_a_running_validation_is_not_idle_time() -> None:
    soon, late = (
        incumbent(
            ComparedFleet(nodes=1),
            _steady(WorldOverride(load=ProcessEnd(109.0), validation=ValidationEnd(took))),
        )
        for took in (10.0, 90.0)
    )
    assert soon.makespan == late.makespan
    assert soon.idle - late.idle == pytest.approx(80.0)


def test_a_timed_out_validation_fails_at_the_next_tick_and_recovers_unproven() -> None:
    hangs = WorldOverride(validation=ValidationEnd(None))
    figures = incumbent(ComparedFleet(nodes=1), _steady(hangs))
    assert figures.named_after == pytest.approx(6 * TICK, abs=2 * TICK)
    assert figures.named_after is not None
    assert figures.named_after > 600.0
    assert (figures.done, figures.failed, figures.unproven) == (1, 0, 1)
    assert figures.lasted - figures.named_after < 3.0


def test_a_driver_that_never_validates_is_put_into_service_everywhere() -> None:
    world = SeededFleet(3, profile=CALM, unsound_drivers=frozenset({"hollow"}))
    figures = incumbent(ComparedFleet(nodes=12, max_parallel=0), world, target="hollow")
    assert (figures.done, figures.unproven) == (12, 12)


def test_one_node_without_a_driver_pod_stops_all_until_it_has_one() -> None:
    joins = ComparedFleet(nodes=5, podless={"node-00004": 5000.0})
    figures = incumbent(joins, _steady())
    assert figures.done == 5
    usual = incumbent(ComparedFleet(nodes=4), _steady()).lasted
    assert figures.lasted == pytest.approx(5000.0 + usual, abs=10.0)


def test_one_node_that_never_gets_its_driver_pod_stops_all_for_ever() -> None:
    never = ComparedFleet(nodes=5, podless={"node-00004": float("inf")})
    figures = incumbent(never, _steady())
    assert (figures.done, figures.waiting, figures.lasted) == (0, 5, 0.0)
    assert figures.makespan is None


def _bad(parallel: int, count: int = 20) -> UpgradeFigures:
    world = SeededFleet(3, profile=CALM, bad_drivers=frozenset({"bad"}))
    return incumbent(ComparedFleet(nodes=count, max_parallel=parallel), world, target="bad")


def test_the_first_failed_node_blocks_a_serial_rollout() -> None:
    figures = _bad(1)
    assert (figures.done, figures.failed, figures.waiting, figures.harmed) == (0, 1, 19, 1)
    assert figures.started_for == 0.0
    assert figures.makespan is None


def test_a_bad_driver_is_reported_after_eleven_restarts() -> None:
    back_offs = sum(min(300, 10 * 2**restart) for restart in range(11))
    assert back_offs == 2110
    fails_at_once = WorldOverride(load=ProcessEnd(1.0, 1))
    figures = incumbent(ComparedFleet(nodes=1), _steady(fails_at_once))
    assert figures.named_after is not None
    assert back_offs < figures.named_after < back_offs + 30 + TICK


def test_a_bad_driver_harms_as_many_nodes_as_the_budget_allows() -> None:
    figures = _bad(0)
    assert (figures.failed, figures.harmed, figures.waiting) == (5, 5, 15)
    assert figures.started_for is not None
    assert figures.named_after is not None
    assert figures.started_for < figures.named_after


def test_a_driver_that_hangs_is_killed_by_its_probe_again_and_again() -> None:
    figures = incumbent(ComparedFleet(nodes=1), _steady(WorldOverride(load=ProcessEnd(None))))
    assert figures.failed == 1
    assert figures.named_after is not None
    assert figures.named_after == pytest.approx(11 * (1260.0 + 10.0), rel=0.02)


def test_an_eviction_refused_for_too_long_is_given_up() -> None:
    fleet = ComparedFleet(nodes=3, busy=1.0, jobs=1)
    guarded = WorldOverride(pod="jobs/node-00000-0-0", refusal=NEVER)
    figures = incumbent(fleet, _steady(guarded))
    assert (figures.done, figures.failed, figures.waiting) == (0, 1, 2)
    assert figures.refusals == pytest.approx(300.0 / 0.005, rel=0.001)
    assert figures.writes > 20_000
    assert figures.harmed == 0


def test_a_temporary_refusal_costs_only_requests() -> None:
    fleet = ComparedFleet(nodes=1, busy=1.0, jobs=1)
    figures = incumbent(fleet, _steady(WorldOverride(refusal=TimeSpan(10.0))))
    assert (figures.done, figures.evictions, figures.refusals) == (1, 1, 2000)


def test_a_node_cordoned_by_a_person_starts_beyond_the_budget() -> None:
    fleet = ComparedFleet(nodes=4, max_unavailable=0, cordoned=frozenset({"node-00001"}))
    figures = incumbent(fleet, _steady())
    assert (figures.done, figures.waiting) == (1, 3)


def test_nodes_that_are_not_ready_use_up_the_budget() -> None:
    fleet = ComparedFleet(nodes=4, max_parallel=0, not_ready=frozenset({"node-00003"}))
    assert incumbent(fleet, _steady()).done == 0
    more = ComparedFleet(
        nodes=4, max_parallel=0, max_unavailable=2, not_ready=frozenset({"node-00003"})
    )
    figures = incumbent(more, _steady())
    assert (figures.done, figures.waiting) == (3, 1)


def test_nodes_that_people_excluded_are_not_waited_for() -> None:
    fleet = ComparedFleet(nodes=3, skipped=frozenset({"node-00000"}))
    figures = incumbent(fleet, _steady())
    assert (figures.done, figures.failed, figures.waiting) == (2, 0, 0)


def test_the_end_of_a_job_is_seen_at_the_next_tick() -> None:
    fleet = ComparedFleet(nodes=1, busy=1.0, jobs=1, age=0.0, wait_for_jobs=True)
    figures = incumbent(fleet, SteadyWorld(job_seconds=500.0))
    assert figures.evictions == 0
    assert figures.makespan == pytest.approx(5 * TICK + TICK, abs=3.0)
    assert figures.gpu_hours_redone == 0.0


def test_an_endless_job_blocks_its_node_for_ever() -> None:
    fleet = ComparedFleet(nodes=2, busy=1.0, jobs=1, wait_for_jobs=True)
    figures = incumbent(fleet, _steady(WorldOverride(remainder=NEVER)))
    assert (figures.done, figures.waiting, figures.makespan) == (0, 2, None)


def test_a_wait_for_jobs_that_runs_out_evicts_them() -> None:
    fleet = ComparedFleet(nodes=1, busy=1.0, jobs=1, wait_for_jobs=True, job_timeout=200.0)
    figures = incumbent(fleet, _steady(WorldOverride(remainder=NEVER)))
    assert (figures.done, figures.evictions) == (1, 1)
    assert figures.makespan == pytest.approx(2 * TICK + TICK, abs=3.0)


def test_no_pod_is_evicted_where_the_driver_may_stay_loaded() -> None:
    figures = incumbent(ComparedFleet(nodes=3, restart_only=True), _steady())
    assert (figures.done, figures.evictions) == (3, 0)


def test_a_hanging_unload_blocks_its_node_for_ever() -> None:
    figures = incumbent(ComparedFleet(nodes=2), _steady(WorldOverride(unload=ProcessEnd(None))))
    assert (figures.done, figures.failed, figures.waiting, figures.harmed) == (0, 0, 2, 1)


def test_busy_modules_fail_the_node() -> None:
    figures = incumbent(ComparedFleet(nodes=1), _steady(WorldOverride(unload=ProcessEnd(2.0, 1))))
    assert (figures.failed, figures.harmed) == (1, 1)


def test_a_driver_that_works_at_the_third_start_recovers_by_itself() -> None:
    stumbles = WorldOverride(first_attempts=2, load=ProcessEnd(5.0, 1))
    figures = incumbent(ComparedFleet(nodes=1), _steady(stumbles))
    assert (figures.done, figures.failed, figures.unproven) == (1, 0, 0)
