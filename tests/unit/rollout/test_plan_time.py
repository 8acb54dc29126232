"""How long a plan says that a rollout takes."""

import pytest

from libs.rollout.plan_time import PlanTime, brief, first_start, plan_time


def test_a_rollout_takes_from_its_first_start_on() -> None:
    found = plan_time(51.0, 81.0, [None, 20.0, 2.0])
    assert found == PlanTime(49.0, 79.0)
    assert str(found) == "49 s (p50), 1 min 19 s (p95)"
    assert plan_time(5.0, None, [9.0]) == PlanTime(0.0, None)


def test_what_is_not_known_is_said() -> None:
    assert str(plan_time(51.0, None, [])) == "51 s (p50), not known (p95)"
    assert str(plan_time(None, None, [2.0])) == "no end"
    assert first_start([None]) == 0.0


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(59.4, "59 s"), (599.0, "9 min 59 s"), (629.0, "10 min"), (7835.0, "2 h 11 min")],
)
def test_from_ten_minutes_on_seconds_are_not_told(seconds: float, expected: str) -> None:
    assert brief(seconds) == expected
