"""What is to be written into the status of one policy, if anything. Pure.

While a GPU Operator is at work, the status of what it follows is its own: we say there only that
we stand back, in a condition of our own.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from libs.policy.kinds import KINDS
from libs.policy.kinds.common import Condition
from libs.policy.kinds.strategy import ROLLOUT_STRATEGY
from libs.policy.status import PolicyStatus, StatusCondition, updated_conditions
from services.driver.cluster.device_plugin import CONDITION as DEVICE_PLUGIN
from services.driver.cluster.resources import PolicyObject

FOREIGN: Final = "ForeignOperator"
_ITS: Final = ("Ready", "Error")
"""Conditions that the GPU Operator writes too."""

StatusChange = dict[str, Any]


def status_change(
    status: PolicyStatus, there: PolicyObject, *, namespace: str, foreign: str, now: str
) -> StatusChange | None:
    """The fields of status to write; None where all is said, or is of another object by now."""
    metadata = there.metadata
    if (status.uid, status.generation) != (metadata.uid, metadata.generation):
        return None
    said = _fields(there.status)
    before = conditions_of(there.status)
    if foreign and status.kind != ROLLOUT_STRATEGY.name:
        return _standing_back(status, said, before, foreign=foreign, now=now)
    wanted: StatusChange = {}
    fields = KINDS[status.kind].status.__struct_fields__
    if "state" in fields:
        wanted["state"] = status.state
    if "namespace" in fields:
        wanted["namespace"] = namespace
    after = updated_conditions(before, status, now=now)
    same = all(said.get(field) == value for field, value in wanted.items())
    if same and after == before:
        return None
    return {**wanted, "conditions": [_written(one) for one in after]}


def conditions_of(status: object) -> tuple[Condition, ...]:
    """Those that a status has; none, if they are not what conditions are."""
    try:
        return msgspec.convert(_fields(status).get("conditions") or [], tuple[Condition, ...])
    except msgspec.ValidationError:
        return ()


def without_times(change: StatusChange) -> StatusChange:
    """What it says, whenever it says it: two that are the same are worth one write."""
    said = [msgspec.structs.replace(one, last_transition_time="") for one in conditions_of(change)]
    return {**change, "conditions": said}


def invalid_reason(kind: str, made: Sequence[Condition]) -> str:
    """Why the object cannot be carried out, as its conditions say; empty: it can."""
    refused = (one for one in made if one.type == "Accepted" and one.status == "False")
    return next((f"{kind} cannot be carried out: {one.message}" for one in refused), "")


def _standing_back(
    status: PolicyStatus, said: StatusChange, before: Sequence[Condition], *, foreign: str, now: str
) -> StatusChange | None:
    ours = {one.type for one in status.conditions} | {DEVICE_PLUGIN, FOREIGN}
    its = [one for one in before if one.type in _ITS or one.type not in ours]
    words = f"Sluice stands back and changes nothing: {foreign}"
    standing_back = StatusCondition(type=FOREIGN, status=True, reason="LeaseHeld", message=words)
    told = msgspec.structs.replace(status, conditions=(standing_back,))
    after = (*its, *updated_conditions(before, told, now=now))
    if after == tuple(before):
        return None
    # An object needs a state; where nobody has said one yet, it is not ready.
    needed = {} if said.get("state") else {"state": "notReady"}
    return {**needed, "conditions": [_written(one) for one in after]}


def _fields(status: object) -> StatusChange:
    return cast("StatusChange", status) if isinstance(status, dict) else {}


def _written(one: Condition) -> StatusChange:
    """A condition must have words, be they empty."""
    return {"message": "", **msgspec.to_builtins(one)}
