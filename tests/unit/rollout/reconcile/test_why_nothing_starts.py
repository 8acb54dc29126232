"""What the status of a Rollout says in `because` and `progress`, for `kubectl get rollouts`."""

import pytest

from libs.contracts.rollout import Brake, RolloutSpec
from libs.rollout.pool.conditions import Pause, PauseReason, pause_detail
from libs.rollout.wait_reasons import BlockReason, WaitCode
from tests.unit.rollout.builders import pool, with_rollout

OFF = Pause(PauseReason.AUTO_UPGRADE_OFF, BlockReason(WaitCode.PAUSED, "autoUpgrade is off"))


@pytest.mark.parametrize(
    ("brake", "pause", "expected"),
    [
        (Brake.NONE, None, ""),
        (Brake.NONE, OFF, "autoUpgrade is off"),
        (Brake.FREEZE, None, "is frozen (spec.brake: Freeze)"),
        (Brake.FREEZE, OFF, "is frozen (spec.brake: Freeze)"),
    ],
)
def test_a_freeze_is_named_before_another_cause(
    brake: Brake, pause: Pause | None, expected: str
) -> None:
    told = pause_detail(with_rollout(pool(), spec=RolloutSpec(brake=brake)), pause)
    assert told.endswith(expected)
    assert bool(told) == bool(expected)
