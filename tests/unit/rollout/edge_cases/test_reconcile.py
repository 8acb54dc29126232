"""Places at the edges: what begun and wanted mean where reasons meet, and who is counted."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Order
from libs.contracts.node import MANAGER, LeaseOwner
from libs.contracts.rollout import InFlight, TargetRecord
from libs.policy.kinds.strategy import StrategySpec
from libs.rollout.reconcile.contribution import EntryResult, NodeContribution, contribution_of
from libs.rollout.reconcile.evaluation import PoolEvaluation, evaluate_pool
from libs.rollout.reconcile.pool_tally import PoolTally
from libs.rollout.views.node import MalformedAnnotation, NodeField, NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.allocate.builders import (
    candidate,
    candidates,
    decided,
    entry,
    open_pool,
    written,
)
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    POOL,
    TOKEN,
    component,
    done,
    failed,
    in_flight_node,
    instant,
    label_of,
    lease,
    node,
    without_driver,
)

THIRD = "target-third"
ALL = {"max_parallel_upgrades": 0, "max_unavailable": "100%"}
PLACE = InFlight(node="node-1", token=TOKEN + 1, target=NEW, since=NOW - 30)
REMOVAL = replace(PLACE, target="")
HALTED = TargetRecord(threshold=1, failed=("gone",), halted_because="1 of 1 failures")


def contribution(given: NodeView, place: InFlight) -> NodeContribution:
    return contribution_of(given, place, POOL, NOW)


def edited(*, places: dict[str, InFlight], target: str = THIRD, **changes: object) -> PoolView:
    made = open_pool(upgrade=ALL, base=9, targets=(OLD, NEW, THIRD), target=target)
    assert made.rollout is not None
    status = replace(made.rollout.status, in_flight=places, **changes)
    return replace(made, rollout=replace(made.rollout, status=status))


def reckoned(pool: PoolView, *nodes: NodeView) -> PoolEvaluation:
    tally = PoolTally()
    assert pool.rollout is not None
    for one in nodes:
        tally.put(contribution_of(one, pool.rollout.status.in_flight.get(one.uid), pool.key, NOW))
    return evaluate_pool(pool, tally, instant(), leading=True)


def busy(name: str, *, since: float = NOW - 5, outside: bool = False) -> NodeView:
    made = in_flight_node(name=name, record={"outside": outside})
    return replace(made, lease=lease(name, since=since))


def places(*nodes: NodeView, target: str = NEW, **changes: object) -> dict[str, InFlight]:
    return {
        one.uid: replace(entry(one, token=TOKEN, target=target, since=NOW - 90 + at), **changes)
        for at, one in enumerate(nodes)
    }


@pytest.mark.parametrize("field", [NodeField.STATE, NodeField.LEASE, NodeField.RECORD])
def test_an_owned_field_shows_that_an_operation_began(field: NodeField) -> None:
    said: dict[str, Any] = {
        "state": "upgrade-required",
        "lease": MalformedAnnotation("{"),
        "record": MalformedAnnotation("{"),
    }
    owners = {field: (MANAGER,)}
    left = replace(node(field_managers=owners), **{field.value: said[field.value]})
    assert contribution(left, PLACE).ending is EntryResult.FAILED
    emptied = contribution(node(field_managers=owners), PLACE)
    assert (emptied.ending, emptied.entry) == (None, PLACE)


@pytest.mark.parametrize("held", [lease(owner=LeaseOwner.HUMAN), MalformedAnnotation("{")])
def test_a_field_of_another_manager_is_no_beginning(held: object) -> None:
    taken = node(lease=held, field_managers={NodeField.LEASE: ("somebody",)})
    assert contribution(taken, PLACE).ending is None


def test_a_failed_removal_counts_for_no_target() -> None:
    begun = component(highest_order=Order(REMOVAL.token, 1))
    given = node(driver_label=label_of(OLD), components={"driver": begun})
    assert contribution(given, REMOVAL).ending is EntryResult.REMOVED


@pytest.mark.parametrize(("base", "threshold"), [(100, 50), (0, 2)])
def test_a_threshold_is_computed_from_the_base_or_the_present_nodes(
    base: int, threshold: int
) -> None:
    strategy = StrategySpec(failure_threshold="50%")
    grants = open_pool(upgrade=ALL, base=base, strategy=strategy)
    assert written(decided(grants, *candidates(4))).targets[NEW].threshold == threshold
    unheard = replace(grants, target=OLD)
    assert reckoned(unheard, *map(busy, "abcd")).records[NEW].threshold == threshold


def test_a_removal_grant_is_kept_whatever_target_is_wanted() -> None:
    waits = candidate("n")
    made = reckoned(edited(places={waits.uid: entry(waits, target="")}), waits)
    assert made.withdrawn == frozenset()


def test_only_a_joining_node_keeps_a_grant_on_the_last_good_target() -> None:
    joins, runs = without_driver(node("joins")), candidate("runs")
    good = TargetRecord(threshold=1, proven=True, proven_at=NOW - 999)
    for target, dropped in ((OLD, {runs.uid}), (NEW, {runs.uid, joins.uid})):
        granted = {one.uid: entry(one, target=target) for one in (joins, runs)}
        pool = edited(places=granted, targets={OLD: good, THIRD: HALTED})
        assert reckoned(pool, joins, runs).withdrawn == dropped


@pytest.mark.parametrize("changes", [{"gone": True}, {"held": ("it is wrong",)}, {"target": ""}])
def test_no_node_is_retargeted_while_the_target_is_unknown(changes: dict[str, object]) -> None:
    one = busy("n")
    made = reckoned(replace(edited(places=places(one)), **changes), one)
    assert (dict(made.retargeted), dict(made.constraints.to_release)) == ({}, {})


def test_a_retargeted_node_outside_the_counts_takes_no_slot() -> None:
    first, second = busy("first", outside=True), busy("second")
    granted = places(first, second)
    granted[first.uid] = replace(granted[first.uid], outside=True)
    made = reckoned(edited(places=granted), first, second)
    assert made.retargeted.keys() == {first.uid, second.uid}


def test_a_node_moved_back_to_its_counted_target_needs_no_slot() -> None:
    one = busy("n")
    pool = edited(places=places(one, target=THIRD), target=NEW)
    assert reckoned(pool, one).retargeted.keys() == {one.uid}


@pytest.mark.parametrize("outside", [False, True])
def test_no_node_is_retargeted_to_a_halted_target(*, outside: bool) -> None:
    one = busy("n", outside=outside)
    proven = replace(HALTED, proven=True, proven_at=NOW - 99)
    pool = edited(places=places(one, outside=outside), targets={THIRD: proven})
    made = reckoned(pool, one)
    assert dict(made.retargeted) == {}
    assert made.constraints.to_release == {
        one.uid: f"the policy wants {THIRD} now: 1 of 1 failures",
    }


def test_all_nodes_are_retargeted_to_a_proven_target() -> None:
    nodes = [busy("first"), busy("second")]
    proven = TargetRecord(threshold=1, proven=True)
    made = reckoned(edited(places=places(*nodes), targets={THIRD: proven}), *nodes)
    assert made.retargeted.keys() == {"uid-first", "uid-second"}


def test_a_node_outside_the_counts_is_retargeted_beyond_the_limit() -> None:
    """A person lowered the number of accepted failures."""
    there = [in_flight_node(name=name, record={"target": THIRD}) for name in ("one", "two")]
    moves = busy("moves", outside=True)
    granted = places(*there, target=THIRD) | places(moves, outside=True)
    pool = edited(places=granted, targets={THIRD: TargetRecord(threshold=1)})
    assert reckoned(pool, *there, moves).retargeted.keys() == {moves.uid}


def test_a_start_that_costs_no_availability_needs_no_budget() -> None:
    """A validation, a start on an unoccupied node, and beside them one that costs availability."""
    validated, bare, taken = (
        candidate("validated"),
        without_driver(node("bare")),
        candidate("taken"),
    )
    granted = {
        validated.uid: entry(validated, outside=True, validates=True),
        bare.uid: entry(bare),
        taken.uid: entry(taken),
    }
    pool = replace(edited(places=granted, target=NEW), upgrade=open_pool().upgrade)
    none = replace(pool, upgrade=replace(pool.upgrade, max_unavailable=0))
    assert reckoned(none, validated, bare, taken).held_back == {taken.uid}


def test_a_tally_forgets_nodes_that_no_longer_count() -> None:
    tally = PoolTally()
    for one, place in ((failed("n"), None), (done("n"), replace(PLACE, token=TOKEN))):
        tally.put(contribution_of(one, place, POOL, NOW))
    assert (tally.failed[NEW], tally.validated[NEW]) == (set(), {"uid-n"})
    tally.put(contribution_of(done("n"), None, POOL, NOW))
    assert (tally.failed[NEW], tally.validated[NEW]) == (set(), set())


@pytest.mark.parametrize("kept", [True, False])
def test_an_unwanted_complete_target_is_kept_while_a_node_moves_to_it(*, kept: bool) -> None:
    one = busy("n")
    old = TargetRecord(threshold=1, complete=True, proven=True, proven_at=NOW - 999)
    good = replace(old, proven_at=NOW - 99)
    pool = edited(places=places(one) if kept else {}, targets={NEW: old, OLD: good, THIRD: HALTED})
    (write,) = decided(pool, *[one] * kept).rollouts
    assert (NEW in write.status.targets) is kept
