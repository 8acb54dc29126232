"""One node: what is done about it now, or why it waits, or that it could start.

Must not know how many may start: the pool says so by its standing.
"""

from sluice.rollout.decision import Candidate, Outcome
from sluice.rollout.edits import edits
from sluice.rollout.rest import rest
from sluice.rollout.underway import begin, underway
from sluice.rollout.views.fleet import Instant
from sluice.rollout.views.node import NodeView
from sluice.rollout.views.pool import PoolView
from sluice.rollout.writes import upgrading


def step(node: NodeView, pool: PoolView, now: Instant) -> Outcome:
    """What people did comes first, then what is under way, then what the policy wants."""
    outcome = edits(node, pool, now)
    if outcome is not None:
        return outcome
    if upgrading(node) is not None:
        return underway(node, pool, now)
    outcome = rest(node, pool, now)
    entry = pool.standing.in_flight.get(node.uid)
    if entry is not None and isinstance(outcome, Candidate):
        return begin(node, outcome, entry, pool, now)
    return outcome
