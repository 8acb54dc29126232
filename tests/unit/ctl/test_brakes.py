"""The brake of a pool, and the release of a halt: what is written, and with whose name."""

import pytest
from msgspec import Raw
from msgspec.structs import replace

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
from libs.kube.authors import COMMAND
from libs.kube.views import ManagedFields, Metadata

ALICE = Signature(user="alice", reason="bad \x1b driver")
TARGET = "a" * 32
GPUS = Metadata(name="gpus")


def set_by(user: str, reason: str) -> Metadata:
    """Return a pool whose brake `sluice` has set."""
    owned = ManagedFields(manager=COMMAND, fields_v1=Raw(b'{"f:spec": {"f:brake": {}}}'))
    annotations = {BRAKE_SET_BY: user, BRAKE_REASON: reason}
    return Metadata(name="gpus", annotations=annotations, managed_fields=(owned,))


def edit(spec: RolloutSpec, brake: Brake, phase: RolloutPhase = RolloutPhase.PROVING) -> Edit:
    return set_brake(GPUS, spec, RolloutStatus(phase=phase), brake, by=ALICE)


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
    assert goes_on.done == "gpus goes on: nodes start within the budget; ended: the pause"
    assert edit(RolloutSpec(), Brake.NONE).done == (
        "gpus is neither paused nor frozen: nodes start within the budget; unchanged"
    )
    record = TargetRecord(threshold=1, failed=("uid-1",))
    status = RolloutStatus(
        phase=RolloutPhase.HALTED, version="580.95.05", target="new", targets={"new": record}
    )
    halt = (
        ", but driver 580.95.05 is halted: no node starts on it until"
        " `sluice upgrade release 580.95.05 gpus --failures 1`"
    )
    for spec, told in (
        (paused, f"goes on{halt}; ended: the pause"),
        (RolloutSpec(), f"frozen{halt}; unchanged"),
    ):
        assert set_brake(GPUS, spec, status, Brake.NONE, by=ALICE).done.endswith(told)
    assert "halted" not in set_brake(GPUS, paused, status, Brake.FREEZE, by=ALICE).done


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
    patch = set_brake(GPUS, RolloutSpec(), RolloutStatus(), Brake.PAUSE, by=by).patch
    assert patch["metadata"]["annotations"] == {BRAKE_SET_BY: "bob", BRAKE_REASON: None}


@pytest.mark.parametrize(
    ("by", "reason", "kept"),
    [
        (Signature(user="bob"), "bad driver", "after the pause by alice: bad driver"),
        (Signature(user="bob"), "", "after the pause by alice"),
        (Signature(user="alice"), "bad driver", "bad driver"),
        (Signature(user="bob", reason="storage is down"), "bad driver", "storage is down"),
    ],
    ids=["another's", "another's without a reason", "one's own", "with a reason"],
)
def test_a_freeze_in_place_of_a_pause_keeps_why_it_was_paused(
    by: Signature, reason: str, kept: str
) -> None:
    paused = RolloutSpec(brake=Brake.PAUSE)
    frozen = set_brake(set_by("alice", reason), paused, RolloutStatus(), Brake.FREEZE, by=by)
    annotations = {BRAKE_SET_BY: by.user, BRAKE_REASON: kept}
    assert frozen.patch["metadata"]["annotations"] == annotations
    why = f" ({reason})" if reason else ""
    assert frozen.done.endswith(f"; it replaces the pause by alice{why}")


def test_to_resume_says_whose_stop_ends_and_why_it_was_set() -> None:
    frozen, proving = RolloutSpec(brake=Brake.FREEZE), RolloutStatus(phase=RolloutPhase.PROVING)
    metadata = set_by("alice", "the storage is down")
    ended = set_brake(metadata, frozen, proving, Brake.NONE, by=Signature(user="bob"))
    assert ended.risk == (
        "this ends the freeze by alice (the storage is down); nodes of gpus that are not done are"
        " drained and upgraded, within the budget"
    )
    assert ended.done.endswith("; ended: the freeze by alice (the storage is down)")
    assert ended.patch["metadata"]["annotations"] == {BRAKE_SET_BY: "bob", BRAKE_REASON: None}


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
    # As many failures as are accepted, and as many more as the threshold allows.
    again = "the next failure halts the pool again"
    assert (released.done.endswith(f"; {again}"), released.risk.endswith(f"; {again}")) == (
        True,
        True,
    )
    more = release("gpus", status, TARGET, "580", least + 1, by=ALICE)
    assert more.done.endswith("; 2 more failures halt the pool again")
    count = least + 1 + threshold - failed
    at_last = replace(record, accepted=least + 1, failed=tuple("abcdef"[: failed + count]))
    assert at_last.is_halted
    assert not replace(at_last, failed=at_last.failed[1:]).is_halted


def test_a_target_that_is_not_halted_is_not_released() -> None:
    status = RolloutStatus(targets={TARGET: TargetRecord(threshold=2, failed=("u1",))})
    assert "is not halted" in refused(status, 5)
    assert "is not halted" in refused(RolloutStatus(), 5)
