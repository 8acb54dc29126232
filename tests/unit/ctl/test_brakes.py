"""The brake of a pool: what sets it, and who is said to have set it."""

import msgspec
import pytest

from libs.contracts.rollout import Brake, RolloutPhase, RolloutSpec, RolloutStatus
from libs.ctl.brakes import SETTER, BrakeSetter, brake_setter, set_brake
from libs.ctl.edits import Edit
from libs.kube.views import ManagedFields, Metadata

PAUSED = RolloutSpec(brake=Brake.PAUSE)
AT, NOON = "2027-01-15T12:00:00Z", 1_800_014_400.0


def edit(spec: RolloutSpec, brake: Brake, phase: RolloutPhase = RolloutPhase.PROVING) -> Edit:
    return set_brake("gpus", spec, RolloutStatus(phase=phase), brake, person="alice")


def entry(manager: str, fields: str, **changes: str) -> ManagedFields:
    raw = msgspec.Raw(fields.encode())
    return ManagedFields(manager=manager, time=AT, fields_v1=raw, **changes)


def setter(manager: str, spec: RolloutSpec = PAUSED) -> BrakeSetter | None:
    """Return who set the brake that this manager wrote last, after alice had set one."""
    scheduler = entry("sluice-scheduler", '{"f:spec":{"f:brake":{}}}', subresource="status")
    fields = (scheduler, entry("other", "[]"), entry(manager, '{"f:spec":{"f:brake":{}}}'))
    metadata = Metadata(name="gpus", annotations={SETTER: "alice"}, managed_fields=fields)
    return brake_setter(metadata, spec)


def test_only_to_resume_needs_a_confirmation() -> None:
    paused = edit(RolloutSpec(), Brake.PAUSE)
    assert (paused.patch["spec"], paused.risk) == ({"brake": "Pause"}, "")
    frozen = RolloutSpec(brake=Brake.FREEZE)
    assert edit(frozen, Brake.NONE).risk
    assert not edit(frozen, Brake.NONE, RolloutPhase.COMPLETE).risk
    same = edit(frozen, Brake.FREEZE)
    assert same.patch == {}
    assert same.done == "gpus is already frozen: no node moves, and timeouts stop; unchanged"


def test_the_end_of_a_brake_does_not_promise_to_end_a_halt() -> None:
    goes_on = edit(PAUSED, Brake.NONE)
    assert goes_on.done == "gpus goes on: nodes start within the budget"
    assert edit(RolloutSpec(), Brake.NONE).done == (
        "gpus is neither paused nor frozen: nodes start within the budget; unchanged"
    )
    status = RolloutStatus(phase=RolloutPhase.HALTED, version="580.95.05")
    halt = (
        ", but driver 580.95.05 is halted: no node starts on it until"
        " `sluice upgrade release 580.95.05 --pool gpus`"
    )
    for spec, told in ((PAUSED, f"goes on{halt}"), (RolloutSpec(), f"frozen{halt}; unchanged")):
        assert set_brake("gpus", spec, status, Brake.NONE, person="a").done.endswith(told)
    assert "halted" not in set_brake("gpus", PAUSED, status, Brake.FREEZE, person="a").done


def test_a_brake_is_written_with_who_set_it_and_its_end_without() -> None:
    assert edit(RolloutSpec(), Brake.PAUSE).patch["metadata"] == {"annotations": {SETTER: "alice"}}
    assert edit(PAUSED, Brake.NONE).patch["metadata"] == {"annotations": {SETTER: None}}


@pytest.mark.parametrize(
    ("manager", "who"), [("kubectl-sluice", "alice"), ("kubectl-edit", "kubectl-edit")]
)
def test_a_person_is_named_only_while_this_command_wrote_the_brake_last(
    manager: str, who: str
) -> None:
    assert setter(manager) == BrakeSetter(name=who, at=NOON)


def test_without_a_brake_or_a_record_of_it_there_is_nobody_to_name() -> None:
    assert setter("kubectl-sluice", RolloutSpec()) is None
    assert brake_setter(Metadata(name="gpus", annotations={SETTER: "alice"}), PAUSED) is None
