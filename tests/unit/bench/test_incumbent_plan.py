"""The fleet and the world that both columns of the bench of the incumbent share."""

from pathlib import Path

import pytest

from bench.incumbent.plan import STAGES, Plan, begin
from bench.incumbent.world import DRIVER, WORK, startup_probe_end
from libs.forecast.world import ProcessEnd


def test_both_columns_ask_the_world_differently_and_get_the_same(tmp_path: Path) -> None:
    begin(STAGES[0], tmp_path)
    plan = Plan(nodes=20, factor=10.0)
    world = plan.world(tmp_path)
    node = plan.names[0]
    assert world.load(node, "one", 0) == world.load(node, "another", 3)
    assert world.validation(node, "one", 0) == world.validation(node, "another", 3)
    assert world.stop(node, "a", DRIVER) == world.stop(node, "b", DRIVER)
    assert world.pull(node, "a", DRIVER) != world.pull(node, "a", WORK)


def test_times_are_divided_and_short_before_the_change(tmp_path: Path) -> None:
    plan, node = Plan(nodes=20, factor=10.0), Plan(nodes=20).names[0]
    world, unscaled = plan.world(tmp_path), Plan(nodes=20, factor=1.0).world(tmp_path)
    assert world.load(node, "old", 0).after == 0.1
    assert world.load(plan.bad_node, "old", 0).exit_code == 0
    begin(STAGES[0], tmp_path)
    assert world.load(plan.bad_node, "new", 0).exit_code == 0
    scaled, whole = world.load(node, "new", 0).after, unscaled.load(node, "new", 0).after
    assert scaled is not None
    assert whole == 10.0 * scaled
    seconds = [world.busy_seconds(node, works=works) for works in (False, True)]
    assert 10.0 < seconds[0] < seconds[1]
    begin(STAGES[1], tmp_path)
    assert world.load(plan.bad_node, "new", 7).exit_code == 1


@pytest.mark.parametrize(
    ("load", "end"),
    [
        (ProcessEnd(1.0), ProcessEnd(60.0)),
        (ProcessEnd(60.0), ProcessEnd(60.0)),
        (ProcessEnd(60.1), ProcessEnd(70.0)),
        (ProcessEnd(109.0), ProcessEnd(110.0)),
        (ProcessEnd(33.0, 1), ProcessEnd(33.0, 1)),
        (ProcessEnd(1261.0), ProcessEnd(1260.0, 1)),
        (ProcessEnd(None), ProcessEnd(1260.0, 1)),
    ],
)
def test_a_driver_is_ready_once_its_startup_probe_succeeds(
    load: ProcessEnd, end: ProcessEnd
) -> None:
    assert startup_probe_end(load) == end


def test_three_of_five_nodes_have_work_and_not_the_first() -> None:
    plan = Plan(nodes=10)
    busy = [number for number, name in enumerate(plan.names) if plan.is_busy(name)]
    assert busy == [1, 3, 4, 6, 8, 9]
