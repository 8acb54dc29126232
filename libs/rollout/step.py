"""One node: what is done about it now, or why it waits, or that it could start.

Must not know how many may start: the pool says so by its standing.
"""

from libs.rollout.at_rest import step_at_rest
from libs.rollout.decision import Candidate, NodeOutcome
from libs.rollout.edits import handle_edits
from libs.rollout.in_flight import begin, step_in_flight
from libs.rollout.node_writes import upgrade_lease
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView


def step(node: NodeView, pool: PoolView, now: Instant) -> NodeOutcome:
    """What people did comes first, then what is under way, then what the policy wants."""
    outcome = handle_edits(node, pool, now)
    if outcome is not None:
        return outcome
    if upgrade_lease(node) is not None:
        return step_in_flight(node, pool, now)
    outcome = step_at_rest(node, pool, now)
    entry = pool.constraints.in_flight.get(node.uid)
    if entry is not None and isinstance(outcome, Candidate):
        return begin(node, outcome, entry, pool, now)
    return outcome
