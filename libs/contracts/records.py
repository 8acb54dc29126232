"""The input of an audit: the records of each source, and facts that no source records.

Simulations and the demo write these records directly; on a cluster they come from the audit log of
the API server.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from libs.contracts.events import Event
from libs.contracts.journal import Entry, Revision
from libs.contracts.numbers import Count


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a pool since a time, for journals that do not show them.

    Later facts of the same key replace earlier ones. For these keys, no limit is read from policy
    objects.
    """

    key: str
    since: float = 0.0
    members: frozenset[str] | None = None
    """Node uids; None: the nodes that its policy selects, or in a journal without policy objects
    every node whose record names the pool at any time."""
    max_unavailable: Count | str = "25%"
    failure_threshold: Count | str = "5%"
    startup_taint: str = ""
    """The key of the taint that the first `upgrade-done` of a node removes; empty: there is none.
    """
    base: Count | None = None
    """None: the base in the status of the Rollout, or else the present number of nodes."""
    accepted: Mapping[str, Count] = {}
    """Accepted failures by target, for journals without Rollouts."""
    driverless: frozenset[str] = frozenset()
    """Node uids without a loaded driver, which no revision shows: those that should have one are
    unavailable."""
    doubtful: frozenset[str] = frozenset()
    """Node uids whose driver was just loaded or unloaded, so that a decision may not have seen it
    yet. They neither count as unavailable nor as capacity that a write takes away."""


class DeviceHold(msgspec.Struct, frozen=True, kw_only=True):
    """An open device file of a GPU; only simulated machines record all of them."""

    node_uid: str
    since: float
    until: float | None = None
    """None while the file is open."""
    holder: str = ""


class LostJournal(msgspec.Struct, frozen=True, kw_only=True):
    """The loss of an agent's journal; afterwards the agent may repeat the op in its slot."""

    node_uid: str
    component: str
    time: float


class AuditJournal(msgspec.Struct, frozen=True, kw_only=True):
    """The records by source; None where a source is missing."""

    revisions: tuple[Revision, ...] | None = None
    """In the order of the API server. Nodes, Pods, Rollouts, policies and strategies are replayed;
    created Kubernetes Events are counted."""
    entries: tuple[Entry, ...] | None = None
    """Of all agents; those of one component on one node in the order in which it wrote them."""
    events: tuple[Event, ...] | None = None
    journals_since: Mapping[tuple[str, str], float] | None = None
    """By node uid and component: from when on a journal has every entry. One that is not listed
    may lack any. None: each has all."""
    revisions_until: float | None = None
    """Until when the revisions show every write; None: up to the end of the run."""
    clocks_ahead: Mapping[str, float] = {}
    """By node uid: seconds by which the clock of the machine is ahead, where it is wrong."""
    start: tuple[Mapping[str, Any], ...] = ()
    """Whole objects, with their kinds, before the first revision."""
    pools: tuple[PoolFacts, ...] = ()
    device_holds: tuple[DeviceHold, ...] = ()
    lost_journals: tuple[LostJournal, ...] = ()
