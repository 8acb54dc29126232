"""The history of each Pod: its node, the runs of its driver container, and its end."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from libs.audit.nodes import Series, as_map
from libs.contracts.journal import Revision
from libs.contracts.paths import (
    DRIVER,
    DRIVER_CONTAINER,
    DRIVER_STARTED,
    GRACE,
    POD_NODE,
    READY,
    UID,
    leaves,
)


class PodState(msgspec.Struct, frozen=True, kw_only=True):
    exists: bool = True
    node: str = ""
    label: str = ""
    """The driver label."""
    terminating: bool = False
    started: float | None = None
    """When the driver container started; None while it does not run."""
    ready: bool = False

    def runs(self, started: float, tolerance: float) -> bool:
        """Report whether the container that started then is up and stays."""
        if not self.exists or self.terminating or not self.ready or self.started is None:
            return False
        return abs(self.started - started) <= tolerance


_ABSENT: Final = PodState(exists=False)
_FIELDS: Final = {POD_NODE: "node", DRIVER: "label"}


class PodHistory(Series[PodState]):
    """The states of one Pod from its creation to its end."""

    def __init__(self, name: str) -> None:
        super().__init__(_ABSENT)
        self.name = name
        self.deletion: Revision | None = None
        """The request that removed the object."""

    @property
    def starts(self) -> Iterator[float]:
        """The starts of the driver container that the kubelet reported."""
        return (state.started for _, state in self.items() if state.started is not None)

    def observe(self, position: int, revision: Revision) -> None:
        """Account for a write to the Pod."""
        if is_deletion(revision):
            self.deletion = self.deletion or revision
            self.append(position, _ABSENT)
            return
        after = {path: value for path, (_, value) in revision.changed.items()}
        before = self.latest if self.latest.exists else PodState()
        state = _state_after(before, after)
        if state != self.latest:
            self.append(position, state)


def initial_pod(manifest: Mapping[str, Any], name: str) -> PodHistory:
    """Return the history of a Pod that existed before the journal begins."""
    history, status = PodHistory(name), as_map(manifest.get("status"))
    values = dict(leaves(manifest))
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            values[READY] = condition.get("status")
    for container in status.get("containerStatuses") or ():
        if container.get("name") == DRIVER_CONTAINER:
            running = as_map(as_map(container.get("state")).get("running"))
            values[DRIVER_STARTED] = running.get("startedAt")
    history.append(-1, _state_after(PodState(), values))
    return history


def is_deletion(revision: Revision) -> bool:
    before, after = revision.changed.get(UID, (None, None))
    return before is not None and after is None


def _state_after(before: PodState, changed: Mapping[str, Any]) -> PodState:
    updates: dict[str, Any] = {
        name: changed[path] or "" for path, name in _FIELDS.items() if path in changed
    }
    if GRACE in changed:
        updates["terminating"] = changed[GRACE] is not None
    if READY in changed:
        updates["ready"] = changed[READY] == "True"
    if DRIVER_STARTED in changed:
        updates["started"] = _seconds(changed[DRIVER_STARTED])
    return msgspec.structs.replace(before, **updates) if updates else before


def _seconds(text: Any) -> float | None:
    """Return a time of the API server in Unix seconds; None for any other value."""
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except ValueError:
        return None
