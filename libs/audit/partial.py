"""Judging a journal that begins while a cluster runs: which violations its revisions can show.

What a node was before the journal begins is known only in part: its lease, its driver and the
grant may all be older. A node is judged from the first operation on that begins within the journal.
"""

from collections.abc import Sequence

from libs.audit.case import Violation
from libs.contracts.journal import Revision
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import MANAGER, NodeRecord
from libs.contracts.paths import LEASE, RECORD


class Coverage:
    """From when on each node is judged."""

    def __init__(self, revisions: Sequence[Revision]) -> None:
        self._start = revisions[0].time if revisions else 0.0
        self._revisions = {each.revision: each for each in revisions if each.revision}
        self._begun: dict[str, Revision] = {}
        for each in revisions:
            if each.kind == "Node" and each.manager == MANAGER:
                before, after = each.changed.get(LEASE, (None, None))
                if after and not before:
                    self._begun.setdefault(each.name, each)
        self.nodes = {each.name for each in revisions if each.kind == "Node"}

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The nodes on which no operation began within the journal."""
        return tuple(sorted(self.nodes - self._begun.keys()))

    def shows(self, violation: Violation) -> bool:
        """Whether the journal shows all that a violation rests on."""
        if not violation.node:
            return True
        begun = self._begun.get(violation.node)
        if begun is None or _is_before(violation, begun):
            return False
        return not (violation.invariant == "I3" and self._has_older_driver(violation))

    def _has_older_driver(self, violation: Violation) -> bool:
        """Whether the proof is of a driver that started before the journal."""
        revision = self._revisions.get(violation.revision)
        text = revision.changed.get(RECORD, (None, ""))[1] if revision is not None else ""
        try:
            record = decode(NodeRecord, str(text).encode()) if text else None
        except MalformedMessage:
            return False
        evidence = record.evidence if record is not None else None
        return evidence is not None and evidence.driver_started < self._start


def _is_before(violation: Violation, begun: Revision) -> bool:
    """Whether a violation is older than a write: by their revisions, which no clock changes."""
    if violation.revision and begun.revision:
        return violation.revision < begun.revision
    return violation.time < begun.time
