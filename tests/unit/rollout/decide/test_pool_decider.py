"""One pool between two decisions: which nodes a change affects, and what is written."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.rollout import Brake, InFlight, RolloutSpec, TargetRecord
from libs.rollout.decide import decide
from libs.rollout.decision import BudgetUsage, WriteRollout
from libs.rollout.limits import freshness
from libs.rollout.outcomes import NodePools
from libs.rollout.pool.contribution import contribution_of
from libs.rollout.pool.pool_decider import PoolDecider
from libs.rollout.step import NodePhase
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.allocate.builders import candidate, decided, entry, of_target, open_pool
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    POOL,
    TOKEN,
    done,
    failed,
    fleet,
    in_flight_node,
    instant,
    node,
    required,
    with_rollout,
    with_status,
)

THIRD = "target-third"
ALL = {"max_parallel_upgrades": 0, "max_unavailable": "100%"}
GOOD = {OLD: of_target(proven_at=NOW - 999), NEW: of_target(proven_at=NOW - 99)}
HALTED = TargetRecord(threshold=1, failed=("gone",), halted_because="1 of 1 allowed failures")


def with_brake(view: PoolView, brake: Brake) -> PoolView:
    return with_rollout(view, spec=RolloutSpec(brake=brake))


def disabled(view: PoolView) -> PoolView:
    return replace(view, upgrade=replace(view.upgrade, auto_upgrade=False))


BASE = with_status(open_pool(base=9, targets=(OLD, NEW, THIRD)), targets=GOOD)


def affected_nodes(*views: PoolView, nodes: tuple[NodeView, ...] = ()) -> set[str] | None:
    """Return the uids affected by the last of these views; None stands for all."""
    book = PoolDecider(views[0])
    found: set[str] | None = None
    for view in views:
        book.update_view(view)
        for given in nodes:
            book.put(contribution_of(given, book.in_flight.get(given.uid), view.key, NOW))
        found = book.evaluate(book.in_flight, instant(), leading=True)
    return found


# Which nodes a changed pool affects.


def test_an_unchanged_pool_affects_no_node() -> None:
    assert affected_nodes(BASE) is None
    assert affected_nodes(BASE, BASE) == set()
    assert affected_nodes(BASE, with_status(BASE, base=8)) == set()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BASE, replace(BASE, rollout=None)),
        (with_status(disabled(BASE), target=""), disabled(BASE)),
        (BASE, with_brake(BASE, Brake.PAUSE)),
        (BASE, with_brake(BASE, Brake.FREEZE)),
        (BASE, with_status(BASE, targets={**GOOD, THIRD: HALTED})),
        (with_status(BASE, targets={**GOOD, OLD: of_target(proven=False, threshold=9)}), BASE),
        (BASE, with_status(BASE, targets={OLD: GOOD[NEW], NEW: GOOD[OLD]})),
    ],
    ids=["leading", "stamps", "paused", "frozen", "halted", "proven", "last good"],
)
def test_a_changed_constraint_affects_every_node(before: PoolView, after: PoolView) -> None:
    assert affected_nodes(before, before) == set()
    assert affected_nodes(before, after) is None


def test_a_node_held_back_or_freed_is_affected() -> None:
    waits = candidate("waits")
    granted = with_status(BASE, in_flight={waits.uid: entry(waits)})
    none = replace(granted, upgrade=replace(granted.upgrade, max_unavailable=0))
    for views in ((granted, none), (none, granted)):
        assert affected_nodes(*views, nodes=(waits,)) == {waits.uid}
    assert affected_nodes(none, none, nodes=(waits,)) == set()


def test_a_retargeted_or_released_node_is_affected() -> None:
    nodes = tuple(in_flight_node(name=name) for name in ("first", "second"))
    places = {view.uid: entry(view, token=TOKEN) for view in nodes}
    before = with_status(replace(BASE, upgrade=open_pool(upgrade=ALL).upgrade), in_flight=places)
    after = replace(before, target=THIRD)
    for views in ((before, after), (after, before)):
        assert affected_nodes(*views, nodes=nodes) == {"uid-first", "uid-second"}


def test_a_node_with_a_withdrawn_entry_is_affected() -> None:
    waits = candidate("waits")
    granted = with_status(BASE, in_flight={waits.uid: entry(waits)})
    assert affected_nodes(granted, replace(granted, target=THIRD), nodes=(waits,)) == {waits.uid}


def test_an_unchanged_phase_leaves_the_pool_clean() -> None:
    book, row = PoolDecider(BASE), NodePools()
    for place, dirty in ((NodePhase.DONE, True), (NodePhase.DONE, False), (NodePhase.FAILED, True)):
        book.dirty = False
        row.count_phase(book, place)
        assert (book.dirty, book.phase_counts[place], sum(book.phase_counts.values())) == (
            dirty,
            1,
            1,
        )


# What is written, and why.


def write_of(view: PoolView, *nodes: NodeView) -> WriteRollout:
    (write,) = decided(view, *nodes).rollouts
    return write


def settled(view: PoolView, *nodes: NodeView) -> PoolView:
    """Return the pool after all due Rollout writes."""
    for write in decided(view, *nodes).rollouts:
        view = with_rollout(view, status=write.status, has_finalizer=write.has_finalizer)
    return view


FULL = open_pool(record=of_target(), base=1, upgrade={"max_unavailable": 0})


@pytest.mark.parametrize(
    ("view", "nodes", "because"),
    [
        (FULL, (required(),), "nodes"),
        (replace(FULL, target=OLD), (done(target=OLD),), f"{OLD}; Complete"),
        (with_status(FULL, targets={NEW: HALTED}), (required(),), "Halted: "),
        (open_pool(record=of_target(), base=1), (candidate("n"),), "start"),
        (replace(FULL, rollout=None), (node(),), "pool"),
        (replace(FULL, rollout=None), (failed(),), "lost"),
    ],
)
def test_a_write_names_what_changed(
    view: PoolView, nodes: tuple[NodeView, ...], because: str
) -> None:
    write = write_of(view, *nodes)
    assert because in write.because
    assert write.brake is (Brake.PAUSE if "lost" in because else None)


def test_ended_entries_are_counted_in_the_write_reason() -> None:
    ended, waits = done("ended"), candidate("waits")
    places = {ended.uid: entry(ended, token=TOKEN)}
    view = open_pool(record=of_target(), base=2, in_flight=places)
    assert write_of(view, ended).because.endswith(": 1")
    starts, ends = write_of(view, ended, waits).because.split("; ")
    assert ("start" in starts, starts[-1]) == (True, "1")
    assert ends in write_of(view, ended).because


@pytest.mark.parametrize("nodes", [(required(),), (done(),)], ids=["open", "complete"])
def test_the_finalizer_follows_what_would_be_lost(nodes: tuple[NodeView, ...]) -> None:
    view = settled(FULL, *nodes)
    assert decided(view, *nodes).rollouts == ()
    assert view.rollout is not None
    for finalized in (True, False):
        changed = replace(view, rollout=replace(view.rollout, has_finalizer=finalized))
        due = [write.has_finalizer for write in decided(changed, *nodes).rollouts]
        assert due == (
            [] if finalized is view.rollout.has_finalizer else [view.rollout.has_finalizer]
        )


def test_nothing_is_written_before_the_leader_epoch() -> None:
    book = PoolDecider(BASE)
    found: list[WriteRollout | None] = []
    for leading in (False, True):
        book.dirty = True
        book.evaluate(book.in_flight, instant(), leading=leading)
        book.allocate({}, {}, freshness(instant()), instant())
        found.append(book.write)
    assert found[0] is None
    assert found[1] is not None


@pytest.mark.parametrize(
    ("upgrade", "base", "expected"),
    [
        ({}, 0, (1, 2, 1)),
        ({"max_parallel_upgrades": 0, "max_unavailable": 1}, 0, (1, 2, None)),
        ({"max_parallel_upgrades": 3, "max_unavailable": "100%"}, 9, (2, 9, 3)),
    ],
)
def test_the_budget_usage_reports_its_limits(
    upgrade: dict[str, Any], base: int, expected: tuple[int, int, int | None]
) -> None:
    view = open_pool(record=of_target(), base=base, upgrade=upgrade)
    account = decide(fleet(view, done("a"), failed("b")), instant()).budgets[POOL]
    limit, taken, parallel = expected
    assert account == BudgetUsage(
        limit=limit, base=taken, unavailable={"b": "failed"}, parallel=0, parallel_limit=parallel
    )


CHANGES: list[Callable[[PoolView], PoolView]] = [
    lambda view: with_status(
        view, in_flight={"u": InFlight(node="n", token=1, target=NEW, since=NOW)}
    ),
    lambda view: with_status(view, targets={NEW: HALTED}),
    lambda view: replace(view, rollout=None),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_rollout_is_no_changed_rule(change: Callable[[PoolView], PoolView]) -> None:
    book = PoolDecider(BASE)
    book.update_view(change(BASE))
    assert not book.rules_changed
    book.update_view(replace(change(BASE), target=THIRD))
    assert book.rules_changed


def test_which_entries_changed_in_a_rollout() -> None:
    places = {uid: InFlight(node=uid, token=1, target=NEW, since=NOW) for uid in ("a", "b", "c")}
    changed = {"b": replace(places["b"], target=OLD), "c": replace(places["c"]), "d": places["a"]}
    book = PoolDecider(with_status(BASE, in_flight=places, targets={NEW: HALTED}))
    flights = book.update_view(
        with_status(BASE, in_flight=changed, targets={OLD: HALTED, NEW: of_target()})
    )
    assert (flights.removed, flights.added, flights.changed) == ({"a"}, {"d"}, {"b", "gone"})
    assert book.maybe_gone == {"a", "b", "c", "d", "gone"}
