"""Conditions of an object's status. Pure: nothing is written here."""

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
    """With this condition as it is now; the very same tuple where it was so already.

    Whoever compares by `is` thus writes nothing when nothing changed. The time is that of the last
    change of the status: a new reason or message does not move it.
    """
    before = next((known for known in conditions if known.type == type), None)
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
    return tuple(after if known is before else known for known in conditions)
