"""The step of one node: what to do about it now, why it waits, or that it could start."""

from libs.rollout.at_rest import step_at_rest
from libs.rollout.decision import Candidate, NodeOutcome
from libs.rollout.edits import handle_edits
from libs.rollout.in_flight import begin, step_in_flight
from libs.rollout.node_writes import upgrade_lease
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView


def step(node: NodeView, pool: PoolView, now: Instant) -> NodeOutcome:
    """Handle edits by people first, then the upgrade in progress, then what the policy wants."""
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
