"""Starts on fresh and stale data (docs/states.md#freshness)."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import WaitCode
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
from tests.unit.rollout.builders import NOW, done, failed, instant

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
    none = replace(POOL, upgrade=replace(POOL.upgrade, max_unavailable=0))
    assert decided(none, candidate("node-1"), now=pods_seen(50.0)).probes == ()
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
