"""What stops a pool, and the pool without it."""

import pytest
from msgspec.structs import replace

from libs.contracts.queries import PlanStop, PlanStopKind
from libs.contracts.rollout import (
    Brake,
    ConditionStatus,
    ConditionType,
    Release,
    RolloutCondition,
    RolloutSpec,
    TargetRecord,
)
from libs.forecast.stops import stops_of, without_stops
from libs.rollout.pool.conditions import PauseReason
from libs.rollout.views.pool import PoolView
from libs.testing.not_none import not_none
from tests.unit.rollout.builders import NEW, POOL, fleet, pool, with_rollout, with_status

HALTED = TargetRecord(threshold=1, failed=("a", "b"), halted_because="by Sluice, as so")


def braked(brake: Brake, by: str = "", reason: str = "") -> PoolView:
    return with_rollout(pool(), spec=RolloutSpec(brake=brake), brake_set_by=by, brake_reason=reason)


def released(of: PoolView) -> PoolView:
    return without_stops(fleet(of), POOL).pools[POOL]


@pytest.mark.parametrize(
    ("brake", "kind"),
    [(Brake.PAUSE, PlanStopKind.PAUSED), (Brake.FREEZE, PlanStopKind.FROZEN)],
)
def test_a_brake_is_told_with_its_author_and_released(brake: Brake, kind: PlanStopKind) -> None:
    (stop,) = stops_of(braked(brake, "jane", "so"))
    assert (stop.kind, stop.because) == (kind, "by jane: so")
    assert [stop.because for stop in stops_of(braked(brake, "jane"))] == ["by jane"]
    assert [stop.because for stop in stops_of(braked(brake, reason="so"))] == ["so"]
    assert stops_of(released(braked(brake))) == ()
    assert released(braked(brake)) == pool()


def test_a_rebuilt_rollout_is_paused_by_sluice() -> None:
    rebuilt = RolloutCondition(
        type=ConditionType.PAUSED,
        status=ConditionStatus.TRUE,
        reason=PauseReason.REBUILT,
        message="",
        last_transition_time="",
        observed_generation=1,
    )
    (stop,) = stops_of(with_status(braked(Brake.PAUSE), conditions=(rebuilt,)))
    assert stop.because.startswith("by Sluice, as the Rollout was lost and rebuilt")


def test_auto_upgrade_is_switched_on() -> None:
    disabled = replace(pool(), upgrade=replace(pool().upgrade, auto_upgrade=False))
    assert stops_of(disabled) == (PlanStop(kind=PlanStopKind.AUTO_UPGRADE_OFF),)
    by_jane = replace(disabled, auto_upgrade_off_by="jane")
    assert [stop.because for stop in stops_of(by_jane)] == ["set by jane"]
    assert released(disabled) == pool()


def test_a_halt_is_released_by_accepting_all_failures() -> None:
    halted = with_status(braked(Brake.PAUSE), targets={NEW: HALTED})
    assert [(stop.kind, stop.failures) for stop in stops_of(halted)] == [
        (PlanStopKind.HALTED, 2),
        (PlanStopKind.PAUSED, 0),
    ]
    rollout = not_none(released(halted).rollout)
    assert rollout.spec == RolloutSpec(release=Release(target=NEW, failures=2))


def test_the_halt_of_another_driver_is_no_stop_and_an_earlier_release_stays() -> None:
    release = RolloutSpec(release=Release(target="x", failures=1))
    other = with_status(with_rollout(pool(), spec=release), targets={"x": HALTED})
    assert stops_of(other) == ()
    assert released(other) == other


def test_a_deleted_policy_is_told_alone() -> None:
    gone = replace(braked(Brake.PAUSE), gone=True)
    assert [stop.kind for stop in stops_of(gone)] == [PlanStopKind.POLICY_DELETED]
