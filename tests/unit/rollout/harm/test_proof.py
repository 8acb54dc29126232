"""The proof phase: how many nodes start (docs/states.md#harm): a case for each sentence."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import NodeRecord, Operation, UpgradeState
from libs.contracts.rollout import (
    InFlight,
    Release,
    RolloutPhase,
    RolloutSpec,
    TargetRecord,
    Vanished,
)
from libs.contracts.waits import WaitCode
from libs.policy.kinds.strategy import StrategySpec
from libs.rollout.decide import Decider
from libs.rollout.pool import harm
from libs.rollout.views.node import NodeView
from tests.unit.rollout.allocate.builders import (
    candidate,
    candidates,
    checked,
    code_of,
    decided,
    entry,
    granted_to,
    of_target,
    open_pool,
    written,
)
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    done,
    failed,
    fleet,
    idle_components,
    in_flight_node,
    instant,
    node,
    required,
    with_record,
    with_status,
)

ALL = {"max_parallel_upgrades": 0, "max_unavailable": "100%"}
UNPROVEN = TargetRecord(threshold=2)


def in_flight(*nodes: NodeView, **changes: object) -> dict[str, InFlight]:
    """Return the entries of nodes leased under the token of `in_flight_node`."""
    return {view.uid: replace(entry(view, token=7), **changes) for view in nodes}


@pytest.mark.parametrize(
    ("nodes", "parallel", "most", "threshold", "failed", "flying", "accepted", "starts"),
    [
        (5, 0, "25%", "5%", 0, 0, 0, 1),  # T = 1
        (30, 0, "25%", "5%", 0, 0, 0, 2),  # T = 2
        (30, 0, "25%", "5%", 0, 1, 0, 1),
        (30, 0, "25%", "5%", 0, 2, 0, 0),
        (30, 0, "25%", "5%", 1, 0, 0, 1),
        (30, 0, "25%", "5%", 1, 1, 0, 0),
        (30, 0, "25%", "5%", 2, 0, 0, 0),  # halted
        (30, 0, "25%", "5%", 2, 0, 1, 1),  # released for one more
        (30, 0, "25%", "5%", 2, 0, 2, 2),
        (30, 0, "25%", "5%", 2, 1, 2, 1),
        (30, 1, "25%", "5%", 0, 0, 0, 1),  # the budget is narrower
        (30, 0, 1, "5%", 0, 0, 0, 1),
        (30, 0, 0, "5%", 0, 0, 0, 0),
        (30, 0, "100%", "50%", 0, 0, 0, 15),
        (30, 0, "100%", 40, 0, 0, 0, 30),  # fewer nodes than T
    ],
)
def test_the_number_of_starts_in_a_proof(
    *,
    nodes: int,
    parallel: int,
    most: int | str,
    threshold: int | str,
    failed: int,
    flying: int,
    accepted: int,
    starts: int,
) -> None:
    """The GPU Operator has no such phase."""
    waiting = [candidate(f"node-{n:02}") for n in range(nodes - failed - flying)]
    busy = [in_flight_node("wait-for-jobs-required", f"busy-{n}") for n in range(flying)]
    strategy = StrategySpec(failure_threshold=threshold)
    record = TargetRecord(
        threshold=harm.threshold(strategy, base=nodes),
        failed=tuple(f"gone-{n}" for n in range(failed)),
    )
    pool = open_pool(
        upgrade={"max_parallel_upgrades": parallel, "max_unavailable": most},
        record=record if failed or flying else None,
        base=nodes,
        in_flight=in_flight(*busy),
        strategy=strategy,
        spec=RolloutSpec(release=Release(target=NEW, failures=accepted)) if accepted else None,
        phase=RolloutPhase.PROVING,
    )
    assert len(granted_to(pool, *waiting, *busy)) == starts


def test_the_threshold_is_fixed_at_the_first_grant() -> None:
    pool = open_pool(upgrade=ALL, base=40)
    status = written(decided(pool, *candidates(30)))
    assert status.targets == {NEW: TargetRecord(threshold=2)}
    wider = replace(pool, strategy=StrategySpec(failure_threshold="50%"))
    reopened = open_pool(upgrade=ALL, base=40, record=UNPROVEN, strategy=wider.strategy)
    assert len(granted_to(reopened, *candidates(30))) == 2


def test_after_the_proof_only_the_budget_limits() -> None:
    proof = [done("first"), done("second")]
    flights = {view.uid: replace(entry(view), token=7) for view in proof}
    pool = open_pool(
        upgrade=ALL, base=9, record=UNPROVEN, in_flight=flights, phase=RolloutPhase.PROVING
    )
    (write,) = decided(pool, *proof, *candidates(7)).rollouts
    record = write.status.targets[NEW]
    assert (record.validated, record.proven) == (("uid-first", "uid-second"), True)
    assert len(write.granted) == 7
    assert (write.status.phase, write.status.last_good) == (RolloutPhase.PROVEN, NEW)


def test_a_halt_is_detected_before_anything_else() -> None:
    """The failure is read from the Node before the Rollout lists it."""
    broken = failed("broken")
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=TargetRecord(threshold=1),
        in_flight=in_flight(broken),
        phase=RolloutPhase.PROVING,
    )
    decision = decided(pool, broken, *candidates(3))
    status = written(decision)
    assert status.phase is RolloutPhase.HALTED
    assert status.because.startswith("by Sluice, as 1 node failed ")
    assert status.targets[NEW].failed == ("uid-broken",)
    assert {decision.waits[f"node-0{n}"].code for n in range(3)} == {WaitCode.HALTED}


def test_a_reopened_rollout_is_halted_too() -> None:
    record = of_target(failed=("gone",), complete=True)
    pool = open_pool(upgrade=ALL, base=9, record=record, phase=RolloutPhase.COMPLETE)
    decision = decided(pool, *candidates(3))
    assert written(decision).phase is RolloutPhase.HALTED
    assert code_of(decision, "node-00") is WaitCode.HALTED


def test_a_failure_before_the_start_is_no_harm() -> None:
    broken = failed("broken")
    broken = with_record(broken, started=False, cause="eviction: ml/train-0")
    pool = open_pool(
        upgrade=ALL, base=9, record=TargetRecord(threshold=1), in_flight=in_flight(broken)
    )
    status = written(decided(pool, broken))
    assert (status.targets[NEW].failed, status.in_flight) == ((), {})


def test_a_failed_first_bring_up_is_harm() -> None:
    broken = failed("broken")
    assert isinstance(broken.record, NodeRecord)
    record = replace(broken.record, operation=Operation.BRING_UP, label_before="")
    pool = open_pool(
        upgrade=ALL, base=9, record=TargetRecord(threshold=1), in_flight=in_flight(broken)
    )
    status = written(decided(pool, replace(broken, record=record)))
    assert status.targets[NEW].failed == ("uid-broken",)


ALSO_GONE = {"uid-also-gone": InFlight(node="also", token=7, target=NEW, since=NOW)}


@pytest.mark.parametrize(("threshold", "started"), [(2, []), (3, ["uid-node-00"])])
def test_failures_and_nodes_that_vanished_stay_counted(threshold: int, started: list[str]) -> None:
    record = TargetRecord(threshold=threshold, failed=("uid-gone",))
    pool = open_pool(upgrade=ALL, base=9, record=record, in_flight=ALSO_GONE)
    status = written(decided(pool, *candidates(2)))
    assert status.targets[NEW].failed == ("uid-gone",)
    assert list(status.targets[NEW].vanished) == ["uid-also-gone"]
    assert sorted(status.in_flight) == started
    assert (status.phase is RolloutPhase.HALTED) == (not started)


def test_a_halt_by_nodes_that_vanished_names_them_and_its_cause() -> None:
    pool = open_pool(upgrade=ALL, base=9, record=TargetRecord(threshold=1), in_flight=ALSO_GONE)
    status = written(decided(pool, *candidates(2)))
    (halted,) = [each for each in status.conditions if each.type == "Halted"]
    assert (halted.status, halted.reason) == ("True", "Vanished")
    assert (
        "1 node vanished while the driver was changed (also, in flight since 20" in halted.message
    )


def test_a_proven_target_does_not_count_who_vanishes() -> None:
    record = TargetRecord(threshold=1, validated=("uid-v",), proven=True)
    pool = open_pool(upgrade=ALL, base=9, record=record, in_flight=ALSO_GONE)
    status = written(decided(pool, *candidates(2)))
    assert status.phase is RolloutPhase.PROVEN
    assert not status.targets[NEW].vanished


@pytest.mark.parametrize(
    ("state", "write_pending", "is_counted"),
    [
        (UpgradeState.DRAIN_REQUIRED, False, False),
        (UpgradeState.DRAIN_REQUIRED, True, True),  # the write that starts it may be on its way
        (UpgradeState.POD_RESTART_REQUIRED, False, True),
    ],
)
def test_who_may_have_started_when_last_seen_counts_as_vanished(
    state: UpgradeState, write_pending: bool, is_counted: bool
) -> None:
    view = replace(in_flight_node(state, "gone"), write_pending=write_pending)
    pool = open_pool(
        upgrade=ALL, base=9, record=TargetRecord(threshold=2), in_flight=in_flight(view)
    )
    decider = Decider(fleet(pool, view))
    decider.decide(instant())
    decider.update((), ("gone",), (), ())
    status = written(decider.decide(instant(NOW + 5)))
    assert bool(status.targets[NEW].vanished) is is_counted


def test_a_release_of_vanished_nodes_keeps_what_is_validated() -> None:
    record = TargetRecord(
        threshold=2,
        validated=("uid-v",),
        vanished={uid: Vanished(node=uid, since=NOW) for uid in ("uid-1", "uid-2")},
        halted_because="by Sluice",
    )
    release = Release(target=NEW, failures=2)
    after = harm.updated_record(
        record, RolloutSpec(release=release), NEW, failed=(), validated=(), vanished={}, now=NOW
    )
    assert (after.validated, after.is_halted, after.accepted) == (("uid-v",), False, 2)
    assert harm.starts_left(after, set()) == 2


def test_editing_the_policy_away_and_back_clears_no_failure() -> None:
    record = TargetRecord(threshold=2, failed=("gone",))
    pool_on_old = open_pool(
        upgrade=ALL, base=9, record=record, target=OLD, phase=RolloutPhase.PROVING
    )
    status = written(decided(pool_on_old, *[done(f"done-{n}", OLD) for n in range(3)]))
    assert status.phase is RolloutPhase.COMPLETE
    assert status.targets[NEW].failed == ("gone",)


def test_a_retry_of_a_failed_node_counts_once() -> None:
    """Beside one node in flight and one failure there is no slot for a third."""
    busy = in_flight_node("wait-for-jobs-required", "busy")
    retried = checked(_required_again("retried", target=NEW))
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=TargetRecord(threshold=2, failed=("uid-retried",)),
        in_flight=in_flight(busy),
    )
    assert granted_to(pool, busy, retried, candidate("other")) == ["retried"]


def test_no_retry_starts_beyond_the_proof_slots() -> None:
    """A person lowered the number of accepted failures."""
    busy = [in_flight_node("wait-for-jobs-required", f"busy-{n}") for n in range(2)]
    retried = checked(_required_again("retried", target=NEW))
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=TargetRecord(threshold=2, accepted=1, failed=("uid-retried",)),
        in_flight=in_flight(*busy),
    )
    decision = decided(pool, *busy, retried)
    assert code_of(decision, "retried") is WaitCode.PROOF


def _required_again(name: str, target: str, **changes: object) -> NodeView:
    view = failed(name, target)
    return replace(
        with_record(view, state="upgrade-required", asked=True, **changes), state="upgrade-required"
    )


def test_nodes_that_failed_on_an_earlier_target_start_first_and_outside_the_counts() -> None:
    first = checked(_required_again("z-1", target=OLD))
    second = checked(_required_again("z-2", target=OLD))
    busy = in_flight_node("wait-for-jobs-required", "busy")
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 1, "max_unavailable": "100%"},
        base=9,
        record=TargetRecord(threshold=1),
        in_flight=in_flight(busy),
    )
    decision = decided(pool, busy, first, second, candidate("a"))
    (write,) = decision.rollouts
    assert write.granted == ("z-1",)
    assert write.status.in_flight["uid-z-1"].outside
    assert code_of(decision, "z-2") is WaitCode.BUDGET
    assert code_of(decision, "a") is WaitCode.PROOF


def test_an_adopted_node_takes_a_place_of_the_proof() -> None:
    """Its labels say that it was moving to an earlier target, but nothing proves that it failed."""
    view = required("adopted", components=idle_components("adopted"))
    adopted = checked(with_record(view, started=True, evidence=None))
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=TargetRecord(threshold=1, accepted=1, failed=("uid-failed",)),
        spec=RolloutSpec(release=Release(target=NEW, failures=1)),
    )
    decision = decided(pool, adopted, candidate("healthy"))
    (write,) = decision.rollouts
    assert write.granted == ("adopted",)
    assert not write.status.in_flight["uid-adopted"].outside
    assert code_of(decision, "healthy") is WaitCode.PROOF


def test_a_failure_outside_the_counts_is_no_harm() -> None:
    broken = failed("broken")
    broken = with_record(broken, outside=True)
    pool = open_pool(
        upgrade=ALL,
        base=9,
        record=TargetRecord(threshold=1),
        in_flight=in_flight(broken, outside=True),
        phase=RolloutPhase.PROVING,
    )
    status = written(decided(pool, broken))
    assert (status.targets[NEW].failed, status.in_flight) == ((), {})


def test_a_halt_also_stops_nodes_that_failed_earlier() -> None:
    pool = open_pool(upgrade=ALL, base=9, record=TargetRecord(threshold=1, failed=("gone",)))
    decision = decided(pool, checked(_required_again("z-1", target=OLD)))
    assert code_of(decision, "z-1") is WaitCode.HALTED


HALTED = TargetRecord(threshold=1, failed=("gone",))


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ({NEW: of_target()}, NEW),
        ({NEW: HALTED, OLD: of_target()}, OLD),
        ({NEW: HALTED}, WaitCode.HALTED),
        ({NEW: TargetRecord(threshold=2)}, NEW),
        ({NEW: HALTED, OLD: HALTED}, WaitCode.HALTED),
    ],
)
def test_the_target_of_a_joining_node(
    records: dict[str, TargetRecord], expected: str | WaitCode
) -> None:
    pool = open_pool(upgrade=ALL, base=9)
    pool = with_status(pool, targets=records)
    joins = checked(node("joins"), target=OLD if expected == OLD else NEW)
    decision = decided(pool, joins)
    if isinstance(expected, WaitCode):
        assert code_of(decision, "joins") is expected
    else:
        assert written(decision).in_flight["uid-joins"].target == expected


def test_the_oldest_nodes_of_the_proof_are_named_first() -> None:
    newer, older = (
        in_flight_node("wait-for-jobs-required", name) for name in ("a-late", "z-early")
    )
    flights = in_flight(newer, since=NOW - 10) | in_flight(older, since=NOW - 500)
    pool = open_pool(upgrade=ALL, base=9, record=UNPROVEN, in_flight=flights)
    wait = decided(pool, newer, older, candidate("node-1")).waits["node-1"]
    assert wait.code is WaitCode.PROOF
    assert "z-early, a-late" in wait.detail
    assert "z-early, a-late" in wait.who
