"""One pool between two decisions: which nodes a change affects, and what is written."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.rollout import Brake, RolloutSpec, TargetRecord
from libs.rollout.decide import decide
from libs.rollout.decision import BudgetUsage, WriteRollout
from libs.rollout.limits import freshness
from libs.rollout.pool.contribution import contribution_of
from libs.rollout.pool.pool_decider import PoolDecider
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
    pool_decider = PoolDecider(views[0])
    found: set[str] | None = None
    for view in views:
        pool_decider.update_view(view)
        for given in nodes:
            pool_decider.put(
                contribution_of(given, pool_decider.in_flight.get(given.uid), view.key, NOW)
            )
        found = pool_decider.evaluate(pool_decider.in_flight, instant(), leading=True)
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


# Writes of the Rollout, and their reasons.


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
    flights = {ended.uid: entry(ended, token=TOKEN)}
    view = open_pool(record=of_target(), base=2, in_flight=flights)
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
    pool_decider = PoolDecider(BASE)
    found: list[WriteRollout | None] = []
    for leading in (False, True):
        pool_decider.dirty = True
        pool_decider.evaluate(pool_decider.in_flight, instant(), leading=leading)
        pool_decider.allocate({}, {}, freshness(instant()), instant())
        found.append(pool_decider.write)
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
