"""The brake of a pool, and the release of a halt: what is written, and with whose name."""

import pytest

from libs.contracts.rollout import (
    BRAKE_REASON,
    BRAKE_SET_BY,
    RELEASE_REASON,
    RELEASE_SET_BY,
    Brake,
    RolloutPhase,
    RolloutSpec,
    RolloutStatus,
    TargetRecord,
)
from libs.ctl.brakes import Signature, release, set_brake
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure

ALICE = Signature(user="alice", reason="bad \x1b driver")
TARGET = "a" * 32


def edit(spec: RolloutSpec, brake: Brake, phase: RolloutPhase = RolloutPhase.PROVING) -> Edit:
    return set_brake("gpus", spec, RolloutStatus(phase=phase), brake, by=ALICE)


def test_only_to_resume_needs_a_confirmation() -> None:
    paused = edit(RolloutSpec(), Brake.PAUSE)
    assert (paused.patch["spec"], paused.risk) == ({"brake": "Pause"}, "")
    frozen = RolloutSpec(brake=Brake.FREEZE)
    assert edit(frozen, Brake.NONE).risk
    assert not edit(frozen, Brake.NONE, RolloutPhase.COMPLETE).risk
    assert not edit(frozen, Brake.NONE, RolloutPhase.NO_NODES).risk
    same = edit(frozen, Brake.FREEZE)
    assert same.patch == {}
    assert same.done == "gpus is already frozen: no node moves, and timeouts stop; unchanged"


def test_the_end_of_a_brake_does_not_promise_to_end_a_halt() -> None:
    paused = RolloutSpec(brake=Brake.PAUSE)
    goes_on = edit(paused, Brake.NONE)
    assert goes_on.done == "gpus goes on: nodes start within the budget"
    assert edit(RolloutSpec(), Brake.NONE).done == (
        "gpus is neither paused nor frozen: nodes start within the budget; unchanged"
    )
    record = TargetRecord(threshold=1, failed=("uid-1",))
    status = RolloutStatus(
        phase=RolloutPhase.HALTED, version="580.95.05", target="new", targets={"new": record}
    )
    halt = (
        ", but driver 580.95.05 is halted: no node starts on it until"
        " `sluice upgrade release 580.95.05 --failures 1 --pool gpus`"
    )
    for spec, told in ((paused, f"goes on{halt}"), (RolloutSpec(), f"frozen{halt}; unchanged")):
        assert set_brake("gpus", spec, status, Brake.NONE, by=ALICE).done.endswith(told)
    assert "halted" not in set_brake("gpus", paused, status, Brake.FREEZE, by=ALICE).done


@pytest.mark.parametrize(
    ("spec", "brake"),
    [(RolloutSpec(), Brake.PAUSE), (RolloutSpec(brake=Brake.PAUSE), Brake.NONE)],
)
def test_a_brake_and_its_end_are_written_with_the_user_and_the_reason(
    spec: RolloutSpec, brake: Brake
) -> None:
    annotations = edit(spec, brake).patch["metadata"]["annotations"]
    assert annotations == {BRAKE_SET_BY: "alice", BRAKE_REASON: "bad   driver"}


def test_a_brake_without_a_reason_removes_that_of_the_one_before() -> None:
    by = Signature(user="bob")
    patch = set_brake("gpus", RolloutSpec(), RolloutStatus(), Brake.PAUSE, by=by).patch
    assert patch["metadata"]["annotations"] == {BRAKE_SET_BY: "bob", BRAKE_REASON: None}


def refused(status: RolloutStatus, failures: int) -> str:
    with pytest.raises(Failure) as failure:
        release("gpus", status, TARGET, "580", failures, by=ALICE)
    assert failure.value.code is ExitCode.REFUSED
    return str(failure.value)


@pytest.mark.parametrize(("threshold", "failed", "least"), [(1, 1, 1), (1, 3, 3), (3, 3, 1)])
def test_a_release_accepts_as_many_failures_as_end_the_halt(
    threshold: int, failed: int, least: int
) -> None:
    record = TargetRecord(threshold=threshold, failed=tuple(f"u{each}" for each in range(failed)))
    status = RolloutStatus(targets={TARGET: record})
    assert f"accept {least} failure" in refused(status, least - 1)
    released = release("gpus", status, TARGET, "580", least, by=ALICE)
    assert released.patch["spec"] == {"release": {"target": TARGET, "failures": least}}
    annotations = released.patch["metadata"]["annotations"]
    assert annotations == {RELEASE_SET_BY: "alice", RELEASE_REASON: "bad   driver"}
    assert f"{least + threshold - failed} more node" in released.risk


def test_a_target_that_is_not_halted_is_not_released() -> None:
    status = RolloutStatus(targets={TARGET: TargetRecord(threshold=2, failed=("u1",))})
    assert "is not halted" in refused(status, 5)
    assert "is not halted" in refused(RolloutStatus(), 5)
