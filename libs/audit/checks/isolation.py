"""I7: sick nodes delay healthy ones only by the share of the budget that they occupy.

Compares two runs of one seed instead of checking one journal. The second run has no sick nodes, and
its budget is smaller by their number.
"""

from collections.abc import Collection, Iterator

from libs.audit.findings import Violation
from libs.audit.replay.timeline import Timeline
from libs.contracts.node import UpgradeState
from libs.contracts.records import AuditJournal


def isolation(
    with_sick: AuditJournal,
    without_sick: AuditJournal,
    *,
    sick: Collection[str],
    tolerance: float = 0.0,
) -> tuple[Violation, ...]:
    """Return the healthy nodes that sick nodes delayed by more than `tolerance` seconds.

    `sick` holds the names of the sick nodes.
    """
    return tuple(_delays(done_times(with_sick), done_times(without_sick), sick, tolerance))


def done_times(journal: AuditJournal) -> dict[str, float]:
    """Return by node name the time at which each node was last upgraded."""
    timeline = Timeline(journal.revisions or (), journal.start)
    return {
        change.node.name: change.revision.time
        for change in timeline.changes
        if change.ours and change.new_state == UpgradeState.UPGRADE_DONE
    }


def _delays(
    with_sick: dict[str, float],
    without_sick: dict[str, float],
    sick: Collection[str],
    tolerance: float,
) -> Iterator[Violation]:
    for node, expected in sorted(without_sick.items()):
        if node in sick:
            continue
        actual = with_sick.get(node)
        if actual is None:
            message = f"{node} is healthy, but did not finish in the run with sick nodes"
            yield Violation(invariant="I7", node=node, time=expected, message=message)
        elif actual > expected + tolerance:
            late = actual - expected
            message = (
                f"{node} is healthy, but finished {late:.0f} s later in the run with sick nodes"
            )
            yield Violation(invariant="I7", node=node, time=actual, message=message)
