"""One node: what is done about it now, or why it waits, or that it could start.

Must not know how many may start: the pool says so by its standing.
"""

from libs.rollout.decision import Candidate, Outcome
from libs.rollout.edits import edits
from libs.rollout.rest import rest
from libs.rollout.underway import begin, underway
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.writes import upgrading


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
