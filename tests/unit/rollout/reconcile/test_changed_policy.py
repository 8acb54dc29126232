"""Entries in flight when policy, brake or proof change (docs/states.md#variations)."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import Operation, UpgradeState
from libs.contracts.rollout import Brake, InFlight, Release, RolloutPhase, RolloutSpec, TargetRecord
from libs.contracts.waits import WaitCode
from libs.policy.kinds.strategy import StrategySpec
from libs.rollout.decision import WriteNode
from libs.rollout.views.machine import PodEviction
from libs.rollout.views.node import NodeView
from tests.unit.rollout.allocate.builders import (
    candidate,
    candidates,
    checked,
    code_of,
    decided,
    entry,
    of_target,
    open_pool,
    written,
)
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    failed,
    in_flight_node,
    instant,
    label_of,
    lease,
    node,
    required,
    with_record,
    with_status,
    without_driver,
)
from tests.unit.rollout.reconcile.builders import ALL, THIRD, edited, entries, evaluate

JOBS, RESTART = UpgradeState.WAIT_FOR_JOBS_REQUIRED, UpgradeState.POD_RESTART_REQUIRED
HALTED = TargetRecord(threshold=1, failed=("gone",))


def in_state(state: UpgradeState, name: str = "node-1") -> NodeView:
    return in_flight_node(state, name, pods=())


def test_before_the_start_a_new_target_is_first_written_to_the_rollout() -> None:
    busy = in_state(JOBS)
    decision = decided(edited(in_flight=entries(busy)), busy)
    status = written(decision)
    assert status.in_flight[busy.uid].target == THIRD
    assert status.targets[THIRD].threshold == 1
    assert decision.steps == {}
    after = evaluate(edited(in_flight=entries(busy, target=THIRD)), busy)
    assert (dict(after.retargeted), dict(after.constraints.to_release)) == ({}, {})


def test_only_as_many_nodes_are_retargeted_as_the_proof_has_slots() -> None:
    first, second = in_state(JOBS, "first"), in_state(JOBS, "second")
    in_flight = entries(first, second)
    in_flight[second.uid] = replace(in_flight[second.uid], since=NOW - 99)
    evaluation = evaluate(edited(in_flight=in_flight), first, second)
    assert {uid: entry.target for uid, entry in evaluation.retargeted.items()} == {
        second.uid: THIRD
    }
    assert evaluation.constraints.to_release.keys() == {first.uid}


@pytest.mark.parametrize("record", [HALTED, TargetRecord(threshold=1, failed=("a", "b"))])
def test_a_halted_new_target_releases_the_node(record: TargetRecord) -> None:
    busy = in_state(JOBS)
    evaluation = evaluate(edited(in_flight=entries(busy), targets={THIRD: record}), busy)
    assert (dict(evaluation.retargeted), list(evaluation.constraints.to_release)) == (
        {},
        [busy.uid],
    )


def test_a_halted_old_target_does_not_prevent_retargeting() -> None:
    busy = in_state(JOBS)
    evaluation = evaluate(edited(in_flight=entries(busy), targets={NEW: HALTED}), busy)
    assert (list(evaluation.retargeted), dict(evaluation.constraints.to_release)) == (
        [busy.uid],
        {},
    )


def test_an_unused_grant_is_withdrawn() -> None:
    waiting = candidate("node-1")
    decision = decided(edited(in_flight={waiting.uid: entry(waiting)}), waiting)
    assert written(decision).in_flight == {}
    assert code_of(decision, "node-1") is WaitCode.BUDGET


def test_an_entry_stays_while_a_write_to_its_node_is_pending() -> None:
    """The pending write may begin or start the granted target; its result is handled afterwards."""
    beginning, starting = (
        replace(candidate("one"), write_pending=True),
        replace(in_state(JOBS, "two"), write_pending=True),
    )
    in_flight = {beginning.uid: entry(beginning), **entries(starting)}
    evaluation = evaluate(edited(in_flight=in_flight), beginning, starting)
    assert (evaluation.withdrawn, dict(evaluation.retargeted)) == (frozenset(), {})
    without_write = [replace(view, write_pending=False) for view in (beginning, starting)]
    evaluation = evaluate(edited(in_flight=in_flight), *without_write)
    assert (evaluation.withdrawn, list(evaluation.retargeted)) == (
        frozenset({beginning.uid}),
        [starting.uid],
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"target": THIRD, "targets": (OLD, NEW, THIRD)},
        {"spec": RolloutSpec(brake=Brake.PAUSE)},
        {"record": HALTED},
    ],
)
def test_an_entry_stays_while_a_first_write_is_unconfirmed(changes: dict[str, Any]) -> None:
    waiting = replace(candidate("one"), unconfirmed_write_at=NOW - 59)
    in_flight = {waiting.uid: entry(waiting)}
    fields: dict[str, Any] = {"record": of_target(), **changes}
    pool = open_pool(upgrade=ALL, base=9, in_flight=in_flight, **fields)
    evaluation = evaluate(pool, waiting)
    assert (evaluation.withdrawn, evaluation.constraints.may_begin) == (frozenset(), frozenset())
    assert dict(evaluation.constraints.in_flight) == in_flight
    assert not any(
        isinstance(action, WriteNode)
        for step in decided(pool, waiting).steps.values()
        for action in step.actions
    )
    for written_at in (None, NOW - 60):
        assert evaluate(pool, replace(waiting, unconfirmed_write_at=written_at)).withdrawn == {
            waiting.uid
        }


def test_a_place_that_is_kept_during_a_pause_waits_for_the_pause() -> None:
    waiting = replace(candidate("one"), unconfirmed_write_at=NOW - 59)
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=of_target(),
        in_flight={waiting.uid: entry(waiting)},
        spec=RolloutSpec(brake=Brake.PAUSE),
    )
    wait = decided(pool, waiting).waits["one"]
    assert wait.code is WaitCode.PAUSED
    assert wait.detail.startswith("Rollout clusterpolicy-cluster is paused")
    assert "not answered" in wait.detail
    assert "brake" in wait.who
    gone = decided(replace(pool, gone=True), waiting).waits["one"]
    assert gone.code is WaitCode.POLICY_GONE


def test_an_unconfirmed_first_write_is_repeated_where_it_is_still_wanted() -> None:
    waiting = replace(candidate("one"), unconfirmed_write_at=NOW - 1)
    pool = open_pool(
        upgrade=ALL, base=9, record=of_target(), in_flight={waiting.uid: entry(waiting)}
    )
    step = decided(pool, waiting).steps["one"]
    assert any(isinstance(action, WriteNode) for action in step.actions)


@pytest.mark.parametrize(("limit", "begin"), [(1, {"first"}), (2, {"first", "second"}), (0, set())])
def test_an_unconfirmed_first_write_counts_as_begun(limit: int, begin: set[str]) -> None:
    """An earlier grant of another node makes no difference."""
    first, second = replace(candidate("first"), unconfirmed_write_at=NOW - 1), candidate("second")
    in_flight = {first.uid: entry(first), second.uid: entry(second, since=NOW - 50)}
    upgrade = {**ALL, "max_unavailable": str(limit)}
    pool = open_pool(upgrade=upgrade, base=9, record=of_target(), in_flight=in_flight)
    lowered = evaluate(pool, first, second).constraints.may_begin
    assert lowered == {view.uid for view in (first, second) if view.name in begin}


def test_no_start_under_an_entry_that_has_ended() -> None:
    """The node failed, and may be retried under a later token."""
    retried = checked(required("again", state="upgrade-required"))
    retried = with_record(retried, token=8, started=True, evidence=None, target=NEW, asked=True)
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=of_target(threshold=9),
        in_flight={retried.uid: entry(retried, token=8)},
    )
    decision = decided(pool, retried)
    assert not any(isinstance(action, WriteNode) for action in decision.steps["again"].actions)
    assert written(decision).targets[NEW].failed == (retried.uid,)
    late_node = candidate("late")
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=of_target(),
        in_flight={late_node.uid: entry(late_node, since=NOW - 60)},
    )
    assert decided(pool, late_node).steps == {}


def test_after_the_start_a_node_finishes_on_its_own_target() -> None:
    busy = in_state(RESTART)
    decision = decided(edited(in_flight=entries(busy)), busy, *candidates(2))
    assert written(decision).in_flight[busy.uid].target == NEW


def test_a_halt_releases_unstarted_nodes_and_withdraws_grants() -> None:
    busy, started, waiting = (
        in_state(JOBS, "busy"),
        in_state(RESTART, "started"),
        candidate("waiting"),
    )
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=TargetRecord(threshold=1, failed=("gone",)),
        in_flight={**entries(busy, started), waiting.uid: entry(waiting)},
    )
    decision = decided(pool, busy, started, waiting)
    assert sorted(written(decision).in_flight) == [busy.uid, started.uid]
    assert code_of(decision, "waiting") is WaitCode.BUDGET
    evaluation = evaluate(pool, busy, started, waiting)
    assert evaluation.constraints.to_release.keys() == {busy.uid}
    assert NEW in evaluation.constraints.to_release[busy.uid]
    assert waiting.uid not in evaluation.constraints.may_begin


def test_a_mere_validation_goes_on_in_a_halt() -> None:
    validation = in_state(UpgradeState.VALIDATION_REQUIRED)
    validation = with_record(validation, operation=Operation.VALIDATE, outside=True, started=False)
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=HALTED,
        in_flight={validation.uid: entry(validation, token=7, outside=True, validates=True)},
        phase=RolloutPhase.HALTED,
    )
    evaluation = evaluate(pool, validation)
    assert (dict(evaluation.constraints.to_release), evaluation.withdrawn) == ({}, frozenset())


def test_a_validation_grant_begins_in_a_halt_but_not_in_a_pause() -> None:
    broken = failed("broken")
    flight = {broken.uid: entry(broken, outside=True, validates=True)}
    pool = open_pool(
        upgrade=ALL, base=9, record=HALTED, in_flight=flight, phase=RolloutPhase.HALTED
    )
    assert evaluate(pool, broken).constraints.may_begin == {broken.uid}
    assert pool.rollout is not None
    spec = RolloutSpec(brake=Brake.PAUSE)
    paused = replace(pool, rollout=replace(pool.rollout, spec=spec))
    assert evaluate(paused, broken).withdrawn == {broken.uid}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"upgrade": {**ALL, "auto_upgrade": False}}, WaitCode.PAUSED),
        ({"errors": ("no such image",)}, WaitCode.PAUSED),
        ({"gone": True}, WaitCode.POLICY_GONE),
        ({"spec": RolloutSpec(brake=Brake.PAUSE)}, WaitCode.PAUSED),
    ],
)
def test_nodes_in_flight_finish_where_nothing_starts(
    changes: dict[str, object], code: WaitCode
) -> None:
    busy, waiting, other = in_state(RESTART, "busy"), candidate("waiting"), candidate("other")
    fields = {name: value for name, value in changes.items() if name != "upgrade"}
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=of_target(),
        in_flight={**entries(busy), waiting.uid: entry(waiting)},
        **fields,  # pyright: ignore[reportArgumentType]
    )
    if "upgrade" in changes:
        pool = replace(pool, upgrade=replace(pool.upgrade, auto_upgrade=False))
    decision = decided(pool, busy, waiting, other)
    assert sorted(written(decision).in_flight) == [busy.uid]
    assert {name: code_of(decision, name) for name in ("waiting", "other")} == {
        "waiting": code,
        "other": code,
    }
    assert decision.waits.get("busy", decision.steps.get("busy")) is not None


def test_a_foreign_operator_stops_every_start() -> None:
    pool = open_pool(upgrade=ALL, base=9, record=of_target())
    now = instant(foreign_operator="the GPU Operator renews its Lease")
    decision = decided(pool, candidate("node-1"), now=now)
    assert code_of(decision, "node-1") is WaitCode.FOREIGN_OPERATOR
    assert not any(write.granted for write in decision.rollouts)


def test_a_freeze_holds_everything_and_cancels_evictions() -> None:
    evictions = (PodEviction(uid="p", since=NOW),)
    busy = replace(in_state(UpgradeState.POD_DELETION_REQUIRED, "busy"), evictions=evictions)
    waiting = candidate("waiting")
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=of_target(),
        in_flight={**entries(busy), waiting.uid: entry(waiting, since=NOW - 500)},
        spec=RolloutSpec(brake=Brake.FREEZE),
    )
    decision = decided(pool, busy, waiting, candidate("other"))
    assert decision.steps == {}
    assert {wait.code for wait in decision.waits.values()} == {WaitCode.FROZEN}
    assert decision.cancelled == ("busy",)
    status = written(decision)
    assert (status.frozen_since, status.frozen_seconds) == (NOW, 0.0)


def test_frozen_time_is_added_once_when_the_freeze_ends() -> None:
    pool = open_pool(upgrade=ALL, base=9, record=of_target())
    pool = with_status(pool, frozen_since=NOW - 100, frozen_seconds=7.0)
    decision = decided(pool, candidate("node-1"))
    assert code_of(decision, "node-1") is WaitCode.FROZEN
    after = written(decision)
    assert (after.frozen_since, after.frozen_seconds) == (None, 107.0)


def test_a_release_ends_the_halt_of_its_target_only() -> None:
    spec = RolloutSpec(release=Release(target=NEW, failures=1))
    pool = open_pool(upgrade=ALL, base=9, record=HALTED, spec=spec)
    (write,) = decided(pool, *candidates(4)).rollouts
    assert write.granted == ("node-00",)
    assert write.status.targets[NEW] == replace(HALTED, accepted=1)
    other_release = RolloutSpec(release=Release(target=OLD, failures=1))
    halted_pool = open_pool(upgrade=ALL, base=9, record=HALTED, spec=other_release)
    assert code_of(decided(halted_pool, *candidates(4)), "node-00") is WaitCode.HALTED


def test_a_join_on_the_last_good_target_is_kept_while_the_wanted_one_is_halted() -> None:
    joins = node("joins")
    status = {
        "in_flight": {joins.uid: InFlight(node="joins", token=1, target=OLD, since=NOW - 5)},
        "targets": {NEW: HALTED, OLD: of_target()},
    }
    pool = edited(NEW, **status)
    decision = decided(pool, joins)
    assert written(decision).in_flight.keys() == {joins.uid}
    actions = decision.steps["joins"].actions
    (write,) = [action for action in actions if isinstance(action, WriteNode)]
    assert write.applied.driver_label == label_of(OLD)


HALTED_ON_THIRD = TargetRecord(threshold=1, failed=("gone",), halted_because="1 of 1 failures")


def busy(name: str, *, since: float = NOW - 5, outside: bool = False) -> NodeView:
    view = in_flight_node(name=name, record={"outside": outside})
    return replace(view, lease=lease(name, since=since))


@pytest.mark.parametrize(("base", "threshold"), [(100, 50), (0, 2)])
def test_a_threshold_is_computed_from_the_base_or_the_present_nodes(
    base: int, threshold: int
) -> None:
    strategy = StrategySpec(failure_threshold="50%")
    granting_pool = open_pool(upgrade=ALL, base=base, strategy=strategy)
    assert written(decided(granting_pool, *candidates(4))).targets[NEW].threshold == threshold
    pool_on_old = replace(granting_pool, target=OLD)
    assert evaluate(pool_on_old, *map(busy, "abcd")).records[NEW].threshold == threshold


def test_a_removal_grant_is_kept_whatever_target_is_wanted() -> None:
    waits = candidate("n")
    evaluation = evaluate(edited(in_flight={waits.uid: entry(waits, target="")}), waits)
    assert evaluation.withdrawn == frozenset()


def test_only_a_joining_node_keeps_a_grant_on_the_last_good_target() -> None:
    joins, runs = without_driver(node("joins")), candidate("runs")
    good = TargetRecord(threshold=1, proven=True, proven_at=NOW - 999)
    for target, dropped in ((OLD, {runs.uid}), (NEW, {runs.uid, joins.uid})):
        granted = {view.uid: entry(view, target=target) for view in (joins, runs)}
        pool = edited(in_flight=granted, targets={OLD: good, THIRD: HALTED_ON_THIRD})
        assert evaluate(pool, joins, runs).withdrawn == dropped


@pytest.mark.parametrize("changes", [{"gone": True}, {"errors": ("it is wrong",)}, {"target": ""}])
def test_no_node_is_retargeted_while_the_target_is_unknown(changes: dict[str, object]) -> None:
    view = busy("n")
    evaluation = evaluate(replace(edited(in_flight=entries(view)), **changes), view)
    assert (dict(evaluation.retargeted), dict(evaluation.constraints.to_release)) == ({}, {})


def test_a_retargeted_node_outside_the_counts_takes_no_slot() -> None:
    first, second = busy("first", outside=True), busy("second")
    granted = entries(first, second)
    granted[first.uid] = replace(granted[first.uid], outside=True)
    evaluation = evaluate(edited(in_flight=granted), first, second)
    assert evaluation.retargeted.keys() == {first.uid, second.uid}


def test_a_node_moved_back_to_its_counted_target_needs_no_slot() -> None:
    view = busy("n")
    pool = edited(in_flight=entries(view, target=THIRD), target=NEW)
    assert evaluate(pool, view).retargeted.keys() == {view.uid}


@pytest.mark.parametrize("outside", [False, True])
def test_no_node_is_retargeted_to_a_halted_target(*, outside: bool) -> None:
    view = busy("n", outside=outside)
    proven = replace(HALTED_ON_THIRD, proven=True, proven_at=NOW - 99)
    pool = edited(in_flight=entries(view, outside=outside), targets={THIRD: proven})
    evaluation = evaluate(pool, view)
    assert dict(evaluation.retargeted) == {}
    assert evaluation.constraints.to_release.keys() == {view.uid}
    assert THIRD in evaluation.constraints.to_release[view.uid]


def test_all_nodes_are_retargeted_to_a_proven_target() -> None:
    nodes = [busy("first"), busy("second")]
    proven = TargetRecord(threshold=1, proven=True)
    evaluation = evaluate(edited(in_flight=entries(*nodes), targets={THIRD: proven}), *nodes)
    assert evaluation.retargeted.keys() == {"uid-first", "uid-second"}


def test_a_node_outside_the_counts_is_retargeted_beyond_the_limit() -> None:
    """A person lowered the number of accepted failures."""
    in_flight = [in_flight_node(name=name, record={"target": THIRD}) for name in ("one", "two")]
    moves = busy("moves", outside=True)
    granted = entries(*in_flight, target=THIRD) | entries(moves, outside=True)
    pool = edited(in_flight=granted, targets={THIRD: TargetRecord(threshold=1)})
    assert evaluate(pool, *in_flight, moves).retargeted.keys() == {moves.uid}


def test_a_start_that_costs_no_availability_needs_no_budget() -> None:
    """A validation, a start on an unoccupied node, and a start that costs availability."""
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
    pool = replace(edited(in_flight=granted, target=NEW), upgrade=open_pool().upgrade)
    closed_pool = replace(pool, upgrade=replace(pool.upgrade, max_unavailable=0))
    assert evaluate(closed_pool, validated, bare, taken).held_back == {taken.uid}


@pytest.mark.parametrize("kept", [True, False])
def test_an_unwanted_complete_target_is_kept_while_a_node_moves_to_it(*, kept: bool) -> None:
    view = busy("n")
    old = TargetRecord(threshold=1, complete=True, proven=True, proven_at=NOW - 999)
    good = replace(old, proven_at=NOW - 99)
    in_flight = entries(view) if kept else {}
    pool = edited(in_flight=in_flight, targets={NEW: old, OLD: good, THIRD: HALTED_ON_THIRD})
    (write,) = decided(pool, *[view] * kept).rollouts
    assert (NEW in write.status.targets) is kept
