"""The status of a Rollout: target, phase, base, and which changes are written."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.rollout import (
    ConditionStatus,
    ConditionType,
    Counts,
    InFlight,
    RolloutPhase,
    RolloutStatus,
    TargetRecord,
)
from libs.contracts.waits import WaitCode
from libs.rollout.pool.contribution import contribution_of
from libs.rollout.pool.evaluation import evaluate_pool, was_enabled
from libs.rollout.pool.status import is_open, is_worth_writing, rollout_status
from libs.rollout.pool.tally import PoolTally
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.allocate.builders import candidate, entry, of_target, open_pool
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    POOL,
    TOKEN,
    done,
    failed,
    in_flight_node,
    instant,
    node,
    with_status,
    without_driver,
)
from tests.unit.rollout.reconcile.builders import THIRD, evaluate, tally_of

HALTED = TargetRecord(threshold=1, failed=("gone",))


def due(
    pool: PoolView,
    *nodes: NodeView,
    counts: Counts | None = None,
    granted: dict[str, InFlight] | None = None,
) -> RolloutStatus:
    tally = tally_of(pool, *nodes)
    evaluation = evaluate_pool(pool, tally, instant(), leading=True)
    counts = counts or Counts(total=9)
    return rollout_status(
        pool, tally, evaluation, granted=granted or {}, counts=counts, now=instant()
    )


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({"target": THIRD}, THIRD),
        ({"target": ""}, NEW),
        ({"target": THIRD, "gone": True}, NEW),
        ({"target": THIRD, "errors": ("it is wrong",)}, NEW),
    ],
)
def test_the_status_target_is_the_last_certain_one(changes: dict[str, Any], target: str) -> None:
    assert due(replace(open_pool(), **changes)).target == target


def test_the_version_is_that_of_the_status_target() -> None:
    pool = with_status(replace(open_pool(target=THIRD), version="580.1"), version="570.1")
    status = due(pool)
    assert (status.version, status.target, status.short_target) == ("580.1", THIRD, "target-t")
    invalid = due(replace(pool, errors=("it is wrong",)))
    assert (invalid.version, invalid.target) == ("570.1", THIRD)


ALL_DONE = Counts(total=1, done=1)


def test_a_rollout_with_a_node_in_flight_is_not_complete() -> None:
    view = in_flight_node(name="n")
    in_flight_pool = open_pool(in_flight={view.uid: entry(view, token=TOKEN)}, record=of_target())
    assert due(in_flight_pool, view, counts=ALL_DONE).phase is RolloutPhase.PROVEN
    assert (
        due(open_pool(record=of_target()), done(), counts=ALL_DONE).phase is RolloutPhase.COMPLETE
    )


def test_a_rollout_without_nodes_is_not_complete() -> None:
    empty = due(open_pool(record=of_target()), counts=Counts())
    assert (empty.phase, empty.progress) == (RolloutPhase.NO_NODES, "0/0")
    assert empty.because == "the policy selects no node with GPUs"
    complete = next(each for each in empty.conditions if each.type is ConditionType.COMPLETE)
    assert (complete.status, complete.reason) == (ConditionStatus.FALSE, "NoNodes")


def test_a_complete_rollout_tells_how_many_nodes_it_left_out() -> None:
    pool = open_pool(record=of_target())
    counts = Counts(total=8, done=5, skipped=2, excluded=1)
    status = due(pool, done(), counts=counts)
    assert (status.progress, status.because) == ("5/8", "left out: 2 skipped, 1 excluded")
    assert status.phase is RolloutPhase.COMPLETE
    assert due(pool, done(), counts=replace(counts, total=9)).because == ""
    assert due(pool, done(), counts=ALL_DONE).because == ""


@pytest.mark.parametrize(
    ("proven", "counts", "expected"),
    [(True, ALL_DONE, True), (False, ALL_DONE, False), (True, None, False)],
)
def test_a_target_is_complete_when_proven_and_all_nodes_are_done(
    *, proven: bool, counts: Counts | None, expected: bool
) -> None:
    result = due(open_pool(record=of_target(proven=proven)), done(), counts=counts)
    assert result.targets[NEW].complete is expected


@pytest.mark.parametrize(
    ("base", "counts", "expected"),
    [(3, None, 3), (1, None, 2), (3, Counts(total=0), 3), (1, Counts(total=0), 1), (0, None, 0)],
)
def test_the_base_grows_with_done_nodes_and_stays_when_all_are_done(
    base: int, counts: Counts | None, expected: int
) -> None:
    nodes = [done("a"), done("b")]
    assert due(open_pool(base=base), *nodes, counts=counts).base == expected


def test_only_a_counted_start_makes_a_target_known() -> None:
    flight = InFlight(node="n", token=1, target=NEW, since=NOW)
    for item, known in (
        (flight, [NEW]),
        (replace(flight, outside=True), []),
        (replace(flight, target=""), []),
    ):
        assert list(due(open_pool(), candidate("n"), granted={"uid-n": item}).targets) == known


FLIGHT = {"u": InFlight(node="n", token=1, target=NEW, since=NOW)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),
        ({"counts": Counts(total=2)}, True),
        ({"counts": Counts(total=2), "in_flight": FLIGHT}, False),
        ({"counts": Counts(skipped=1), "in_flight": FLIGHT}, True),
        ({"in_flight": FLIGHT}, False),
        ({"in_flight": FLIGHT, "base": 3}, True),
    ],
)
def test_which_status_changes_are_written(changes: dict[str, Any], *, expected: bool) -> None:
    stored = RolloutStatus(target=NEW, in_flight=changes.get("in_flight", {}))
    assert is_worth_writing(replace(stored, **changes), stored) is expected


@pytest.mark.parametrize(
    ("changes", "gone", "expected"),
    [
        ({}, False, False),
        ({"in_flight": FLIGHT}, False, True),
        ({"targets": {NEW: HALTED}}, False, True),
        ({"targets": {NEW: HALTED}}, True, False),
        ({"targets": {NEW: HALTED}, "phase": RolloutPhase.COMPLETE}, False, False),
        ({"targets": {NEW: HALTED}, "phase": RolloutPhase.NO_NODES}, False, False),
        ({"in_flight": FLIGHT}, True, True),
    ],
)
def test_which_statuses_keep_a_rollout_open(
    changes: dict[str, Any], *, gone: bool, expected: bool
) -> None:
    view = replace(RolloutStatus(target=NEW, phase=RolloutPhase.PROVING), **changes)
    assert is_open(replace(open_pool(), gone=gone), view) is expected


def test_a_pool_without_a_rollout_was_never_enabled() -> None:
    pool = open_pool()
    off = replace(pool, upgrade=replace(pool.upgrade, auto_upgrade=False))
    assert was_enabled(off)
    assert not was_enabled(replace(off, rollout=None))


def test_a_foreign_operator_blocks_the_pool() -> None:
    foreign = evaluate(open_pool(), now=instant(foreign_operator="another is at work")).blocked_by
    assert foreign is not None
    assert (foreign.code, foreign.detail) == (WaitCode.FOREIGN_OPERATOR, "another is at work")


@pytest.mark.parametrize(
    ("changes", "visibility", "stamps"),
    [
        ({}, {}, True),
        ({"gone": True}, {}, False),
        ({"errors": ("it is wrong",)}, {}, False),
        ({}, {"foreign_operator": "another is at work"}, False),
    ],
)
def test_nodes_are_stamped_only_when_the_target_is_known(
    changes: dict[str, Any], visibility: dict[str, Any], *, stamps: bool
) -> None:
    pool = replace(open_pool(), **changes)
    assert evaluate(pool, now=instant(**visibility)).constraints.may_mark_required is stamps


@pytest.mark.parametrize(
    ("record", "proven"),
    [
        (of_target(), {NEW}),
        (of_target(proven=False, threshold=2), set[str]()),
        (of_target(failed=("a",)), set[str]()),
    ],
)
def test_a_proven_target_that_is_not_halted_can_be_joined(
    record: TargetRecord, proven: set[str]
) -> None:
    assert evaluate(open_pool(record=record)).constraints.proven == proven


def test_starts_that_cost_capacity_are_held_back_on_stale_data() -> None:
    cordoned, not_ready = candidate("taken"), candidate("away", ready=False)
    flights = {item.uid: entry(item) for item in (cordoned, not_ready)}
    pool = open_pool(record=of_target(), base=9, in_flight=flights, upgrade={"max_unavailable": 9})
    assert evaluate(pool, cordoned, not_ready).held_back == {not_ready.uid}
    stale = instant(ages={"pods": 91.0})
    assert evaluate(pool, cordoned, not_ready, now=stale).held_back == {cordoned.uid, not_ready.uid}
    bare = without_driver(node("bare"))
    free = open_pool(record=of_target(), base=9, in_flight={bare.uid: entry(bare)})
    assert evaluate(free, bare, now=stale).held_back == frozenset()


def test_only_a_counted_recovery_entry_recovers() -> None:
    flight = InFlight(node="n", token=TOKEN + 9, target=NEW, since=NOW)
    bare, runs = without_driver(node("n")), without_driver(done("n", OLD))
    assert (
        contribution_of(bare, flight, POOL, NOW).is_unoccupied,
        contribution_of(runs, flight, POOL, NOW).is_unoccupied,
    ) == (True, False)
    assert not contribution_of(done("n", record=None), flight, POOL, NOW).is_unoccupied
    healing = [
        contribution_of(
            bare, replace(flight, outside=outside, validates=validates), POOL, NOW
        ).is_recovery
        for outside, validates in ((True, False), (True, True), (False, False))
    ]
    assert healing == [True, False, False]


def test_failures_are_known_before_and_after_the_rollout_lists_them() -> None:
    before = tally_of(open_pool(), failed("n"))
    assert (before.has_failed("uid-n", NEW), before.failed[NEW]) == (True, {"uid-n"})
    record = TargetRecord(threshold=1, failed=("uid-n",))
    after = tally_of(open_pool(record=record), failed("n"))
    assert (after.has_failed("uid-n", NEW), after.failed[NEW]) == (True, set())
    assert not after.has_failed("uid-n", OLD)
    removal = entry(candidate("r"), token=TOKEN, target="")
    view = in_flight_node(name="r", record={"operation": "remove", "target": ""})
    pool = open_pool(in_flight={view.uid: removal})
    assert "no other driver" in tally_of(pool, view).parallel.values()


# Pool evaluation when nodes have left the pool or its counts.


def test_a_target_is_forgotten_when_its_last_node_leaves_it() -> None:
    pool = open_pool(base=2)
    for item in (failed("n"), in_flight_node(name="n")):
        tally = PoolTally()
        tally.put(contribution_of(item, entry(item, token=TOKEN), POOL, NOW))
        assert list(evaluate_pool(pool, tally, instant(), leading=True).records) == [NEW]
        tally.put(contribution_of(done("n", OLD), None, POOL, NOW))
        assert not evaluate_pool(pool, tally, instant(), leading=True).records


def test_an_entry_of_a_node_that_is_not_ready_takes_no_slot() -> None:
    not_ready, waits = candidate("away", ready=False, pool="another"), candidate("waits")
    flights = {not_ready.uid: entry(not_ready, since=NOW - 9), waits.uid: entry(waits)}
    upgrade = {"max_parallel_upgrades": 0, "max_unavailable": 1}
    pool = open_pool(record=of_target(), base=9, in_flight=flights, upgrade=upgrade)
    evaluation = evaluate(pool, not_ready, waits)
    assert (evaluation.limit, evaluation.constraints.may_begin, evaluation.held_back) == (
        1,
        {waits.uid},
        {not_ready.uid},
    )
    ready_again = replace(not_ready, ready=True)
    evaluation = evaluate(pool, ready_again, waits)
    assert (evaluation.constraints.may_begin, evaluation.held_back) == (
        {not_ready.uid},
        {waits.uid},
    )


def test_steps_see_neither_ended_nor_withdrawn_entries() -> None:
    ended, back, kept = done("ended"), candidate("back"), candidate("kept")
    flights = {
        ended.uid: entry(ended, token=TOKEN),
        back.uid: entry(back, target=OLD),
        kept.uid: entry(kept),
    }
    pool = open_pool(record=of_target(), base=9, in_flight=flights)
    evaluation = evaluate(pool, ended, back, kept)
    assert (evaluation.withdrawn, list(evaluation.constraints.in_flight)) == (
        {back.uid},
        [kept.uid],
    )
