"""The table of limits (docs/states.md#limits), and how limits move."""

from typing import Any

import pytest

from libs.contracts.node import UpgradeState
from libs.policy.kinds.upgrade_policy import Drain, PodDeletion, WaitForCompletion
from libs.rollout import limits
from libs.rollout.views.fleet import Instant
from tests.unit.rollout.builders import NOW, instant, pool, record

S = UpgradeState


@pytest.mark.parametrize(
    ("state", "upgrade", "seconds"),
    [
        (S.WAIT_FOR_JOBS_REQUIRED, {}, None),
        (
            S.WAIT_FOR_JOBS_REQUIRED,
            {"wait_for_completion": WaitForCompletion(timeout_seconds=60)},
            60,
        ),
        (S.POD_DELETION_REQUIRED, {}, 300),
        (S.POD_DELETION_REQUIRED, {"pod_deletion": PodDeletion(timeout_seconds=60)}, 60),
        (S.POD_DELETION_REQUIRED, {"pod_deletion": PodDeletion(timeout_seconds=0)}, None),
        (S.POD_DELETION_REQUIRED, {"gpu_pod_deletion": PodDeletion(timeout_seconds=9)}, 9),
        (S.DRAIN_REQUIRED, {}, 300),
        (S.DRAIN_REQUIRED, {"drain": Drain(timeout_seconds=60)}, 60),
        (S.DRAIN_REQUIRED, {"drain": Drain(timeout_seconds=0)}, None),
        (S.POD_RESTART_REQUIRED, {}, 1800),
        (S.VALIDATION_REQUIRED, {}, 600),
        (S.UPGRADE_FAILED, {}, None),
        (S.UPGRADE_DONE, {}, None),
        (S.UPGRADE_REQUIRED, {}, None),
    ],
)
def test_the_deadline_of_each_state(
    state: UpgradeState, upgrade: dict[str, Any], seconds: float | None
) -> None:
    due = limits.deadline(state, pool(upgrade=upgrade), instant())
    assert due == (None if seconds is None else NOW + seconds)


def test_fixed_limits() -> None:
    assert (limits.QUIESCE, limits.UNLOAD, limits.DRIVER_START) == (240, 120, 1800)
    assert (limits.VALIDATION, limits.STALE_AFTER, limits.RESTARTS) == (600, 90, 3)


def at(**sight: Any) -> Instant:
    return instant(**sight)


@pytest.mark.parametrize(
    ("sight", "since", "seconds"),
    [
        ({}, NOW - 100, 0),
        ({"bus_down_since": NOW - 30}, NOW - 100, 30),
        ({"bus_down_since": NOW - 300}, NOW - 100, 100),
        ({"bus_outages": ((NOW - 50, NOW - 30),)}, NOW - 100, 20),
        ({"bus_outages": ((NOW - 150, NOW - 30),)}, NOW - 100, 70),
        ({"bus_outages": ((NOW - 150, NOW - 130),)}, NOW - 100, 0),
        ({"bus_outages": ((NOW - 50, NOW - 30),), "bus_down_since": NOW - 5}, NOW - 100, 25),
    ],
)
def test_an_outage_counts_from_the_beginning_of_the_state(
    sight: dict[str, Any], since: float, seconds: float
) -> None:
    assert limits.bus_outage_seconds(at(**sight), since) == seconds


@pytest.mark.parametrize(
    ("reported", "frozen", "until"),
    [(False, 0.0, 10), (True, 0.0, 40), (False, 60.0, 60), (True, 60.0, 90), (True, 5.0, 40)],
)
def test_what_moves_a_limit(reported: bool, frozen: float, until: float) -> None:
    held = record(deadline=NOW + 10, since=NOW - 100, frozen_seconds=10.0)
    where = pool(standing={"frozen_seconds": frozen})
    now = at(bus_outages=((NOW - 40, NOW - 10),))
    assert limits.effective_deadline(held, where, now, reported=reported) == NOW + until


def test_an_absent_limit_is_not_moved() -> None:
    held = record(deadline=None)
    where = pool(standing={"frozen_seconds": 9.0})
    assert limits.effective_deadline(held, where, at(), reported=True) is None
    assert not limits.is_past(None, at())


def test_a_limit_has_passed_at_its_moment() -> None:
    assert limits.is_past(NOW, at())
    assert not limits.is_past(NOW + 0.001, at())


@pytest.mark.parametrize(
    ("had", "then"),
    [(0.0, 600.0), (600.0, 1200.0), (5400.0, 10800.0), (10800.0, 21600.0), (21600.0, 21600.0)],
)
def test_back_offs_double_up_to_six_hours(had: float, then: float) -> None:
    assert limits.next_back_off(record(back_off_seconds=had)) == then


def test_a_source_is_stale_after_ninety_seconds() -> None:
    assert limits.stale_source(instant(age=90.0)) == ""
    assert limits.stale_source(instant(ages={"pods": 90.5})) == "pods"
