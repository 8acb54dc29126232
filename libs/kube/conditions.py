"""Conditions of an object's status."""

from typing import Literal

from libs.kube.times import format_time
from libs.kube.views import Condition


def set_condition(
    conditions: tuple[Condition, ...],
    *,
    type: str,
    status: Literal["True", "False", "Unknown"],
    reason: str,
    message: str,
    generation: int,
    now: float,
) -> tuple[Condition, ...]:
    """Return the conditions with this one set; the identical tuple if nothing changed.

    A caller that compares by `is` skips the write. The transition time moves only with the status,
    not with reason or message.
    """
    before = next((condition for condition in conditions if condition.type == type), None)
    since = (
        before.last_transition_time
        if before is not None and before.status == status and before.last_transition_time
        else format_time(now)
    )
    after = Condition(
        type=type,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )
    if before is None:
        return (*conditions, after)
    if before == after:
        return conditions
    return tuple(after if condition is before else condition for condition in conditions)
