"""The table of limits (docs/states.md#limits), and how limits move."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.policy.kinds.upgrade_policy import Drain, PodDeletion, WaitForCompletion
from libs.rollout import limits
from libs.rollout.limits import Freshness, freshness
from libs.rollout.views.fleet import Instant, SourceState
from tests.unit.rollout.allocate.builders import (
    candidate,
    code_of,
    decided,
    entry,
    granted_to,
    of_target,
    open_pool,
)
from tests.unit.rollout.builders import NOW, done, failed, instant, pool, record

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


def at(**visibility: Any) -> Instant:
    return instant(**visibility)


@pytest.mark.parametrize(
    ("visibility", "since", "seconds"),
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
    visibility: dict[str, Any], since: float, seconds: float
) -> None:
    assert limits.bus_outage_seconds(at(**visibility), since) == seconds


@pytest.mark.parametrize(
    ("reported", "frozen", "until"),
    [(False, 0.0, 10), (True, 0.0, 40), (False, 60.0, 60), (True, 60.0, 90), (True, 5.0, 40)],
)
def test_what_moves_a_limit(reported: bool, frozen: float, until: float) -> None:
    node_record = record(deadline=NOW + 10, since=NOW - 100, frozen_seconds=10.0)
    pool_view = pool(constraints={"frozen_seconds": frozen})
    now = at(bus_outages=((NOW - 40, NOW - 10),))
    assert limits.effective_deadline(node_record, pool_view, now, reported=reported) == NOW + until


def test_an_absent_limit_is_not_moved() -> None:
    node_record = record(deadline=None)
    pool_view = pool(constraints={"frozen_seconds": 9.0})
    assert limits.effective_deadline(node_record, pool_view, at(), reported=True) is None
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


# Starts on fresh and stale data (docs/states.md#freshness).


POOL = open_pool(upgrade={"max_parallel_upgrades": 0}, record=of_target(), base=1)


def pods_seen(age: float, probed: float | None = None) -> Instant:
    """Return a moment at which the pod source was proved and probed so many seconds ago."""
    now = instant()
    asked = None if probed is None else NOW - probed
    pods = SourceState(proved=NOW - age, revision="100", probed=asked)
    return replace(
        now, visibility=replace(now.visibility, sources={**now.visibility.sources, "pods": pods})
    )


def test_a_proof_within_ten_seconds_is_fresh() -> None:
    assert freshness(pods_seen(10.0)) == Freshness()
    assert granted_to(POOL, candidate("node-1"), now=pods_seen(10.0)) == ["node-1"]


def test_an_older_source_is_probed_once_and_awaited() -> None:
    decision = decided(POOL, candidate("node-1"), now=pods_seen(11.0))
    assert decision.probes == ("pods",)
    assert code_of(decision, "node-1") is WaitCode.STALE
    asked = decided(POOL, candidate("node-1"), now=pods_seen(15.0, probed=4.0))
    assert asked.probes == ()
    assert code_of(asked, "node-1") is WaitCode.STALE
    assert asked.wake_at == NOW - 4.0 + 10.0


@pytest.mark.parametrize("probed", [11.0, 12.0])
def test_a_probe_before_the_last_proof_does_not_count(probed: float) -> None:
    assert freshness(pods_seen(11.0, probed=probed)).probes == ("pods",)


def test_without_a_probe_answer_starts_go_on_until_data_is_stale() -> None:
    assert granted_to(POOL, candidate("node-1"), now=pods_seen(90.0, probed=10.0)) == ["node-1"]
    old = decided(POOL, candidate("node-1"), now=pods_seen(90.1, probed=10.0))
    assert not any(write.granted for write in old.rollouts)
    assert (code_of(old, "node-1"), old.probes) == (WaitCode.STALE, ("pods",))


def test_no_probe_where_nothing_could_start() -> None:
    closed_pool = replace(POOL, upgrade=replace(POOL.upgrade, max_unavailable=0))
    assert decided(closed_pool, candidate("node-1"), now=pods_seen(50.0)).probes == ()
    assert decided(POOL, done("node-1"), now=pods_seen(50.0)).probes == ()


def test_a_grant_does_not_begin_on_stale_data() -> None:
    waiting = candidate("node-1")
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 0},
        record=of_target(),
        base=1,
        in_flight={waiting.uid: entry(waiting)},
    )
    decision = decided(pool, waiting, now=pods_seen(91.0, probed=5.0))
    assert (decision.steps, code_of(decision, "node-1")) == ({}, WaitCode.STALE)


def test_a_validation_needs_no_fresh_data() -> None:
    broken = failed("broken")
    record = broken.record
    assert record is not None
    broken = replace(broken, record=replace(record, revalidated=""))  # type: ignore[type-var]
    assert granted_to(POOL, broken, now=pods_seen(500.0, probed=1.0)) == ["broken"]
