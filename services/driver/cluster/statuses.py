"""Decides what to write into the status of a policy. Pure.

While a GPU Operator is active, it owns the statuses of the policies that it follows: we write only
a condition of our own, which says that we stand back.
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
_SHARED: Final = ("Ready", "Error")
"""Conditions that the GPU Operator writes too."""

StatusChange = dict[str, Any]


def status_change(
    status: PolicyStatus, policy: PolicyObject, *, namespace: str, foreign: str, now: str
) -> StatusChange | None:
    """Return the status fields to write; None if they are current, or the policy has changed."""
    metadata = policy.metadata
    if (status.uid, status.generation) != (metadata.uid, metadata.generation):
        return None
    live = _fields(policy.status)
    before = conditions_of(policy.status)
    if foreign and status.kind != ROLLOUT_STRATEGY.name:
        return _stand_back(status, live, before, foreign=foreign, now=now)
    wanted: StatusChange = {}
    fields = KINDS[status.kind].status.__struct_fields__
    if "state" in fields:
        wanted["state"] = status.state
    if "namespace" in fields:
        wanted["namespace"] = namespace
    after = updated_conditions(before, status, now=now)
    same = all(live.get(field) == value for field, value in wanted.items())
    if same and after == before:
        return None
    return {**wanted, "conditions": [_encode(condition) for condition in after]}


def conditions_of(status: object) -> tuple[Condition, ...]:
    """Return the conditions of a status; none if they are malformed."""
    try:
        return msgspec.convert(_fields(status).get("conditions") or [], tuple[Condition, ...])
    except msgspec.ValidationError:
        return ()


def without_times(change: StatusChange) -> StatusChange:
    """Remove the times of transitions, so that equal changes compare equal."""
    conditions = [
        msgspec.structs.replace(condition, last_transition_time="")
        for condition in conditions_of(change)
    ]
    return {**change, "conditions": conditions}


def invalid_reason(kind: str, conditions: Sequence[Condition]) -> str:
    """Return why the policy was not accepted; empty if it was."""
    refused = (each for each in conditions if each.type == "Accepted" and each.status == "False")
    return next((f"{kind} cannot be carried out: {each.message}" for each in refused), "")


def _stand_back(
    status: PolicyStatus, live: StatusChange, before: Sequence[Condition], *, foreign: str, now: str
) -> StatusChange | None:
    ours = {condition.type for condition in status.conditions} | {DEVICE_PLUGIN, FOREIGN}
    theirs = [each for each in before if each.type in _SHARED or each.type not in ours]
    message = f"Sluice stands back and changes nothing: {foreign}"
    condition = StatusCondition(type=FOREIGN, status=True, reason="LeaseHeld", message=message)
    held = msgspec.structs.replace(status, conditions=(condition,))
    after = (*theirs, *updated_conditions(before, held, now=now))
    if after == tuple(before):
        return None
    # The schema requires a state.
    state = {} if live.get("state") else {"state": "notReady"}
    return {**state, "conditions": [_encode(each) for each in after]}


def _fields(status: object) -> StatusChange:
    return cast("StatusChange", status) if isinstance(status, dict) else {}


def _encode(condition: Condition) -> StatusChange:
    """Encode a condition with its message, which the schema requires even if it is empty."""
    return {"message": "", **msgspec.to_builtins(condition)}
