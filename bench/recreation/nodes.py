"""The incumbent's view of a fleet, and the number of nodes that may be upgraded at once. Pure.

A snapshot holds the nodes by state, as they are when a pass begins; the budget follows from it.
This module is independent of durations.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from libs.contracts.node import UpgradeState as State

MANAGED = frozenset(State) - {State.NODE_MAINTENANCE_REQUIRED, State.POST_MAINTENANCE_REQUIRED}
RESTING = frozenset({State.UNKNOWN, State.UPGRADE_DONE, State.UPGRADE_REQUIRED})
MOST_RESTARTS = 10


class PassAborted(Exception):
    """Ends the pass for every node."""


@dataclass(slots=True, kw_only=True, eq=False)
class IncumbentDriverPod:
    synced: bool = False
    """Whether the pod is of the newest revision of its DaemonSet."""
    orphan: bool = False
    same_install: bool = False
    """Whether the install digest is that of the newest revision."""
    terminating: bool = False
    ready: bool = True
    restarts: int = 0
    """Restarts of the container that is not ready."""

    @property
    def in_sync(self) -> bool:
        """Whether the new driver runs and is ready."""
        return self.synced and not self.orphan and self.ready

    @property
    def failing(self) -> bool:
        """Whether the pod was restarted too often."""
        return not self.ready and self.restarts > MOST_RESTARTS


@dataclass(slots=True, kw_only=True, eq=False)
class IncumbentNode:
    """A node, its driver pod and its validators."""

    name: str
    state: str = State.UNKNOWN
    pod: IncumbentDriverPod | None = field(default_factory=IncumbentDriverPod)
    validators: list[bool] = field(default_factory=list[bool])
    """The readiness of each validator pod."""
    cordoned: bool = False
    ready: bool = True
    gone: bool = False
    """Whether the Node is deleted while its driver pod still exists."""
    skipped: bool = False

    initially_cordoned: bool = False
    """This and the next fields are annotations; times are whole seconds."""
    requested: bool = False
    safe_load: bool = False
    jobs_since: int | None = None
    validating_since: int | None = None


Annotation = Literal[
    "initially_cordoned", "requested", "safe_load", "jobs_since", "validating_since"
]
"""The annotations by attribute."""

Groups = Mapping[str, Sequence[IncumbentNode]]


def check_complete(nodes: Sequence[IncumbentNode]) -> None:
    """Raise `PassAborted` unless every node has a pod and every pod a node."""
    for node in nodes:
        if node.pod is None:
            raise PassAborted("driver DaemonSet should not have Unscheduled pods")
        if node.gone:
            raise PassAborted(f"unable to get node {node.name}")


def group_by_state(nodes: Iterable[IncumbentNode]) -> Groups:
    """Return the nodes by state, in the order of the list."""
    groups: dict[str, list[IncumbentNode]] = {}
    for node in nodes:
        groups.setdefault(node.state, []).append(node)
    return groups


class IncumbentBudget(NamedTuple):
    managed: int
    in_progress: int
    unavailable: int
    limit: int
    slots: int


def scaled(value: int | str, whole: int) -> int:
    """Return a number, or a percentage rounded up; other texts are errors."""
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise PassAborted(f"maxUnavailable: {value!r} is neither a number nor a percentage")
    return -(-whole * int(value[:-1]) // 100)


def budget(
    groups: Groups, *, max_parallel: int, max_unavailable: int | str | None
) -> IncumbentBudget:
    """Return how many nodes may start; negative when more are in flight than allowed."""
    counts = {state: len(nodes) for state, nodes in groups.items()}
    managed = sum(count for state, count in counts.items() if state in MANAGED)
    in_progress = managed - sum(counts.get(state, 0) for state in RESTING)
    limit = managed if max_unavailable is None else scaled(max_unavailable, managed)
    required = counts.get(State.UPGRADE_REQUIRED, 0)
    slots = required if max_parallel == 0 else max_parallel - in_progress
    unavailable = counts.get(State.CORDON_REQUIRED, 0) + sum(
        node.cordoned or not node.ready for nodes in groups.values() for node in nodes
    )
    slots = min(slots, limit)
    if unavailable >= limit:
        slots = 0
    elif limit < managed and unavailable + slots > limit:
        slots = limit - unavailable
    return IncumbentBudget(managed, in_progress, unavailable, limit, slots)
