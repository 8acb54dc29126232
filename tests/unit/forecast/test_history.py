"""What nodes' last upgrades took, and plans of the next one."""

import math
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from libs.contracts.node import NodeRecord
from libs.forecast.history import History, Measured, history_of
from libs.forecast.learned_world import LearnedWorld, fleet_history
from libs.forecast.plan import plan
from libs.forecast.play import play_to_end
from libs.forecast.seeded_world import SeededWorld
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build
from libs.testing.stage.worlds import SteadyWorld
from tests.unit.forecast.builders import (
    IDLE_LIFE,
    fixed_worlds,
    idle_nodes,
    old_node,
    pool_with_limits,
)
from tests.unit.rollout.builders import NEW, POOL, fleet, instant, pool

SLOW = SteadyWorld(load_seconds=300.0, validation_seconds=90.0)
"""Much slower than plans assume."""
BROUGHT_UP = {"bring-up pod-restart-required": 7.0, "bring-up validation-required": 3.0}


def measured_node(name: str, **took: float) -> NodeView:
    seconds = {key.replace("_", "-"): value for key, value in took.items()}
    return with_took(old_node(name), seconds)


def with_took(node: NodeView, took: Mapping[str, float]) -> NodeView:
    assert isinstance(node.record, NodeRecord)
    return replace(node, record=replace(node.record, took=dict(took)))


def history(*nodes: NodeView) -> History:
    return history_of(fleet(pool(), *nodes), POOL, evicting_longer_than=2.0)


def upgraded(world: SteadyWorld, count: int = 6) -> tuple[Fleet, float]:
    """Upgrade a fleet one node at a time; return it before another upgrade, and what it took."""
    first = play_to_end(
        fleet(pool_with_limits(parallel=1), *idle_nodes(count)), instant(), pool=POOL, world=world
    )
    view = first.fleet.pools[POOL]
    builds = {
        variant: Build(label="label-third", install_digest="install-third")
        for variant in view.builds[NEW]
    }
    third = replace(view, target="third", builds={**view.builds, "third": builds})
    return replace(first.fleet, pools={POOL: third}), first.result.duration


def test_a_steady_fleet_takes_as_long_as_before() -> None:
    before, took = upgraded(SLOW)
    second = plan(before, instant(), pool=POOL, plays=5).answer
    assert second.measured_nodes == 6
    assert second.makespan_p50 == pytest.approx(took, rel=0.05)
    blind = plan(before, instant(), pool=POOL, plays=5, world_of=SeededWorld).answer
    assert blind.makespan_p50 is not None
    assert blind.makespan_p50 < 0.7 * took


def test_what_was_seen_is_not_called_assumed() -> None:
    before, _ = upgraded(SLOW)
    remarks = "\n".join(plan(before, instant(), pool=POOL, plays=2).answer.remarks)
    assert "as 6 nodes took last: driver restart 5" in remarks
    assumed = remarks[remarks.index("assumed") :]
    assert "driver load" not in assumed
    assert "validation" not in assumed
    assert "job" in assumed


def test_a_world_that_is_given_learns_nothing() -> None:
    before, _ = upgraded(SLOW, count=3)
    given = plan(before, instant(), pool=POOL, plays=1, world_of=fixed_worlds()).answer
    assert given.measured_nodes == 0
    assert given.makespan_p50 == pytest.approx(3 * IDLE_LIFE, rel=0.02)


def test_each_part_is_measured_of_the_nodes_of_the_pool_alone() -> None:
    nodes = [
        measured_node(f"n-{number}", pod_restart_required=200.0, validation_required=60.0)
        for number in range(3)
    ]
    foreign = replace(measured_node("other", pod_restart_required=9.0), pool="another")
    found = history(*nodes, foreign)
    assert (found.nodes, found.eviction) == (3, None)
    assert found.restart is not None
    assert found.restart.quantile(0.5) == pytest.approx(200.0)
    assert found.validation is not None
    assert found.validation.quantile(0.5) == pytest.approx(60.0)


def test_a_plan_is_measured_on_no_node_where_two_are_too_few() -> None:
    before, _ = upgraded(SLOW, 2)
    second = plan(before, instant(), pool=POOL, plays=2).answer
    assert second.measured_nodes == 0
    assert "took" not in "\n".join(second.remarks)


def test_two_nodes_are_no_history() -> None:
    found = history(*(measured_node(f"n-{n}", pod_restart_required=9.0) for n in range(2)))
    assert (found.nodes, found.restart) == (2, None)


def brought_up_node(name: str, restart: float, validation: float, **took: float) -> NodeView:
    bring_up = {
        "bring-up pod-restart-required": restart,
        "bring-up validation-required": validation,
    }
    seconds = {key.replace("_", "-"): value for key, value in took.items()}
    return with_took(old_node(name), {**bring_up, **seconds})


def test_until_enough_nodes_were_upgraded_their_bring_ups_are_the_history() -> None:
    up = [brought_up_node(f"n-{n}", 200.0, 60.0) for n in range(4)]
    canary = brought_up_node("canary", 200.0, 60.0, pod_restart_required=230.0)
    found = history(*up, canary)
    assert (found.nodes, found.brought_up, found.eviction) == (5, True, None)
    assert found.restart is not None
    assert found.validation is not None
    assert found.restart.own["canary"] == pytest.approx(math.log(230.0))
    assert found.restart.quantile(0.5) == pytest.approx(205.6, rel=0.01)
    assert found.validation.quantile(0.5) == pytest.approx(60.0)
    upgraded = [brought_up_node(f"u-{n}", 200.0, 60.0, pod_restart_required=300.0) for n in "abc"]
    found = history(*up, *upgraded)
    assert (found.nodes, found.brought_up) == (3, False)
    assert found.restart is not None
    assert found.restart.quantile(0.5) == pytest.approx(300.0)


def test_a_first_upgrade_is_planned_as_the_fleet_came_up() -> None:
    nodes = [with_took(node, BROUGHT_UP) for node in idle_nodes(6)]
    made = plan(fleet(pool_with_limits(parallel=1), *nodes), instant(), pool=POOL, plays=5).answer
    assert made.measured_nodes == 6
    assert made.makespan_p50 == pytest.approx(6 * (7.0 + 3.0), rel=0.35)
    assert any("as 6 nodes took to come up: driver restart 7" in each for each in made.remarks)


@pytest.mark.parametrize(("pulled", "shorter"), [(50.0, 44.0), (4.0, 0.0)])
def test_an_upgrade_ends_a_driver_in_place_of_the_pull_of_a_bring_up(
    pulled: float, shorter: float
) -> None:
    took = {"bring-up pod-restart-required": 200.0, "bring-up pull": pulled}
    nodes = [with_took(old_node(f"n-{n}"), took) for n in range(4)]
    seen = fleet_history(fleet(pool(), *nodes), POOL)
    brought = LearnedWorld(1, history=seen, brings_images=True)
    assert brought.pull("n-1", "label", "nvidia-driver-ctr").seconds == pytest.approx(
        pulled, rel=0.2
    )
    load = brought.load("n-1", "label", 0).after
    assert load == pytest.approx(200.0 - shorter, rel=0.1)
    whole = LearnedWorld(1, history=seen)
    pull, load = whole.pull("n-1", "label", "c").seconds, whole.load("n-1", "label", 0).after
    assert pull is not None
    assert load is not None
    assert pull + load == pytest.approx(200.0, rel=0.1)


def test_an_attempt_that_hung_is_no_measure_of_the_others() -> None:
    took = [100.0, 105.0, 95.0, 102.0, 1_800.0]
    nodes = (measured_node(f"n-{n}", pod_restart_required=each) for n, each in enumerate(took))
    restart = history(*nodes).restart
    assert restart is not None
    assert restart.quantile(0.5) == pytest.approx(100.4, rel=0.01)
    assert restart.quantile(0.95) < 125.0


@pytest.mark.parametrize("seconds", [-1.0, 0.0, math.inf, math.nan, 1e9])
def test_a_record_that_claims_the_impossible_is_ignored(seconds: float) -> None:
    nodes = [measured_node(f"n-{n}", pod_restart_required=60.0) for n in range(3)]
    found = history(*nodes, measured_node("liar", pod_restart_required=seconds))
    assert found.nodes == 3


def test_nodes_without_pods_tell_nothing_about_evictions() -> None:
    empty = [measured_node(f"e-{n}", pod_deletion_required=1.2) for n in range(9)]
    busy = [measured_node(f"b-{n}", pod_deletion_required=11.0 + n) for n in range(3)]
    refused = measured_node("r", pod_deletion_required=200.0)
    found = history(*empty, *busy, refused)
    assert (found.emptied, found.refused) == (4, 1)
    assert found.eviction is not None
    assert found.eviction.quantile(0.5) == pytest.approx(12.0, rel=0.02)


def test_a_slow_node_is_expected_to_be_slow_again() -> None:
    measured = Measured(middle=0.0, spread=0.5, own={"slow": 1.0})
    assert measured.of_node("slow", 0.5) == pytest.approx(math.exp(0.5))
    assert measured.of_node("new", 0.5) == pytest.approx(1.0)


def test_a_restart_takes_what_was_measured_with_or_without_the_pull() -> None:
    nodes = [measured_node(f"n-{n}", pod_restart_required=300.0) for n in range(4)]
    seen = fleet_history(fleet(pool(), *nodes), POOL)
    for brings_images in (False, True):
        world = LearnedWorld(1, history=seen, brings_images=brings_images)
        load = world.load("n-1", "label", 0).after
        pull = world.pull("n-1", "label", "nvidia-driver-ctr").seconds
        assert load is not None
        assert pull is not None
        total = load if brings_images else load + pull
        assert total == pytest.approx(300.0, rel=0.2)
        assert (world.unload("n-1", 0).after, world.stop("n-1", "x", "y").seconds) == (0.0, 0.0)


def test_pods_leave_as_they_left_before() -> None:
    nodes = [measured_node(f"n-{n}", pod_deletion_required=21.0) for n in range(4)]
    seen = fleet_history(fleet(pool(), *nodes), POOL)
    left = LearnedWorld(1, history=seen).eviction("uid", 600.0).seconds
    assert left == pytest.approx(20.0, rel=0.3)
    assert LearnedWorld(1, history=seen).eviction("uid", 5.0).seconds == 5.0
