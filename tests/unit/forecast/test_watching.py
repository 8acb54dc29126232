"""When a play is over, and what is written down of a node."""

from collections.abc import Mapping

import pytest

from libs.contracts.waits import WaitCode
from libs.forecast.watching import LISTLESS, STILL, Watch
from libs.rollout.deciding import News
from libs.rollout.decision import Step, Wait
from tests.unit.forecast.plays import places
from tests.unit.rollout.building import NOW, POOL, done, failed, fleet, required, under_way

NODE = "node-1"


def waiting(code: WaitCode) -> Mapping[str, Wait]:
    return {NODE: Wait(code=code, detail="so", since=NOW)}


def watching(waits: Mapping[str, Wait] | None = None) -> Watch:
    """One node that waits for something, be it nothing but a place."""
    watch = Watch(fleet(places(), required(NODE)), POOL, NOW)
    watch.decided(NOW, News(waits=waits or waiting(WaitCode.BUDGET)), {}, ())
    return watch


def test_with_nothing_before_anybody_it_is_over_at_once() -> None:
    assert Watch(fleet(places(), done(NODE)), POOL, NOW).over(NOW, {})
    assert not watching().over(NOW, {})


def test_where_nobody_is_in_flight_it_is_over_soon() -> None:
    waits = waiting(WaitCode.SKIPPED)
    watch = watching(waits)
    assert not watch.over(NOW + LISTLESS - 1, waits)
    assert watch.over(NOW + LISTLESS, waits)


def test_who_is_in_flight_is_waited_for_and_the_others_after_that() -> None:
    watch = watching()
    watch.seen(NOW, [under_way(name=NODE)], ())
    assert not watch.over(NOW + 10 * LISTLESS, {})
    watch.seen(NOW + 10 * LISTLESS, [failed(NODE)], ())
    assert not watch.over(NOW + 11 * LISTLESS - 1, {})
    assert watch.over(NOW + 11 * LISTLESS, {})


def test_nobody_is_waited_for_for_ever() -> None:
    watch = watching()
    watch.seen(NOW, [under_way(name=NODE)], ())
    assert not watch.over(NOW + STILL, {})
    assert watch.over(NOW + STILL + 1, {})


def test_what_ends_by_time_alone_is_waited_for() -> None:
    waits = waiting(WaitCode.BACK_OFF)
    watch = watching(waits)
    assert not watch.over(NOW + 5 * LISTLESS, waits)
    assert not watch.over(NOW + 6 * LISTLESS - 1, {})
    assert watch.over(NOW + 6 * LISTLESS, {})


@pytest.mark.parametrize("by_step", [False, True])
def test_what_it_waits_for_at_the_end_is_told(by_step: bool) -> None:
    watch, waits = watching(), waiting(WaitCode.VALIDATION)
    step = Step(actions=(), because="so", wait=waits[NODE])
    story = watch.story({} if by_step else waits, {NODE: step} if by_step else {})
    assert story.courses[NODE].wait == waits[NODE]
    assert watching().story({}, {}).courses[NODE].wait is None


def test_who_was_in_place_once_does_not_fail_in_this_play() -> None:
    watch = watching()
    watch.seen(NOW + 5, [under_way(name=NODE)], ())
    watch.seen(NOW + 40, [done(NODE)], ())
    watch.decided(NOW + 40, News(), {}, [done(NODE)])
    watch.seen(NOW + 50, [failed(NODE)], ())
    course = watch.story({}, {}).courses[NODE]
    assert (course.start, course.end, course.failed) == (5.0, 40.0, None)


def test_a_failure_is_told_with_its_time_until_it_is_mended() -> None:
    watch = watching()
    watch.seen(NOW + 5, [under_way(name=NODE)], ())
    watch.seen(NOW + 20, [failed(NODE)], ())
    watch.seen(NOW + 30, [failed(NODE)], ())
    assert watch.story({}, {}).courses[NODE].failed == 20.0
    watch.seen(NOW + 40, [required(NODE)], ())
    assert watch.story({}, {}).courses[NODE].failed is None


def test_who_had_failed_before_does_not_fail_in_this_play() -> None:
    watch = Watch(fleet(places(), failed(NODE)), POOL, NOW)
    watch.decided(NOW, News(waits=waiting(WaitCode.FAILED)), {}, ())
    watch.seen(NOW + 5, [failed(NODE)], ())
    assert watch.story({}, {}).courses[NODE].failed is None
