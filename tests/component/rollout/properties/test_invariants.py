"""What every decision keeps on random fleets, counted independently from sets of uids.

docs/invariants.md#i1, #i6, #i8 and #i9, as far as a single decision is concerned.
"""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.contracts.node import Operation
from libs.contracts.rollout import IDLE_PHASES, Brake, InFlight, RolloutStatus
from libs.rollout.decide import Decider, decide
from libs.rollout.decision import Candidate, Decision, Step, WriteNode, WriteRollout
from libs.rollout.pool import harm
from libs.rollout.pool.contribution import contribution_of, unavailable_reason
from libs.rollout.pool.evaluation import unavailable_limit
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import EPOCH, step
from tests.unit.rollout.decide.random_fleets import NAMES, POOL, moments, nodes, pools


def random_fleet(seed: int, *, led: bool) -> tuple[Fleet, Instant]:
    """Return a fleet with one pool, which this scheduler leads, or perhaps not."""
    random = Random(seed)
    pool = pools(random, NAMES)
    if led and pool.rollout is not None:
        status = replace(pool.rollout.status, epoch=EPOCH)
        pool = replace(pool, rollout=replace(pool.rollout, status=status))
    names = random.sample(NAMES, random.randint(1, len(NAMES)))
    fleet = Fleet(pools={POOL: pool}, nodes={name: nodes(random, name) for name in names})
    return fleet, moments(random)


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 2**64), st.booleans())
def test_every_decision_keeps_the_invariants(seed: int, led: bool) -> None:
    fleet, now = random_fleet(seed, led=led)
    decision = decide(fleet, now)
    assert decide(fleet, now) == decision, "the same fleet at the same time, another decision"
    check_cordons_keep_the_budget(fleet, now, decision)
    check_nothing_starts_where_starts_are_stopped(fleet, now, decision)
    check_each_node_has_a_step_or_a_wait(fleet, now, decision)
    check_wakes_for_every_wait(now, decision)
    granting = [write for write in decision.rollouts if write.granted]
    if granting:
        check_starts_keep_the_budget(fleet, now, granting[0])
        check_starts_keep_the_bound_of_harm(fleet, granting[0])
        check_starts_keep_the_parallel_limit(fleet, now, granting[0])


def check_starts_keep_the_budget(fleet: Fleet, now: Instant, write: WriteRollout) -> None:
    view = constrained_view(fleet, now)
    granted = {fleet.nodes[name].uid for name in write.granted}
    lowered = {
        fleet.nodes[name].uid
        for name in write.granted
        if becomes_unavailable(fleet.nodes[name], view, now)
    }
    if not lowered:
        return
    kept = {uid: entry for uid, entry in write.status.in_flight.items() if uid not in granted}
    promised = promised_uids(fleet, replace(write.status, in_flight=kept), now)
    after = unavailable_uids(fleet) | promised | lowered
    assert len(after) <= limit(fleet, write.status.base)
    assert all(fleet.nodes[name].ready for name in write.granted)


def check_cordons_keep_the_budget(fleet: Fleet, now: Instant, decision: Decision) -> None:
    """Check all cordons of a decision together, on the state that it saw."""
    unavailable = unavailable_uids(fleet)
    lowered = {
        action.uid
        for step in decision.steps.values()
        for action in step.actions
        if isinstance(action, WriteNode) and action.lowers_capacity
    }
    if lowered - unavailable:
        rollout = fleet.pools[POOL].rollout
        assert rollout is not None
        base = 0 if rollout.status.phase in IDLE_PHASES else rollout.status.base
        assert len(unavailable | lowered) <= limit(fleet, base)
        assert all(now.at - source.proved <= 90 for source in now.visibility.sources.values())


def check_starts_keep_the_bound_of_harm(fleet: Fleet, write: WriteRollout) -> None:
    for entry in granted_entries(write, fleet).values():
        if not entry.target or entry.outside:
            continue
        record = write.status.targets[entry.target]
        assert not harm.is_halted(record)
        if not record.proven:
            in_flight = in_flight_uids(fleet, write.status, entry.target)
            assert len(in_flight.union(record.failed)) <= harm.allowance(record)


def check_starts_keep_the_parallel_limit(fleet: Fleet, now: Instant, write: WriteRollout) -> None:
    most = fleet.pools[POOL].upgrade.max_parallel_upgrades
    if not most:
        return
    granted = granted_entries(write, fleet)
    counted = [entry for entry in write.status.in_flight.values() if not entry.outside]
    if any(not entry.outside for entry in granted.values()):
        assert len(counted) <= most
    outside = [uid for uid, entry in granted.items() if entry.outside]
    assert len([uid for uid in outside if not is_validation(fleet, uid, now)]) <= 1


def keeps_running_driver(node: NodeView) -> bool:
    """Whether a start takes no driver away that was validated and that nobody has deleted."""
    record = node.current_record
    evidence = None if record is None else record.evidence
    running = {pod.uid for pod in node.driver_pods if not pod.deleting}
    return node.loaded is None or (evidence is not None and evidence.driver_pod_uid not in running)


def check_nothing_starts_where_starts_are_stopped(
    fleet: Fleet, now: Instant, decision: Decision
) -> None:
    pool = fleet.pools[POOL]
    rollout = pool.rollout
    stopped = (
        rollout is None
        or rollout.status.epoch != EPOCH
        or rollout.write_pending
        or rollout.spec.brake is not Brake.NONE
        or rollout.status.frozen_since is not None
        or pool.gone
        or pool.errors
        or now.visibility.foreign_operator
    )
    granted = [name for write in decision.rollouts for name in write.granted]
    if stopped:
        assert not granted
    if not pool.upgrade.auto_upgrade:
        entries = {
            entry.node: entry
            for write in decision.rollouts
            for entry in write.status.in_flight.values()
        }
        for name in granted:
            assert entries[name].validates or keeps_running_driver(fleet.nodes[name])
    if rollout is None or rollout.status.epoch != EPOCH:
        assert decision.steps == {}


def check_each_node_has_a_step_or_a_wait(fleet: Fleet, now: Instant, decision: Decision) -> None:
    assert not decision.steps.keys() & decision.waits.keys()
    view = constrained_view(fleet, now)
    for name, node in fleet.nodes.items():
        accounted = name in decision.steps or name in decision.waits
        if node.write_pending:
            assert not accounted
        elif node.pool == POOL:
            outcome = step(node, view, now)
            idle = isinstance(outcome, Step) and not outcome.actions and outcome.wait is None
            assert accounted is (outcome is not None and not idle), name
    for wait in decision.waits.values():
        assert wait.detail
        assert wait.since <= now.at
        assert wait.until is None or wait.until >= wait.since


def check_wakes_for_every_wait(now: Instant, decision: Decision) -> None:
    """`wake_at` is ahead, and not after any moment that a wait names."""
    named = [wait.until for wait in decision.waits.values() if wait.until is not None]
    ahead = [until for until in named if until > now.at]
    if decision.wake_at is not None:
        assert decision.wake_at > now.at
    if ahead:
        assert decision.wake_at is not None
        assert decision.wake_at <= min(ahead)


def constrained_view(fleet: Fleet, now: Instant) -> PoolView:
    """Return the pool as steps see it in a decision."""
    decider = Decider(fleet)
    decider.decide(now)
    return decider._deciders[POOL].constrained_view  # pyright: ignore[reportPrivateUsage]


def unavailable_uids(fleet: Fleet) -> set[str]:
    """Return the unavailable nodes that count for the pool's budget."""
    return {
        node.uid
        for node in fleet.nodes.values()
        if node.pool == POOL or has_lease_of_pool(node)
        if unavailable_reason(node, node.current_record)
    }


def has_lease_of_pool(node: NodeView) -> bool:
    record = node.current_record
    return node.upgrade_lease is not None and record is not None and record.pool == POOL


def limit(fleet: Fleet, base: int) -> int:
    present = sum(node.pool == POOL for node in fleet.nodes.values())
    upgrade, counted = fleet.pools[POOL].upgrade, len(fleet.nodes)
    return unavailable_limit(upgrade, base=base, present=present, counted=counted)


def granted_entries(write: WriteRollout, fleet: Fleet) -> dict[str, InFlight]:
    uids = {fleet.nodes[name].uid for name in write.granted}
    return {uid: entry for uid, entry in write.status.in_flight.items() if uid in uids}


def becomes_unavailable(node: NodeView, pool: PoolView, now: Instant) -> bool:
    """Whether the start of an available node makes it unavailable."""
    outcome = step(node, pool, now)
    assert isinstance(outcome, Candidate)
    if unavailable_reason(node, node.current_record):
        return False
    return outcome.operation not in {Operation.BRING_UP, Operation.VALIDATE}


def promised_uids(fleet: Fleet, status: RolloutStatus, now: Instant) -> set[str]:
    """Return the nodes that are granted, have not begun, and will be unavailable when they do."""
    uids = set[str]()
    for node in fleet.nodes.values():
        borne = contribution_of(node, status.in_flight.get(node.uid), POOL, now.at)
        if borne.entry is not None and not (borne.leased or borne.is_unoccupied):
            uids.add(node.uid)
    return uids


def in_flight_uids(fleet: Fleet, status: RolloutStatus, target: str) -> set[str]:
    """Return the nodes in flight to a target, by the Rollout or by a lease."""
    uids = {
        uid
        for uid, entry in status.in_flight.items()
        if entry.target == target and not entry.outside
    }
    for node in fleet.nodes.values():
        record = node.current_record
        if record is None or not has_lease_of_pool(node):
            continue
        if record.target == target and not record.outside:
            uids.add(node.uid)
    return uids


def is_validation(fleet: Fleet, uid: str, now: Instant) -> bool:
    node = next(node for node in fleet.nodes.values() if node.uid == uid)
    outcome = step(node, constrained_view(fleet, now), now)
    return isinstance(outcome, Candidate) and outcome.operation is Operation.VALIDATE
