"""What becomes of places when policy, brake or proof change midway (docs/states.md#variations)."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import NodeRecord, Operation, UpgradeState
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
)

THIRD = "target-third"
JOBS, RESTART = UpgradeState.WAIT_FOR_JOBS_REQUIRED, UpgradeState.POD_RESTART_REQUIRED
ALL = {"max_parallel_upgrades": 0, "max_unavailable": "100%"}
HALTED = TargetRecord(threshold=1, failed=("gone",))


def at(state: UpgradeState, name: str = "node-1") -> NodeView:
    return in_flight_node(state, name, pods=())


def places(*nodes: NodeView, target: str = NEW) -> dict[str, InFlight]:
    return {one.uid: entry(one, token=7, target=target) for one in nodes}


def edited(target: str = THIRD, **changes: object) -> PoolView:
    """A pool with nodes in flight on NEW whose policy wants another target now."""
    made = open_pool(upgrade=ALL, base=9, targets=(OLD, NEW, THIRD), target=target)
    assert made.rollout is not None
    status = replace(made.rollout.status, **changes)
    return replace(made, rollout=replace(made.rollout, status=status))


def reckoned(pool: PoolView, *nodes: NodeView) -> PoolEvaluation:
    """What is said to the steps of nodes, and what is done to their places."""
    tally = PoolTally()
    assert pool.rollout is not None
    for one in nodes:
        place = pool.rollout.status.in_flight.get(one.uid)
        tally.put(contribution_of(one, place, pool.key, NOW))
    return evaluate_pool(pool, tally, instant(), leading=True)


def test_before_the_start_it_takes_the_new_target_as_the_first_write_of_all() -> None:
    busy = at(JOBS)
    decision = decided(edited(in_flight=places(busy)), busy)
    status = written(decision)
    assert status.in_flight[busy.uid].target == THIRD
    assert status.targets[THIRD].threshold == 1
    assert decision.steps == {}
    then = reckoned(edited(in_flight=places(busy, target=THIRD)), busy)
    assert (dict(then.retargeted), dict(then.constraints.to_release)) == ({}, {})


def test_of_several_only_as_many_as_the_new_target_admits_and_the_rest_are_released() -> None:
    first, second = at(JOBS, "first"), at(JOBS, "second")
    in_flight = places(first, second)
    in_flight[second.uid] = replace(in_flight[second.uid], since=NOW - 99)
    made = reckoned(edited(in_flight=in_flight), first, second)
    assert {uid: entry.target for uid, entry in made.retargeted.items()} == {second.uid: THIRD}
    assert made.constraints.to_release.keys() == {first.uid}


@pytest.mark.parametrize("record", [HALTED, TargetRecord(threshold=1, failed=("a", "b"))])
def test_where_the_new_target_is_halted_it_is_released(record: TargetRecord) -> None:
    busy = at(JOBS)
    made = reckoned(edited(in_flight=places(busy), targets={THIRD: record}), busy)
    assert (dict(made.retargeted), list(made.constraints.to_release)) == ({}, [busy.uid])


def test_where_its_own_target_was_halted_it_takes_the_new_one_all_the_same() -> None:
    busy = at(JOBS)
    made = reckoned(edited(in_flight=places(busy), targets={NEW: HALTED}), busy)
    assert (list(made.retargeted), dict(made.constraints.to_release)) == ([busy.uid], {})


def test_who_has_not_begun_gives_its_place_back() -> None:
    waiting = candidate("node-1")
    decision = decided(edited(in_flight={waiting.uid: entry(waiting)}), waiting)
    assert written(decision).in_flight == {}
    assert code_of(decision, "node-1") is WaitCode.BUDGET


def test_a_place_stays_while_a_write_to_its_node_is_on_the_way() -> None:
    """It may begin, or start, on what was granted: then that is known, and it is dealt with."""
    beginning, starting = (
        replace(candidate("one"), write_pending=True),
        replace(at(JOBS, "two"), write_pending=True),
    )
    in_flight = {beginning.uid: entry(beginning), **places(starting)}
    made = reckoned(edited(in_flight=in_flight), beginning, starting)
    assert (made.withdrawn, dict(made.retargeted)) == (frozenset(), {})
    calm = [replace(one, write_pending=False) for one in (beginning, starting)]
    made = reckoned(edited(in_flight=in_flight), *calm)
    assert (made.withdrawn, list(made.retargeted)) == (frozenset({beginning.uid}), [starting.uid])


@pytest.mark.parametrize(
    "changes",
    [
        {"target": THIRD, "targets": (OLD, NEW, THIRD)},
        {"spec": RolloutSpec(brake=Brake.PAUSE)},
        {"record": HALTED},
    ],
)
def test_a_place_stays_while_a_beginning_may_yet_be_carried_out_and_it_is_not_repeated(
    changes: dict[str, Any],
) -> None:
    waiting = replace(candidate("one"), unconfirmed_write_at=NOW - 59)
    in_flight = {waiting.uid: entry(waiting)}
    given: dict[str, Any] = {"record": of_target(), **changes}
    pool = open_pool(upgrade=ALL, base=9, in_flight=in_flight, **given)
    made = reckoned(pool, waiting)
    assert (made.withdrawn, made.constraints.may_begin) == (frozenset(), frozenset())
    assert dict(made.constraints.in_flight) == in_flight
    assert not any(
        isinstance(action, WriteNode)
        for step in decided(pool, waiting).steps.values()
        for action in step.actions
    )
    for known in (None, NOW - 60):
        assert reckoned(pool, replace(waiting, unconfirmed_write_at=known)).withdrawn == {
            waiting.uid
        }


def test_where_it_is_wanted_still_it_is_repeated() -> None:
    waiting = replace(candidate("one"), unconfirmed_write_at=NOW - 1)
    pool = open_pool(
        upgrade=ALL, base=9, record=of_target(), in_flight={waiting.uid: entry(waiting)}
    )
    step = decided(pool, waiting).steps["one"]
    assert any(isinstance(action, WriteNode) for action in step.actions)


@pytest.mark.parametrize(("limit", "begin"), [(1, {"first"}), (2, {"first", "second"}), (0, set())])
def test_it_counts_as_begun_for_those_who_begin_beside_it(limit: int, begin: set[str]) -> None:
    """Also where another one was granted before it."""
    first, second = replace(candidate("first"), unconfirmed_write_at=NOW - 1), candidate("second")
    in_flight = {first.uid: entry(first), second.uid: entry(second, since=NOW - 50)}
    upgrade = {**ALL, "max_unavailable": str(limit)}
    pool = open_pool(upgrade=upgrade, base=9, record=of_target(), in_flight=in_flight)
    lowered = reckoned(pool, first, second).constraints.may_begin
    assert lowered == {one.uid for one in (first, second) if one.name in begin}


def test_nobody_begins_under_a_place_that_has_ended() -> None:
    """It failed, and may be tried again: under a token of its own."""
    again = checked(required("again", state="upgrade-required"))
    assert isinstance(again.record, NodeRecord)
    record = replace(again.record, token=8, started=True, evidence=None, target=NEW, asked=True)
    again = replace(again, record=record)
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


def test_from_the_start_on_it_finishes_on_its_own_target_and_counts_there() -> None:
    busy = at(RESTART)
    decision = decided(edited(in_flight=places(busy)), busy, *candidates(2))
    assert written(decision).in_flight[busy.uid].target == NEW


def test_a_halt_releases_who_has_not_started_and_takes_out_who_has_not_begun() -> None:
    busy, started, waiting = at(JOBS, "busy"), at(RESTART, "started"), candidate("waiting")
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=TargetRecord(threshold=1, failed=("gone",)),
        in_flight={**places(busy, started), waiting.uid: entry(waiting)},
    )
    decision = decided(pool, busy, started, waiting)
    assert sorted(written(decision).in_flight) == [busy.uid, started.uid]
    assert code_of(decision, "waiting") is WaitCode.BUDGET
    made = reckoned(pool, busy, started, waiting)
    assert made.constraints.to_release == {
        busy.uid: f"target {NEW} is halted: 1 of 1 allowed failures"
    }
    assert waiting.uid not in made.constraints.may_begin


def test_what_is_merely_validated_goes_on_in_a_halt() -> None:
    again = at(UpgradeState.VALIDATION_REQUIRED)
    assert isinstance(again.record, NodeRecord)
    record = replace(again.record, operation=Operation.VALIDATE, outside=True, started=False)
    again = replace(again, record=record)
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=HALTED,
        in_flight={again.uid: entry(again, token=7, outside=True, validates=True)},
        phase=RolloutPhase.HALTED,
    )
    made = reckoned(pool, again)
    assert (dict(made.constraints.to_release), made.withdrawn) == ({}, frozenset())


def test_a_grant_to_validate_is_begun_in_a_halt_and_not_in_a_pause() -> None:
    broken = failed("broken")
    place = {broken.uid: entry(broken, outside=True, validates=True)}
    pool = open_pool(upgrade=ALL, base=9, record=HALTED, in_flight=place, phase=RolloutPhase.HALTED)
    assert reckoned(pool, broken).constraints.may_begin == {broken.uid}
    paused = replace(pool, upgrade=replace(pool.upgrade, auto_upgrade=False))
    assert reckoned(paused, broken).withdrawn == {broken.uid}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"upgrade": {**ALL, "auto_upgrade": False}}, WaitCode.PAUSED),
        ({"held": ("no such image",)}, WaitCode.PAUSED),
        ({"gone": True}, WaitCode.POLICY_GONE),
        ({"spec": RolloutSpec(brake=Brake.PAUSE)}, WaitCode.PAUSED),
    ],
)
def test_where_nothing_starts_what_is_in_flight_finishes(
    changes: dict[str, object], code: WaitCode
) -> None:
    busy, waiting, other = at(RESTART, "busy"), candidate("waiting"), candidate("other")
    rest = {name: value for name, value in changes.items() if name != "upgrade"}
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=of_target(),
        in_flight={**places(busy), waiting.uid: entry(waiting)},
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


def test_a_foreign_operator_stops_everything_that_has_not_begun() -> None:
    pool = open_pool(upgrade=ALL, base=9, record=of_target())
    now = instant(foreign_operator="the GPU Operator renews its Lease")
    decision = decided(pool, candidate("node-1"), now=now)
    assert code_of(decision, "node-1") is WaitCode.FOREIGN_OPERATOR
    assert not any(write.granted for write in decision.rollouts)


def test_a_freeze_holds_everything_and_cancels_evictions() -> None:
    leaving = (PodEviction(uid="p", since=NOW),)
    busy = replace(at(UpgradeState.POD_DELETION_REQUIRED, "busy"), evictions=leaving)
    waiting = candidate("waiting")
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=of_target(),
        in_flight={**places(busy), waiting.uid: entry(waiting, since=NOW - 500)},
        spec=RolloutSpec(brake=Brake.FREEZE),
    )
    decision = decided(pool, busy, waiting, candidate("other"))
    assert decision.steps == {}
    assert {wait.code for wait in decision.waits.values()} == {WaitCode.FROZEN}
    assert decision.cancelled == ("busy",)
    status = written(decision)
    assert (status.frozen_since, status.frozen_seconds) == (NOW, 0.0)


def test_the_time_of_a_freeze_is_added_once_and_it_lasts_until_that_is_written() -> None:
    pool = open_pool(upgrade=ALL, base=9, record=of_target())
    assert pool.rollout is not None
    status = replace(pool.rollout.status, frozen_since=NOW - 100, frozen_seconds=7.0)
    pool = replace(pool, rollout=replace(pool.rollout, status=status))
    decision = decided(pool, candidate("node-1"))
    assert code_of(decision, "node-1") is WaitCode.FROZEN
    after = written(decision)
    assert (after.frozen_since, after.frozen_seconds) == (None, 107.0)


def test_a_release_ends_a_halt_of_its_target_alone() -> None:
    spec = RolloutSpec(release=Release(target=NEW, failures=1))
    pool = open_pool(upgrade=ALL, base=9, record=HALTED, spec=spec)
    (write,) = decided(pool, *candidates(4)).rollouts
    assert write.granted == ("node-00",)
    assert write.status.targets[NEW] == replace(HALTED, accepted=1)
    other = RolloutSpec(release=Release(target=OLD, failures=1))
    still = open_pool(upgrade=ALL, base=9, record=HALTED, spec=other)
    assert code_of(decided(still, *candidates(4)), "node-00") is WaitCode.HALTED


def test_a_join_on_the_last_good_target_is_not_adrift_while_the_wanted_one_is_halted() -> None:
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
