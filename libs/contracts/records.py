"""The journal that is audited: what each source recorded, and what no source can show.

Written by the simulations, the demo and, on a cluster, from the API server's audit log. What the
journal must contain for which invariant is said at the field that brings it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from libs.contracts.events import Event
from libs.contracts.journal import Entry, Revision


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a pool from a moment on, where no policy object in the journal says it.

    Several of one key follow each other by `since`; for that key policy objects are not asked.
    """

    key: str
    since: float = 0.0
    members: frozenset[str] | None = None
    """Node uids; None: the nodes whose records name the pool, at whatever time they do."""
    max_unavailable: int | str = "25%"
    failure_threshold: int | str = "5%"
    base: int | None = None
    """None: as the status of its Rollout says, else the nodes that are there."""
    accepted: Mapping[str, int] = {}
    """Failures that people accept by target, where there is no Rollout in the journal to say it."""
    driverless: frozenset[str] = frozenset()
    """Node uids on which no driver is loaded, as no revision shows: those that should have one are
    unavailable."""
    doubtful: frozenset[str] = frozenset()
    """Node uids of which nobody can say whether whoever decided knew already that they have no
    driver, or have one again: they cost nobody anything, and nothing by themselves."""


class DeviceHold(msgspec.Struct, frozen=True, kw_only=True):
    """A process had a GPU's device file open; only a simulated machine knows all of them."""

    node_uid: str
    since: float
    until: float | None = None
    """None: still."""
    holder: str = ""


class LostJournal(msgspec.Struct, frozen=True, kw_only=True):
    """An agent lost its journal: what its slot still says it may do once more."""

    node_uid: str
    component: str
    time: float


class AuditJournal(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, by source; of a source that is None nothing is known."""

    revisions: tuple[Revision, ...] | None = None
    """In the order of the API server. Nodes, Pods, Rollouts, policies and strategies are replayed;
    of Kubernetes Events the creations are counted."""
    entries: tuple[Entry, ...] | None = None
    """Of all agents, those of one component of one node in the order in which it wrote them."""
    events: tuple[Event, ...] | None = None
    start: tuple[Mapping[str, Any], ...] = ()
    """Whole objects, with their kind, as they were before the first revision."""
    pools: tuple[PoolFacts, ...] = ()
    device_holds: tuple[DeviceHold, ...] = ()
    lost_journals: tuple[LostJournal, ...] = ()
