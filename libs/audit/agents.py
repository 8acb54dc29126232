"""The journals of a live cluster's agents, judged node by node, so that no more than one is held.

Some are missing, cut or still being written. What that leaves unjudged is returned with the
violations.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from libs.audit import AuditJournal, AuditResult, judge_agents, judge_agents_by_writes
from libs.audit.case import JOURNAL, Violation
from libs.audit.partial import Coverage
from libs.contracts.events import Event
from libs.contracts.identities import COMPONENTS
from libs.contracts.journal import Entry, Revision


class AgentJournal(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the journal of one component of a node."""

    node_uid: str
    component: str
    entries: Sequence[Entry]
    complete_since: float | None = None


class AgentAudit:
    """Judges the journals of one node after another, beside what the other sources show of it."""

    def __init__(
        self,
        revisions: Sequence[Revision] | None,
        events: Iterable[Event] | None,
        coverage: Coverage,
        clocks_ahead: Mapping[str, float],
    ) -> None:
        self._has_revisions, self._has_events = revisions is not None, events is not None
        self._until = revisions[-1].time if revisions else None
        self._coverage = coverage
        self._clocks_ahead = clocks_ahead
        self._revisions = _by_node(revisions or ())
        self._events: dict[str, list[Event]] = defaultdict(list)
        for event in events or ():
            if event.writer in COMPONENTS:
                self._events[event.node].append(event)
        self.violations = set[Violation]()
        self.missing: dict[str, set[str]] = defaultdict(set)
        """By invariant, the journals without which a part was not judged."""

    @property
    def nodes(self) -> list[str]:
        """The nodes that the other sources name, whose journals are to be read."""
        return sorted(self._revisions.keys() | self._events.keys())

    def judge(self, node: str, journals: Sequence[AgentJournal]) -> None:
        """Judge the journals of one node."""
        journal = AuditJournal(
            entries=tuple(entry for each in journals for entry in each.entries),
            journals_since={
                (uid, each.component): each.complete_since
                for each in journals
                if each.complete_since is not None
                for uid in {each.node_uid, *(entry.node_uid for entry in each.entries)}
            },
            events=tuple(self._events.get(node, ())) if self._has_events else None,
            clocks_ahead=self._clocks_ahead,
        )
        self._add(judge_agents(journal))
        if self._has_revisions:
            revisions = tuple(self._revisions.get(node, ()))
            journal = msgspec.structs.replace(
                journal, revisions=revisions, revisions_until=self._until
            )
            self._add(judge_agents_by_writes(journal), self._coverage)

    def _add(self, result: AuditResult, coverage: Coverage | None = None) -> None:
        self.violations.update(
            each for each in result.violations if coverage is None or coverage.shows(each)
        )
        for invariant, sources in result.not_judged.items():
            journals = {each for each in sources.split(", ") if each.startswith(JOURNAL)}
            if journals:
                self.missing[invariant] |= journals


def _by_node(revisions: Sequence[Revision]) -> dict[str, list[Revision]]:
    """Return the writes to each Node. What its Pods show is judged without the journals."""
    found: dict[str, list[Revision]] = defaultdict(list)
    for each in revisions:
        if each.kind == "Node":
            found[each.name].append(each)
    return found
