"""What every decision keeps, over fleets that chance makes: counted here anew, from sets of uids.

docs/invariants.md#i1, #i6, #i8 and #i9, as far as one decision is concerned.
"""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.contracts.node import Operation
from libs.contracts.rollout import Brake, InFlight, RolloutStatus
from libs.rollout import budget, harm
from libs.rollout.decide import decide
from libs.rollout.decision import Candidate, Decision, Step, WriteNode, WriteRollout
from libs.rollout.node_writes import current_record, upgrade_lease
from libs.rollout.reconcile.contribution import contribution_of
from libs.rollout.step import step
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import EPOCH, NOW, instant
from tests.unit.rollout.decide.random_fleets import NAMES, POOL, moments, nodes, pools

EXAMPLES = 600


def random(seed: int, *, led: bool = True) -> tuple[Fleet, Instant]:
    """A fleet with one pool, which we lead."""
    r = Random(seed)
    pool = pools(r, NAMES)
    if led and pool.rollout is not None:
        status = replace(pool.rollout.status, epoch=EPOCH)
        pool = replace(pool, rollout=replace(pool.rollout, status=status))
    some = r.sample(NAMES, r.randint(1, len(NAMES)))
    made = Fleet(pools={POOL: pool}, nodes={name: nodes(r, name) for name in some})
    return made, moments(r)


def nodes_in_pool(fleet: Fleet) -> list[NodeView]:
    """Nodes that count for the pool's budget."""
    return [
        node
        for node in fleet.nodes.values()
        if node.pool == POOL or (upgrade_lease(node) is not None and _begun_here(node))
    ]


def _begun_here(node: NodeView) -> bool:
    record = current_record(node)
    return record is not None and record.pool == POOL


def unavailable_uids(fleet: Fleet) -> set[str]:
    """Uids of those that are unavailable."""
    return {
        node.uid
        for node in nodes_in_pool(fleet)
        if budget.unavailable_reason(node, current_record(node))
    }


def limit(pool: PoolView, fleet: Fleet, base: int) -> int:
    present = sum(node.pool == POOL for node in fleet.nodes.values())
    return budget.unavailable_limit(pool.upgrade, base=base, present=present)


def grants(fleet: Fleet, decision: Decision) -> WriteRollout | None:
    """The write that grants something."""
    writes = [write for write in decision.rollouts if write.granted]
    return writes[0] if writes else None


def new(write: WriteRollout, fleet: Fleet) -> dict[str, InFlight]:
    """Places that it gives."""
    uids = {fleet.nodes[name].uid for name in write.granted}
    return {uid: entry for uid, entry in write.status.in_flight.items() if uid in uids}


def takes(node: NodeView, pool: PoolView, now: Instant) -> bool:
    """Whether its start would make it unavailable."""
    outcome = step(node, pool, now)
    assert isinstance(outcome, Candidate)
    if budget.unavailable_reason(node, current_record(node)):
        return False
    return outcome.operation not in {Operation.BRING_UP, Operation.VALIDATE}


def promised(fleet: Fleet, status: RolloutStatus, now: Instant) -> set[str]:
    """Uids of those that have a place, have not begun, and will be unavailable by it."""
    found = set[str]()
    for node in fleet.nodes.values():
        borne = contribution_of(node, status.in_flight.get(node.uid), POOL, now.at)
        if borne.entry is not None and not (borne.leased or borne.is_unoccupied):
            found.add(node.uid)
    return found


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**64))
def test_no_start_takes_more_than_the_limit(seed: int) -> None:
    fleet, now = random(seed)
    decision = decide(fleet, now)
    write = grants(fleet, decision)
    if write is None:
        return
    pool = fleet.pools[POOL]
    standing = _standing(pool, fleet, now)
    lowered = {
        fleet.nodes[name].uid for name in write.granted if takes(fleet.nodes[name], standing, now)
    }
    if not lowered:
        return
    before = write.status.in_flight.keys() - {fleet.nodes[name].uid for name in write.granted}
    kept = replace(write.status, in_flight={uid: write.status.in_flight[uid] for uid in before})
    after = unavailable_uids(fleet) | promised(fleet, kept, now) | lowered
    assert len(after) <= limit(pool, fleet, write.status.base)
    assert all(fleet.nodes[name].ready for name in write.granted)


def _standing(pool: PoolView, fleet: Fleet, now: Instant) -> PoolView:
    from libs.rollout.decide import Decider

    deciding = Decider(fleet)
    deciding.decide(now)
    return deciding._deciders[POOL].constrained_view  # pyright: ignore[reportPrivateUsage]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**64))
def test_no_cordon_takes_more_than_the_limit(seed: int) -> None:
    """All that are written in one round, over the state that is seen in it."""
    fleet, now = random(seed)
    decision = decide(fleet, now)
    was = unavailable_uids(fleet)
    lowered = {
        action.uid
        for step in decision.steps.values()
        for action in step.actions
        if isinstance(action, WriteNode) and action.lowers_capacity
    }
    pool = fleet.pools[POOL]
    if lowered - was:
        assert pool.rollout is not None
        status = pool.rollout.status
        base = 0 if status.phase == "Complete" else status.base
        assert len(was | lowered) <= limit(pool, fleet, base)
        assert all(now.at - source.proved <= 90 for source in now.visibility.sources.values())


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**64))
def test_no_start_does_more_harm_than_is_allowed(seed: int) -> None:
    fleet, now = random(seed)
    write = grants(fleet, decide(fleet, now))
    if write is None:
        return
    status = write.status
    for entry in new(write, fleet).values():
        if not entry.target:
            continue
        record = status.targets[entry.target] if not entry.outside else None
        if record is None:
            continue
        assert not harm.is_halted(record)
        if not record.proven:
            flying = _flying(fleet, status, entry.target)
            assert len(flying.union(record.failed)) <= harm.allowance(record)


def _flying(fleet: Fleet, status: RolloutStatus, target: str) -> set[str]:
    """In flight for a target: by the Rollout, or by the lease."""
    flying = {
        uid
        for uid, entry in status.in_flight.items()
        if entry.target == target and not entry.outside
    }
    for node in fleet.nodes.values():
        record = current_record(node)
        leased = upgrade_lease(node) is not None and record is not None and record.pool == POOL
        if leased and record is not None and record.target == target and not record.outside:
            flying.add(node.uid)
    return flying


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**64))
def test_no_more_are_in_flight_than_may_be(seed: int) -> None:
    fleet, now = random(seed)
    write = grants(fleet, decide(fleet, now))
    pool = fleet.pools[POOL]
    most = pool.upgrade.max_parallel_upgrades
    if write is None or not most:
        return
    counted = {uid for uid, entry in write.status.in_flight.items() if not entry.outside}
    if any(not entry.outside for entry in new(write, fleet).values()):
        assert len(counted) <= most
    heals = [
        entry
        for uid, entry in new(write, fleet).items()
        if entry.outside and not _validates(fleet, uid, pool, now)
    ]
    assert len(heals) <= 1


def _validates(fleet: Fleet, uid: str, pool: PoolView, now: Instant) -> bool:
    node = next(node for node in fleet.nodes.values() if node.uid == uid)
    outcome = step(node, _standing(pool, fleet, now), now)
    return isinstance(outcome, Candidate) and outcome.operation is Operation.VALIDATE


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**64))
def test_nothing_starts_where_nothing_may(seed: int) -> None:
    fleet, now = random(seed, led=False)
    decision = decide(fleet, now)
    pool = fleet.pools[POOL]
    rollout = pool.rollout
    stopped = (
        rollout is None
        or rollout.status.epoch != EPOCH
        or rollout.write_pending
        or rollout.spec.brake is not Brake.NONE
        or rollout.status.frozen_since is not None
        or pool.gone
        or pool.held
        or not pool.upgrade.auto_upgrade
        or now.visibility.foreign_operator
    )
    if stopped:
        assert grants(fleet, decision) is None
    if rollout is None or rollout.status.epoch != EPOCH:
        assert decision.steps == {}


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**64))
def test_every_node_that_is_not_in_place_has_a_step_or_a_reason(seed: int) -> None:
    fleet, now = random(seed, led=False)
    decision = decide(fleet, now)
    assert not decision.steps.keys() & decision.waits.keys()
    pool = _standing(fleet.pools[POOL], fleet, now)
    for name, node in fleet.nodes.items():
        told = name in decision.steps or name in decision.waits
        if node.write_pending:
            assert not told
            continue
        if node.pool != POOL:
            continue
        outcome = step(node, pool, now)
        idle = isinstance(outcome, Step) and not outcome.actions and outcome.wait is None
        assert told is (outcome is not None and not idle), name
    for wait in decision.waits.values():
        assert wait.detail
        assert wait.since <= now.at
        assert wait.until is None or wait.until >= wait.since


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**64))
def test_whoever_is_asked_or_waits_for_time_is_looked_at_again(seed: int) -> None:
    """`wake_at` is ahead, and not after any moment that a reason names."""
    fleet, now = random(seed)
    decision = decide(fleet, now)
    named = [wait.until for wait in decision.waits.values() if wait.until is not None]
    ahead = [until for until in named if until > now.at]
    if decision.wake_at is not None:
        assert decision.wake_at > now.at
    if ahead:
        assert decision.wake_at is not None
        assert decision.wake_at <= min(ahead)


def test_the_moment_alone_changes_nothing_before_it_wakes() -> None:
    """What is decided at once again is the same."""
    fleet, now = random(17)
    assert decide(fleet, now) == decide(fleet, now)
    assert instant().at == NOW
