"""I7: a sick node delays nobody, but for the places of the budget that it occupies.

Two runs of one seed are compared, so this is no check of one journal. The second one has no sick
nodes, and a budget without the places that they hold in the first.
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
    """Healthy nodes that were done later beside sick ones, or never; `sick` are their names."""
    return tuple(_compared(done_times(with_sick), done_times(without_sick), sick, tolerance))


def done_times(journal: AuditJournal) -> dict[str, float]:
    """When each node was done last, by name."""
    timeline = Timeline(journal.revisions or (), journal.start)
    return {
        change.node.name: change.revision.time
        for change in timeline.changes
        if change.ours and change.new_state == UpgradeState.UPGRADE_DONE
    }


def _compared(
    beside: dict[str, float], alone: dict[str, float], sick: Collection[str], tolerance: float
) -> Iterator[Violation]:
    for node, when in sorted(alone.items()):
        if node in sick:
            continue
        then = beside.get(node)
        if then is None:
            message = f"{node} is healthy, and beside sick nodes it was never done"
            yield Violation(invariant="I7", node=node, time=when, message=message)
        elif then > when + tolerance:
            message = (
                f"{node} is healthy, and beside sick nodes it was done {then - when:.0f} s later"
            )
            yield Violation(invariant="I7", node=node, time=then, message=message)
