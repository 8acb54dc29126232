"""The look at a node that nobody is changing: `rest`. What is in place is passed by in a few steps.

One function for each state that a node can rest in; what they share is in the modules beside.
"""

from libs.contracts.node import Record, UpgradeState
from libs.contracts.waits import WaitCode
from libs.policy.wanted import Method
from libs.rollout.decision import Outcome, Wait
from libs.rollout.rest import failing, idle, proving, removing
from libs.rollout.rest.driver import in_place, proven, running, shut_out, unloaded
from libs.rollout.rest.stamping import required, withdrawn
from libs.rollout.rest.starting import broken, start, validate
from libs.rollout.rest.targets import Goal, goal_of, target_of
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import Garbled, NodeView
from libs.rollout.views.pool import PoolView, Readiness
from libs.rollout.waiting import wait
from libs.rollout.writes import lease_of, readable

# What every node is compared with is looked up once: on its class that costs ten times as much.
_DONE, _FAILED = UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED
_SETTLED = Readiness.SETTLED


def rest(node: NodeView, pool: PoolView, now: Instant) -> Outcome:
    """What is to be done about a node without a lease of ours, or why it has to wait."""
    record = readable(node)
    if (
        record is not None
        and record.state == node.state == _DONE
        and node.pool == pool.key
        and not (node.excluded or node.safe_load or pool.gone)
    ):
        build = pool.build(pool.target, node.variant)
        if (
            build is not None
            and build.readiness is _SETTLED
            and in_place(node, record, build.label, pool.method)
        ):
            return None if leaseholder(node) else idle.settle(node, record, now)
    return _lagging(node, record, pool, now)


def leaseholder(node: NodeView) -> str:
    """Who has the node leased; his are its slots, and its state."""
    if isinstance(node.lease, Garbled):
        return "somebody: the lease cannot be read"
    lease = lease_of(node)
    return "" if lease is None else lease.owner.value


def _lagging(node: NodeView, record: Record | None, pool: PoolView, now: Instant) -> Outcome:
    """What is about every node that is not in place, in whatever state it rests."""
    if holder := leaseholder(node):
        who = "the owner of the lease, or a person"
        return wait(WaitCode.SKIPPED, f"it is leased by {holder}", now, who=who)
    if quieted := idle.settle(node, record, now):
        return quieted
    if removing.nothing_of_ours(node, record, pool):
        return None
    if pool.gone:
        return wait(WaitCode.POLICY_GONE, f"the policy of pool {pool.key} was deleted", now)
    if now.sight.foreign_operator:
        return wait(WaitCode.FOREIGN_OPERATOR, now.sight.foreign_operator, now)
    if removing.unwanted(node, pool):
        return removing.leaving(node, record, pool, now)
    if record is None:
        return newcomer(node, pool, now)
    if record.state == _DONE:
        return done(node, record, pool, now)
    if record.state == _FAILED:
        return failing.failed(node, record, pool, now)
    return wanting(node, record, pool, now)


def newcomer(node: NodeView, pool: PoolView, now: Instant) -> Outcome:
    """Never taken up, or a new Node of an old name (docs/states.md#v-bring-up)."""
    goal = goal_of(node, pool, pool.target, now)
    if isinstance(goal, Goal) and goal.label == node.driver_label:
        run = running(node, pool)
        if run is not None and run.ready:
            return validate(node, pool, goal, now)
    goal = goal_of(node, pool, target_of(node, None, pool), now)
    return goal if isinstance(goal, Wait) else start(node, None, pool, goal, now)


def done(node: NodeView, record: Record, pool: PoolView, now: Instant) -> Outcome:
    """It was done once: its policy wants something else, or its proof is void."""
    goal = goal_of(node, pool, pool.target, now)
    if isinstance(goal, Wait):
        return goal
    evidence = proven(node, record)
    why = ""
    if goal.label != node.driver_label:
        why = f"it runs {record.target or 'another driver'}, and its policy wants {pool.target}"
    elif node.safe_load:
        why = "its driver waits until it may load"
    elif (
        evidence is not None
        and evidence.kernel != node.kernel
        and pool.method is not Method.PRE_INSTALLED
    ):
        why = f"its driver is proven for kernel {evidence.kernel}, and it runs {node.kernel}"
    elif evidence is None and shut_out(node):
        why = "its driver waits behind a shut gate, and nothing is proven that could open it"
    elif evidence is None and pool.method is Method.HOST and unloaded(node):
        why = "no driver is loaded, and nothing is proven that would be loaded again"
    if not why:
        return proving.again(node, record, pool, goal, now)
    if pool.standing.stamps:
        return required(node, record, pool, now, why, cause="")
    return start(node, record, pool, goal, now)


def wanting(node: NodeView, record: Record, pool: PoolView, now: Instant) -> Outcome:
    """`upgrade-required`: it wants a change, and has not begun."""
    goal = goal_of(node, pool, target_of(node, record, pool), now)
    if isinstance(goal, Wait):
        return goal
    if goal.label == node.driver_label and not (record.asked or node.safe_load):
        settled = _right_after_all(node, record, pool, goal, now)
        if settled is not None:
            return settled
    return start(node, record, pool, goal, now)


def _right_after_all(
    node: NodeView, record: Record, pool: PoolView, goal: Goal, now: Instant
) -> Outcome:
    """It was stamped for a target that is not wanted any more; None: an operation is needed."""
    evidence, run = proven(node, record), running(node, pool)
    if evidence is not None and evidence.kernel == node.kernel:
        shown = evidence.token == record.token and not record.unproven
        if shown and in_place(node, record, goal.label, pool.method):
            return withdrawn(node, record, goal.target, now)
        if run is None or not run.ready:
            return proving.absent(node, pool, now)
        return validate(node, pool, goal, now)
    if evidence is not None or broken(record):
        return None
    if run is None or not run.ready or run.instance == record.revalidated:
        return None
    return validate(node, pool, goal, now)
