"""On what news something starts (docs/states.md#freshness)."""

import pytest
from msgspec.structs import replace

from libs.contracts.waits import WaitCode
from libs.rollout.freshness import Freshness, freshness
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


def seen(age: float, probed: float | None = None) -> Instant:
    """One source was proved that long ago, and asked so long ago."""
    now = instant()
    asked = None if probed is None else NOW - probed
    pods = SourceState(proved=NOW - age, revision="100", probed=asked)
    return replace(
        now, visibility=replace(now.visibility, sources={**now.visibility.sources, "pods": pods})
    )


def test_what_was_proved_within_ten_seconds_is_fresh() -> None:
    assert freshness(seen(10.0)) == Freshness()
    assert granted_to(POOL, candidate("node-1"), now=seen(10.0)) == ["node-1"]


def test_what_is_older_is_asked_once_and_waited_for() -> None:
    decision = decided(POOL, candidate("node-1"), now=seen(11.0))
    assert decision.probes == ("pods",)
    assert code_of(decision, "node-1") is WaitCode.STALE
    asked = decided(POOL, candidate("node-1"), now=seen(15.0, probed=4.0))
    assert asked.probes == ()
    assert code_of(asked, "node-1") is WaitCode.STALE
    assert asked.wake_at == NOW - 4.0 + 10.0


@pytest.mark.parametrize("probed", [11.0, 12.0])
def test_a_question_not_after_the_last_proof_is_no_question(probed: float) -> None:
    assert freshness(seen(11.0, probed=probed)).probes == ("pods",)


def test_without_an_answer_it_goes_on_for_as_long_as_the_news_is_young_enough() -> None:
    assert granted_to(POOL, candidate("node-1"), now=seen(90.0, probed=10.0)) == ["node-1"]
    old = decided(POOL, candidate("node-1"), now=seen(90.1, probed=10.0))
    assert not any(write.granted for write in old.rollouts)
    assert (code_of(old, "node-1"), old.probes) == (WaitCode.STALE, ("pods",))


def test_nobody_is_asked_where_nobody_could_start() -> None:
    none = replace(POOL, upgrade=replace(POOL.upgrade, max_unavailable=0))
    assert decided(none, candidate("node-1"), now=seen(50.0)).probes == ()
    assert decided(POOL, done("node-1"), now=seen(50.0)).probes == ()


def test_nothing_that_was_granted_is_lowered_on_old_news() -> None:
    waiting = candidate("node-1")
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 0},
        record=of_target(),
        base=1,
        in_flight={waiting.uid: entry(waiting)},
    )
    decision = decided(pool, waiting, now=seen(91.0, probed=5.0))
    assert (decision.steps, code_of(decision, "node-1")) == ({}, WaitCode.STALE)


def test_what_takes_nothing_away_needs_no_fresh_news() -> None:
    broken = failed("broken")
    record = broken.record
    assert record is not None
    broken = replace(broken, record=replace(record, revalidated=""))  # type: ignore[type-var]
    assert granted_to(POOL, broken, now=seen(500.0, probed=1.0)) == ["broken"]
