"""Entries in flight when policy, brake or proof change (docs/states.md#variations)."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import Operation, UpgradeState
from libs.contracts.rollout import Brake, InFlight, Release, RolloutPhase, RolloutSpec, TargetRecord
from libs.contracts.waits import WaitCode
from libs.rollout.decision import WriteNode
from libs.rollout.reconcile.contribution import contribution_of
from libs.rollout.reconcile.evaluation import PoolEvaluation, evaluate_pool
from libs.rollout.reconcile.pool_tally import PoolTally
from libs.rollout.views.machine import PodEviction
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
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
    node,
    required,
    with_record,
)

THIRD = "target-third"
JOBS, RESTART = UpgradeState.WAIT_FOR_JOBS_REQUIRED, UpgradeState.POD_RESTART_REQUIRED
ALL = {"max_parallel_upgrades": 0, "max_unavailable": "100%"}
HALTED = TargetRecord(threshold=1, failed=("gone",))


def in_state(state: UpgradeState, name: str = "node-1") -> NodeView:
    return in_flight_node(state, name, pods=())


def entries(*nodes: NodeView, target: str = NEW) -> dict[str, InFlight]:
    return {one.uid: entry(one, token=7, target=target) for one in nodes}


def edited(target: str = THIRD, **changes: object) -> PoolView:
    made = open_pool(upgrade=ALL, base=9, targets=(OLD, NEW, THIRD), target=target)
    assert made.rollout is not None
    status = replace(made.rollout.status, **changes)
    return replace(made, rollout=replace(made.rollout, status=status))


def evaluate(pool: PoolView, *nodes: NodeView) -> PoolEvaluation:
    tally = PoolTally()
    assert pool.rollout is not None
    for one in nodes:
        place = pool.rollout.status.in_flight.get(one.uid)
        tally.put(contribution_of(one, place, pool.key, NOW))
    return evaluate_pool(pool, tally, instant(), leading=True)


def test_before_the_start_a_new_target_is_first_written_to_the_rollout() -> None:
    busy = in_state(JOBS)
    decision = decided(edited(in_flight=entries(busy)), busy)
    status = written(decision)
    assert status.in_flight[busy.uid].target == THIRD
    assert status.targets[THIRD].threshold == 1
    assert decision.steps == {}
    then = evaluate(edited(in_flight=entries(busy, target=THIRD)), busy)
    assert (dict(then.retargeted), dict(then.constraints.to_release)) == ({}, {})


def test_only_as_many_nodes_are_retargeted_as_the_proof_has_slots() -> None:
    first, second = in_state(JOBS, "first"), in_state(JOBS, "second")
    in_flight = entries(first, second)
    in_flight[second.uid] = replace(in_flight[second.uid], since=NOW - 99)
    made = evaluate(edited(in_flight=in_flight), first, second)
    assert {uid: entry.target for uid, entry in made.retargeted.items()} == {second.uid: THIRD}
    assert made.constraints.to_release.keys() == {first.uid}


@pytest.mark.parametrize("record", [HALTED, TargetRecord(threshold=1, failed=("a", "b"))])
def test_a_halted_new_target_releases_the_node(record: TargetRecord) -> None:
    busy = in_state(JOBS)
    made = evaluate(edited(in_flight=entries(busy), targets={THIRD: record}), busy)
    assert (dict(made.retargeted), list(made.constraints.to_release)) == ({}, [busy.uid])


def test_a_halted_old_target_does_not_prevent_retargeting() -> None:
    busy = in_state(JOBS)
    made = evaluate(edited(in_flight=entries(busy), targets={NEW: HALTED}), busy)
    assert (list(made.retargeted), dict(made.constraints.to_release)) == ([busy.uid], {})


def test_an_unused_grant_is_withdrawn() -> None:
    waiting = candidate("node-1")
    decision = decided(edited(in_flight={waiting.uid: entry(waiting)}), waiting)
    assert written(decision).in_flight == {}
    assert code_of(decision, "node-1") is WaitCode.BUDGET


def test_an_entry_stays_while_a_write_to_its_node_is_pending() -> None:
    """The write may begin or start on what was granted; its outcome is dealt with afterwards."""
    beginning, starting = (
        replace(candidate("one"), write_pending=True),
        replace(in_state(JOBS, "two"), write_pending=True),
    )
    in_flight = {beginning.uid: entry(beginning), **entries(starting)}
    made = evaluate(edited(in_flight=in_flight), beginning, starting)
    assert (made.withdrawn, dict(made.retargeted)) == (frozenset(), {})
    calm = [replace(one, write_pending=False) for one in (beginning, starting)]
    made = evaluate(edited(in_flight=in_flight), *calm)
    assert (made.withdrawn, list(made.retargeted)) == (frozenset({beginning.uid}), [starting.uid])


@pytest.mark.parametrize(
    "changes",
    [
        {"target": THIRD, "targets": (OLD, NEW, THIRD)},
        {"spec": RolloutSpec(brake=Brake.PAUSE)},
        {"record": HALTED},
    ],
)
def test_an_entry_stays_while_a_first_write_is_unconfirmed(
    changes: dict[str, Any],
) -> None:
    waiting = replace(candidate("one"), unconfirmed_write_at=NOW - 59)
    in_flight = {waiting.uid: entry(waiting)}
    given: dict[str, Any] = {"record": of_target(), **changes}
    pool = open_pool(upgrade=ALL, base=9, in_flight=in_flight, **given)
    made = evaluate(pool, waiting)
    assert (made.withdrawn, made.constraints.may_begin) == (frozenset(), frozenset())
    assert dict(made.constraints.in_flight) == in_flight
    assert not any(
        isinstance(action, WriteNode)
        for step in decided(pool, waiting).steps.values()
        for action in step.actions
    )
    for known in (None, NOW - 60):
        assert evaluate(pool, replace(waiting, unconfirmed_write_at=known)).withdrawn == {
            waiting.uid
        }


def test_an_unconfirmed_first_write_is_repeated_where_it_is_still_wanted() -> None:
    waiting = replace(candidate("one"), unconfirmed_write_at=NOW - 1)
    pool = open_pool(
        upgrade=ALL, base=9, record=of_target(), in_flight={waiting.uid: entry(waiting)}
    )
    step = decided(pool, waiting).steps["one"]
    assert any(isinstance(action, WriteNode) for action in step.actions)


@pytest.mark.parametrize(("limit", "begin"), [(1, {"first"}), (2, {"first", "second"}), (0, set())])
def test_an_unconfirmed_first_write_counts_as_begun(limit: int, begin: set[str]) -> None:
    """Even where another node was granted before it."""
    first, second = replace(candidate("first"), unconfirmed_write_at=NOW - 1), candidate("second")
    in_flight = {first.uid: entry(first), second.uid: entry(second, since=NOW - 50)}
    upgrade = {**ALL, "max_unavailable": str(limit)}
    pool = open_pool(upgrade=upgrade, base=9, record=of_target(), in_flight=in_flight)
    lowered = evaluate(pool, first, second).constraints.may_begin
    assert lowered == {one.uid for one in (first, second) if one.name in begin}


def test_no_start_under_an_entry_that_has_ended() -> None:
    """The node failed, and may be retried under a later token."""
    again = checked(required("again", state="upgrade-required"))
    again = with_record(again, token=8, started=True, evidence=None, target=NEW, asked=True)
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=of_target(threshold=9),
        in_flight={again.uid: entry(again, token=8)},
    )
    decision = decided(pool, again)
    assert not any(isinstance(one, WriteNode) for one in decision.steps["again"].actions)
    assert written(decision).targets[NEW].failed == (again.uid,)
    late = candidate("late")
    pool = open_pool(
        upgrade=ALL, base=9, record=of_target(), in_flight={late.uid: entry(late, since=NOW - 60)}
    )
    assert decided(pool, late).steps == {}


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
    made = evaluate(pool, busy, started, waiting)
    assert made.constraints.to_release == {busy.uid: f"target {NEW} is halted: 1 of 1 failures"}
    assert waiting.uid not in made.constraints.may_begin


def test_a_mere_validation_goes_on_in_a_halt() -> None:
    again = in_state(UpgradeState.VALIDATION_REQUIRED)
    again = with_record(again, operation=Operation.VALIDATE, outside=True, started=False)
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=HALTED,
        in_flight={again.uid: entry(again, token=7, outside=True, validates=True)},
        phase=RolloutPhase.HALTED,
    )
    made = evaluate(pool, again)
    assert (dict(made.constraints.to_release), made.withdrawn) == ({}, frozenset())


def test_a_validation_grant_begins_in_a_halt_but_not_in_a_pause() -> None:
    broken = failed("broken")
    place = {broken.uid: entry(broken, outside=True, validates=True)}
    pool = open_pool(upgrade=ALL, base=9, record=HALTED, in_flight=place, phase=RolloutPhase.HALTED)
    assert evaluate(pool, broken).constraints.may_begin == {broken.uid}
    paused = replace(pool, upgrade=replace(pool.upgrade, auto_upgrade=False))
    assert evaluate(paused, broken).withdrawn == {broken.uid}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"upgrade": {**ALL, "auto_upgrade": False}}, WaitCode.PAUSED),
        ({"held": ("no such image",)}, WaitCode.PAUSED),
        ({"gone": True}, WaitCode.POLICY_GONE),
        ({"spec": RolloutSpec(brake=Brake.PAUSE)}, WaitCode.PAUSED),
    ],
)
def test_nodes_in_flight_finish_where_nothing_starts(
    changes: dict[str, object], code: WaitCode
) -> None:
    busy, waiting, other = in_state(RESTART, "busy"), candidate("waiting"), candidate("other")
    rest = {name: value for name, value in changes.items() if name != "upgrade"}
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=of_target(),
        in_flight={**entries(busy), waiting.uid: entry(waiting)},
        **rest,  # pyright: ignore[reportArgumentType]
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
    leaving = (PodEviction(uid="p", since=NOW),)
    busy = replace(in_state(UpgradeState.POD_DELETION_REQUIRED, "busy"), evictions=leaving)
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
    assert pool.rollout is not None
    status = replace(pool.rollout.status, frozen_since=NOW - 100, frozen_seconds=7.0)
    pool = replace(pool, rollout=replace(pool.rollout, status=status))
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
    other = RolloutSpec(release=Release(target=OLD, failures=1))
    still = open_pool(upgrade=ALL, base=9, record=HALTED, spec=other)
    assert code_of(decided(still, *candidates(4)), "node-00") is WaitCode.HALTED


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
