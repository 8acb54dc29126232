"""By which command an administrator ends a node's wait."""

from typing import Any

import pytest

from libs.contracts.node import NodeRecord, Operation
from libs.contracts.queries import WaitReason, WhyAnswer
from libs.contracts.rollout import Brake, RolloutSpec, RolloutStatus, TargetRecord
from libs.contracts.waits import WaitCode
from libs.ctl.node_answers import ending_command
from libs.fleet.node import VERSION_LABEL, driver_text, fleet_node
from libs.kube import views
from tests.builders.fleet import written

OLD, NEW, OTHER = "1" * 32, "2" * 32, "3" * 32
VERSIONS = {OLD: "570", NEW: "580", OTHER: "590"}
HALTED = TargetRecord(threshold=1, failed=("u1", "u2"))
PROVEN = TargetRecord(threshold=1, proven=True)


def command(
    code: WaitCode,
    status: RolloutStatus,
    *,
    detail: str = "",
    last: str = OLD,
    brake: Brake = Brake.NONE,
) -> str:
    wait = WaitReason(code=code, detail=detail, since=0.0)
    why = WhyAnswer(node="node-1", pool="gpus", target=last, wait=wait)
    return ending_command(why, RolloutSpec(brake=brake), status, VERSIONS)


WANTED = RolloutStatus(target=NEW, targets={OLD: PROVEN, NEW: HALTED})


@pytest.mark.parametrize("last", [OLD, NEW, ""])
def test_a_halt_is_ended_for_the_driver_that_is_halted_whatever_the_node_had_last(
    last: str,
) -> None:
    release = "sluice upgrade release 580 gpus --failures 2"
    assert command(WaitCode.HALTED, WANTED, last=last) == release
    two = RolloutStatus(target=OTHER, targets={NEW: HALTED, OTHER: HALTED})
    assert command(WaitCode.HALTED, two, detail=f"target {NEW} is halted", last=last) == release
    assert command(WaitCode.HALTED, RolloutStatus(target=NEW), last=last) == ""


def test_a_failed_node_is_retried_unless_its_driver_is_halted() -> None:
    retry = "sluice upgrade retry node-1"
    assert command(WaitCode.FAILED, WANTED, last=OLD) == retry
    assert command(WaitCode.FAILED, WANTED, last=NEW).startswith("sluice upgrade release 580 ")


def test_a_brake_is_ended_and_other_waits_have_no_command() -> None:
    resume = "sluice upgrade resume gpus"
    assert command(WaitCode.PAUSED, WANTED, brake=Brake.PAUSE) == resume
    assert command(WaitCode.FROZEN, WANTED, brake=Brake.FREEZE) == resume
    assert command(WaitCode.PAUSED, WANTED) == ""
    assert command(WaitCode.JOBS, WANTED) == ""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"state": "upgrade-done"}, "570.86.15"),
        ({"state": "wait-for-jobs-required", "started": False}, "570.86.15"),
        ({"state": "pod-restart-required"}, "changing"),
        ({"state": "validation-required"}, "570.86.15"),
        (
            {"cause": "driver-start: the driver container restarted 3 times (exit code 1)"},
            "none (was 570.86.15)",
        ),
        ({"cause": "busy: pod a/b has a GPU open"}, "unknown (was 570.86.15)"),
        ({"cause": "validation: a check did not pass"}, "570.86.15"),
        ({"cause": "drain: a pod did not leave", "started": False}, "570.86.15"),
        ({"cause": "driver-start: it exited", "operation": Operation.VALIDATE}, "570.86.15"),
    ],
)
def test_a_driver_that_was_unloaded_is_not_shown_as_that_of_the_node(
    changes: dict[str, Any], told: str
) -> None:
    fields: dict[str, Any] = {"state": "upgrade-failed", "started": True, **changes}
    record = NodeRecord(node_uid="u", epoch=1, token=1, **fields)
    metadata = views.Metadata(
        name="n",
        uid="u",
        labels={VERSION_LABEL: "570.86.15"},
        annotations=written(record),
    )
    assert driver_text(fleet_node(metadata)) == told
