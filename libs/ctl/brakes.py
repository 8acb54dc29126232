"""The brake of a pool: how it is set, and which user or program has set it. Pure."""

from typing import Any, Final

import msgspec

from libs.contracts.rollout import Brake, RolloutPhase, RolloutSpec, RolloutStatus
from libs.ctl.edits import Edit
from libs.kube.ownership import owned_fields
from libs.kube.views import ManagedFields, Metadata, parse_time

MANAGER: Final = "kubectl-sluice"
"""The field manager of people's writes. Those of our services begin with `sluice-`."""
SETTER: Final = "sluice.dev/brake-set-by"
"""The annotation with the user who set the brake by this command."""
_SET: Final = {
    Brake.NONE: ("goes on", "is neither paused nor frozen"),
    Brake.PAUSE: ("is paused", "is already paused"),
    Brake.FREEZE: ("is frozen", "is already frozen"),
}
"""What is said of a pool whose brake is set, and of one that had it before."""
_MEANS: Final = {
    Brake.NONE: ": nodes start within the budget",
    Brake.PAUSE: ": no node starts, nodes in flight finish",
    Brake.FREEZE: ": no node moves, and timeouts stop",
}


class BrakeSetter(msgspec.Struct, frozen=True, kw_only=True):
    """The user or program that set a brake, and the time."""

    name: str
    """Of the user, or of the program if the user is not known."""
    at: float | None = None
    """Unix seconds."""


def set_brake(
    pool: str, spec: RolloutSpec, status: RolloutStatus, brake: Brake, *, person: str
) -> Edit:
    """Set the brake of a pool; to resume can drain nodes."""
    now, already = _SET[brake]
    means = _halted(pool, status) if brake is Brake.NONE else ""
    means = means or _MEANS[brake]
    if spec.brake is brake:
        return Edit(done=f"{pool} {already}{means}; unchanged")
    risk = ""
    if brake is Brake.NONE and status.phase is not RolloutPhase.COMPLETE:
        risk = f"nodes of {pool} that are not done are drained and upgraded, within the budget"
    setter = None if brake is Brake.NONE else person
    patch: dict[str, Any] = {
        "metadata": {"annotations": {SETTER: setter}},
        "spec": {"brake": brake.value},
    }
    return Edit(done=f"{pool} {now}{means}", patch=patch, risk=risk)


def _halted(pool: str, status: RolloutStatus) -> str:
    """Return that the end of a brake does not end a halt, if there is one."""
    if status.phase is not RolloutPhase.HALTED:
        return ""
    driver, release = status.version, f"sluice upgrade release {status.version} --pool {pool}"
    return f", but driver {driver} is halted: no node starts on it until `{release}`"


def brake_setter(metadata: Metadata, spec: RolloutSpec) -> BrakeSetter | None:
    """Return the setter, as far as the API server's records show it; None: there is no brake.

    The annotation counts only while this command wrote the brake last.
    """
    if spec.brake is Brake.NONE:
        return None
    owner = next(filter(_owns_brake, metadata.managed_fields), None)
    if owner is None:
        return None
    person = metadata.annotations.get(SETTER, "") if owner.manager == MANAGER else ""
    at = parse_time(owner.time) if owner.time else None
    return BrakeSetter(name=person or owner.manager, at=at)


def _owns_brake(entry: ManagedFields) -> bool:
    try:
        return not entry.subresource and "f:brake" in owned_fields(entry).spec
    except ValueError:
        return False
