"""How long the states of an operation lasted, in a node's record: forecasts rest on that."""

from collections.abc import Mapping
from typing import Final

from libs.contracts.node import NodeRecord, Operation, UpgradeState
from libs.rollout.views.fleet import Instant

BRING_UP: Final = "bring-up "
"""What precedes a state of the bring-up: it has no driver to unload, and pulls the image."""
PULL: Final = f"{BRING_UP}pull"
"""Of the seconds of the driver's restart, those in which its image was pulled."""
_PREFIXES: Final[Mapping[Operation | None, str]] = {
    Operation.UPGRADE: "",
    Operation.BRING_UP: BRING_UP,
}
"""The operations that are measured."""
_NOT_PASSED: Final = frozenset({UpgradeState.UPGRADE_REQUIRED, UpgradeState.UPGRADE_FAILED})


def time_taken(
    previous: NodeRecord, record: NodeRecord, now: Instant, *, pulled: float | None
) -> dict[str, float]:
    """Return the seconds by state, with a state that is passed by the write of this record.

    `pulled` are those until the driver pod had its image. All outlive the operation: the next
    upgrade is forecast from them.
    """
    passes = previous.state not in ("", record.state) and record.state not in _NOT_PASSED
    prefix = _PREFIXES.get(previous.operation)
    if prefix is None or not passes:
        return previous.took
    frozen = max(0.0, record.frozen_seconds - previous.frozen_seconds)
    seconds = round(max(0.0, now.at - previous.since - frozen), 1)
    took = {**previous.took, f"{prefix}{previous.state}": seconds}
    if prefix == BRING_UP and previous.state == UpgradeState.POD_RESTART_REQUIRED and pulled:
        took[PULL] = min(pulled, seconds)
    return took
