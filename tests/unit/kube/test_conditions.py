"""Conditions: since when the status is so, and nothing new when nothing changed."""

from libs.kube.views import Condition, set_condition

NOON = 1_800_014_400.0
READY = Condition(
    type="Ready",
    status="True",
    reason="AllWell",
    message="3 of 3",
    last_transition_time="2027-01-15T12:00:00Z",
    observed_generation=4,
)
OTHER = Condition(type="Other", status="Unknown")


def set_ready(
    conditions: tuple[Condition, ...],
    *,
    status: str = "True",
    reason: str = "AllWell",
    message: str = "3 of 3",
    generation: int = 4,
    now: float = NOON + 60,
) -> tuple[Condition, ...]:
    assert status in ("True", "False")
    return set_condition(
        conditions,
        type="Ready",
        status=status,
        reason=reason,
        message=message,
        generation=generation,
        now=now,
    )


def test_a_new_condition_is_appended_with_the_current_time() -> None:
    assert set_ready((OTHER,), now=NOON + 0.9) == (OTHER, READY)


def test_an_unchanged_condition_returns_the_identical_tuple() -> None:
    conditions = (READY, OTHER)
    assert set_ready(conditions) is conditions


def test_a_new_message_keeps_the_transition_time() -> None:
    for after in (
        set_ready((READY, OTHER), reason="Fine"),
        set_ready((READY, OTHER), message="4 of 4"),
        set_ready((READY, OTHER), generation=5),
    ):
        assert after[0] != READY
        assert after[0].last_transition_time == READY.last_transition_time
        assert after[1] is OTHER


def test_a_new_status_sets_the_transition_time() -> None:
    down = set_ready((OTHER, READY), status="False")
    assert (down[1].status, down[1].last_transition_time) == ("False", "2027-01-15T12:01:00Z")
    up = set_ready(down, now=NOON + 120)
    assert up[1].last_transition_time == "2027-01-15T12:02:00Z"


def test_a_condition_without_a_time_gets_one() -> None:
    (after,) = set_ready((Condition(type="Ready", status="True"),))
    assert after.last_transition_time == "2027-01-15T12:01:00Z"
