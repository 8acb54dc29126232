"""I4: of the taints of a Node we remove only its startup taint, when it is done for the first time.

The list of taints has one owner at the API server, so the write that removes one contains the
others: none of these may change.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from libs.audit.case import STALE_SECONDS, AuditCase, AuditFinding, write_violation
from libs.audit.timeline import NodeChange
from libs.contracts.node import UpgradeState
from libs.contracts.paths import TAINTS, segments

_SPEC: Final = tuple(TAINTS.split("."))


def is_of_taints(path: str) -> bool:
    return path.startswith(TAINTS) and segments(path)[: len(_SPEC)] == _SPEC


def startup_taints(case: AuditCase) -> Iterator[AuditFinding]:
    """Check each write of the scheduler that changes taints."""
    for change in case.writes:
        for key in sorted(_changed_keys(change.revision.changed)):
            if problem := _problem(case, change, key):
                message = f"{change.node.name}: we changed its taint {key}, {problem}"
                yield write_violation("I4", change, message)


def _problem(case: AuditCase, change: NodeChange, key: str) -> str:
    if not _is_removed(change.revision.changed, key):
        return "instead of only removing it"
    if key not in _startup_keys(case, change):
        return "which is not the startup taint of its pool"
    record = change.before.record
    if change.after.state != UpgradeState.UPGRADE_DONE or change.lease_ended is None:
        return "by a write that does not end an upgrade with upgrade-done"
    if record is not None and record.was_done:
        return "although it had been upgrade-done before"
    return ""


def _changed_keys(changed: Mapping[str, tuple[Any, Any]]) -> set[str]:
    return {key for path, values in changed.items() for key in _keys(path, values)}


def _keys(path: str, values: tuple[Any, Any]) -> Iterator[str]:
    """Yield the keys of the taints that this change concerns: one, or those of the whole list."""
    if not is_of_taints(path):
        return
    item = segments(path)[len(_SPEC) :]
    if item and isinstance(item[0], tuple):
        yield dict(item[0])["key"]
        return
    for value in values:
        yield from (taint["key"] for taint in value or ())


def _is_removed(changed: Mapping[str, tuple[Any, Any]], key: str) -> bool:
    return not any(values[1] for path, values in changed.items() if key in _keys(path, values))


def _startup_keys(case: AuditCase, change: NodeChange) -> set[str]:
    """Return the key of the node's pool, and those that it had a short while before."""
    pool = case.availability.node_availability(change.node.uid, change.position - 1).pool
    since = case.timeline.position_before(change.position, STALE_SECONDS)
    limits = case.availability.limits(pool, since=since, until=change.position)
    return {facts.startup_taint for facts in limits} - {""}
