"""What becomes of a node's own outcome where its pool is held: frozen, without a leader, or turned.

Must not know how the outcome came about.
"""

from libs.contracts.waits import WaitCode
from libs.rollout.decision import Candidate, Outcome, Step, Wait
from libs.rollout.reconcile.reckoning import Reckoning
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.waiting import NOBODY, wait


def shown(node: NodeView, outcome: Outcome, made: Reckoning, now: Instant) -> Outcome:
    """The outcome, as far as the pool lets it be."""
    if outcome is None:
        return None
    standing = made.standing
    if standing.frozen:
        return wait(WaitCode.FROZEN, "the brake of its Rollout is Freeze, or was a moment ago", now)
    if node.uid in made.dropped:
        return returned(made, now)
    if isinstance(outcome, Wait):
        return outcome
    if not standing.leading:
        why = "its Rollout does not say yet that this scheduler leads"
        return wait(WaitCode.STALE, why, now, who=NOBODY)
    if isinstance(outcome, Step):
        return _step(node, outcome, made, now)
    return _candidate(node, outcome, made, now)


def _step(node: NodeView, step: Step, made: Reckoning, now: Instant) -> Outcome:
    """A node whose place is changed does nothing until that is written."""
    if node.uid in made.moved:
        why = "the policy wants another target: its place there is being written into the Rollout"
        return wait(WaitCode.PROOF, why, now, who=NOBODY)
    return step


def _candidate(node: NodeView, candidate: Candidate, made: Reckoning, now: Instant) -> Outcome:
    if node.uid in made.stored.in_flight:
        return returned(made, now)
    if not node.ready:
        return wait(WaitCode.NOT_READY, "the Node is not Ready", now)
    return candidate


def returned(made: Reckoning, now: Instant) -> Wait:
    """A place that it had, or would get, is none now."""
    if made.stop is not None:
        return wait(made.stop.code, made.stop.detail, now, who=made.stop.who)
    return wait(WaitCode.BUDGET, "its place is being taken back in the Rollout", now, who=NOBODY)
