"""What would be if the pool were otherwise, and what it had to be to be through in time."""

import pytest

from libs.forecast import Likely, Wish
from libs.forecast.world import NEVER, Oddity
from libs.rollout.views.pool import Build
from tests.unit.forecast.plays import (
    Fixed,
    Varied,
    awaiting_jobs,
    foreseen,
    idle,
    of,
    old,
    places,
    said,
    work,
)
from tests.unit.rollout.building import NEW, NOW, VARIANT, done, required


def test_another_budget_is_foreseen_on_wish() -> None:
    serial = foreseen(places(parallel=1), idle(4))
    wished = foreseen(places(parallel=1), idle(4), wish=Wish(max_parallel=0, max_unavailable=2))
    assert wished.loss.nodes == 2
    assert serial.makespan.p50 is not None
    assert wished.makespan.p50 == pytest.approx(serial.makespan.p50 / 2, rel=0.05)


def test_another_driver_is_foreseen_on_wish() -> None:
    there = [done("node-1"), done("node-2")]
    assert not foreseen(places(), there).nodes
    build = Build(label="label-next", install_digest="install-next")
    made = foreseen(places(), there, wish=Wish(target="next", builds={VARIANT: build}))
    assert made.target == "next"
    assert all(node.end.p50 for node in made.nodes)
    unknown = foreseen(places(), there, wish=Wish(target="next"))
    assert unknown.makespan == Likely(None, None)
    said(unknown, "2 nodes will not move (target-missing)")


@pytest.mark.parametrize("seconds", [30, 50, 80, 120, 200, 400])
def test_the_needed_limit_is_the_smallest_that_does(seconds: int) -> None:
    nodes = [old(f"node-{number}", *[work(f"w{number}")] * (number % 2)) for number in range(6)]
    by_hand = None
    for number in range(7):
        made = foreseen(places(unavailable=number), nodes, Varied(), plays=2)
        if made.makespan.p95 is not None and made.makespan.p95 <= seconds:
            by_hand = number
            break
    found = foreseen(places(unavailable=1), nodes, Varied(), plays=2, finish_by=NOW + seconds)
    assert found.needed is not None
    assert found.needed.max_unavailable == by_hand
    if by_hand is None:
        said(found, "No maxUnavailable can be named")
    else:
        said(found, f"maxUnavailable has to be {by_hand} or more")


def test_where_the_parallel_limit_is_in_the_way_the_plan_says_so() -> None:
    made = foreseen(places(parallel=1), idle(4), finish_by=NOW + 90)
    assert made.needed is not None
    assert (made.needed.max_unavailable, made.needed.max_parallel) == (2, 0)
    assert foreseen(places(parallel=1), idle(4)).needed is None


def test_with_an_endless_job_no_limit_can_be_named() -> None:
    endless = Oddity(pod="uid-train", remainder=NEVER)
    nodes = [old("node-1", work("train", job=True))]
    made = foreseen(places(**awaiting_jobs()), nodes, Fixed(endless), finish_by=NOW + 9000)
    assert made.needed is not None
    assert made.needed.max_unavailable is None
    assert "it cannot be said" in made.needed.why


def test_a_time_that_is_over_is_said_to_be() -> None:
    made = foreseen(places(), idle(1), finish_by=NOW)
    assert made.needed is not None
    assert made.needed.why == "that time is over"


def test_a_node_that_is_in_place_without_a_start_needs_no_room() -> None:
    made = foreseen(places(), [required("node-1", NEW), old("node-2")], finish_by=NOW + 3600)
    assert of(made, "node-1").start.p50 is None
    assert of(made, "node-1").end.p50 is not None
    assert made.needed is not None
    assert made.needed.max_unavailable == 1
