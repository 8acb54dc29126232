"""The journal that is audited: records of each source, and facts that no source records.

Simulations, the demo, and the API server's audit log of a real cluster produce it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from libs.contracts.events import Event
from libs.contracts.journal import Entry, Revision


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a pool from a time on, where the journal has no policy object for it.

    Entries with the same key replace each other in order of `since`. Policy objects are ignored for
    that key.
    """

    key: str
    since: float = 0.0
    members: frozenset[str] | None = None
    """Node UIDs; None means the nodes whose records name the pool at that time."""
    max_unavailable: int | str = "25%"
    failure_threshold: int | str = "5%"
    base: int | None = None
    """None means the base in the Rollout's status, else the number of existing nodes."""
    accepted: Mapping[str, int] = {}
    """Accepted failures by target, where the journal has no Rollout that records them."""
    driverless: frozenset[str] = frozenset()
    """UIDs of nodes without a loaded driver, which no revision shows. Those that should have one
    count as unavailable."""
    doubtful: frozenset[str] = frozenset()
    """UIDs of nodes whose driver state changed so recently that the scheduler may or may not have
    known it when it decided. Checks of the budget do not count them."""


class DeviceHold(msgspec.Struct, frozen=True, kw_only=True):
    """A process held a GPU's device file open. Only simulated machines record all of these."""

    node_uid: str
    since: float
    until: float | None = None
    """None means that the file is still open."""
    holder: str = ""


class LostJournal(msgspec.Struct, frozen=True, kw_only=True):
    """An agent lost its journal, so it may run the command in its slot once more."""

    node_uid: str
    component: str
    time: float


class AuditJournal(msgspec.Struct, frozen=True, kw_only=True):
    """All records by source; None means that the source was not recorded."""

    revisions: tuple[Revision, ...] | None = None
    """In the order of the API server. Nodes, Pods, Rollouts, policies and strategies are replayed;
    creations of Kubernetes Events are counted."""
    entries: tuple[Entry, ...] | None = None
    """Entries of all agents; those of one component on one node are in the order written."""
    events: tuple[Event, ...] | None = None
    start: tuple[Mapping[str, Any], ...] = ()
    """Complete objects, with their kind, as they were before the first revision."""
    pools: tuple[PoolFacts, ...] = ()
    device_holds: tuple[DeviceHold, ...] = ()
    lost_journals: tuple[LostJournal, ...] = ()
