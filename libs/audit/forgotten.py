"""I8: the status of a Rollout forgets no node that failed on a target or vanished there."""

from collections.abc import Iterator

from libs.audit.case import AuditFinding, revision_violation
from libs.audit.object_writes import RolloutWrite
from libs.contracts.node import MANAGER
from libs.contracts.paths import segments


def forgotten_harm(write: RolloutWrite) -> Iterator[AuditFinding]:
    """Check that of a target that the status still has no failed or vanished node disappears."""
    for path, (before, after) in write.revision.changed.items() if write.revision else ():
        parts = segments(path) if path.startswith("status.targets") else ()
        if len(parts) < 4 or parts[2] not in write.targets:
            continue
        if parts[3:] == ("failed",) and after is not None:
            forgotten, what = {str(uid) for uid in before or ()} - set(after), "failed"
        elif parts[3] == "vanished" and parts[5:] == ("node",) and after is None:
            forgotten, what = {str(parts[4])}, "vanished"
        else:
            continue
        if forgotten:
            names = ", ".join(sorted(forgotten))
            yield from rollout_violation(write, f"forgot that {names} {what} on target {parts[2]}")


def rollout_violation(write: RolloutWrite, problem: str) -> Iterator[AuditFinding]:
    if write.revision and write.revision.manager == MANAGER:
        message = f"the Rollout of pool {write.pool} {problem}"
        yield revision_violation("I8", write.revision, message)
