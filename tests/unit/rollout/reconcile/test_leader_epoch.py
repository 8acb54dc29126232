"""The epoch of a new leader, and Rollouts that are missing (docs/states.md#leading, #reconcile)."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import UpgradeState
from libs.contracts.rollout import Brake, InFlight, RolloutPhase, RolloutStatus, TargetRecord
from libs.contracts.waits import WaitCode
from libs.rollout.decide import decide
from libs.rollout.decision import Decision
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.allocate.builders import (
    candidate,
    candidates,
    decided,
    of_target,
    open_pool,
)
from tests.unit.rollout.builders import (
    EPOCH,
    NEW,
    NOW,
    done,
    failed,
    fleet,
    in_flight_node,
    instant,
    node,
    required,
)

ALL = {"max_parallel_upgrades": 0, "max_unavailable": "100%"}


def of_epoch(pool: PoolView, epoch: int, **changes: object) -> PoolView:
    assert pool.rollout is not None
    status = replace(pool.rollout.status, epoch=epoch)
    return replace(pool, rollout=replace(pool.rollout, status=status, **changes))


def two(one: PoolView, epoch: int) -> PoolView:
    return of_epoch(replace(one, key="nvidiadriver-two", uid="other"), epoch)


def test_a_new_leader_writes_its_epoch_into_every_rollout_before_anything_else() -> None:
    pool = open_pool(upgrade=ALL, record=of_target(), base=3)
    old, new = of_epoch(pool, EPOCH - 1), two(pool, EPOCH)
    broken = failed("broken")
    decision = decide(fleet([old, new], candidate("node-1"), broken, required("node-2")), instant())
    assert decision.steps == {}
    (write,) = decision.rollouts
    assert old.rollout is not None
    assert (write.pool, write.granted) == (old.key, ())
    assert write.status == replace(old.rollout.status, epoch=EPOCH)
    assert decision.waits["node-1"].code is WaitCode.STALE
    assert decision.waits.keys() == {"node-1", "node-2", "broken"}


def test_it_waits_for_its_writes() -> None:
    pool = of_epoch(open_pool(upgrade=ALL, base=3), EPOCH - 1, write_pending=True)
    decision = decided(pool, candidate("node-1"))
    assert (decision.rollouts, decision.steps) == ((), {})


@pytest.mark.parametrize("epochs", [(EPOCH + 1, EPOCH), (EPOCH - 1, EPOCH + 1)])
def test_whom_a_later_leader_has_deposed_does_nothing(epochs: tuple[int, int]) -> None:
    pool = open_pool(upgrade=ALL, base=3)
    pools = [of_epoch(pool, epochs[0]), two(pool, epochs[1])]
    decision = decide(fleet(pools, candidate("node-1")), instant())
    assert decision.deposed
    assert (decision.steps, decision.rollouts, decision.waits) == ({}, (), {})


def without_rollout() -> PoolView:
    return replace(open_pool(upgrade=ALL), rollout=None)


def made(*nodes: object, pool: PoolView | None = None) -> Decision:
    return decided(pool or without_rollout(), *nodes)  # pyright: ignore[reportArgumentType]


def test_a_pool_that_never_had_a_rollout_gets_one_before_anything_is_done() -> None:
    adopted = node("adopted", state=UpgradeState.UPGRADE_DONE)
    decision = made(adopted, node("bare"))
    assert decision.steps == {}
    (write,) = decision.rollouts
    assert (write.uid, write.revision, write.brake, write.has_finalizer) == ("", "", None, False)
    assert write.status == RolloutStatus(
        target=NEW, epoch=EPOCH, counts=replace(write.status.counts, total=2)
    )


def test_a_rollout_that_was_lost_is_rebuilt_from_the_nodes_and_pauses() -> None:
    busy = in_flight_node("pod-restart-required", "busy")
    broken, well = failed("broken"), done("well")
    decision = made(busy, broken, well, candidate("node-1"))
    (write,) = decision.rollouts
    assert (write.brake, write.has_finalizer) == (Brake.PAUSE, True)
    status = write.status
    since = NOW - 60
    assert status.in_flight == {
        busy.uid: InFlight(node="busy", token=7, target=NEW, since=since),
    }
    assert status.targets == {
        NEW: TargetRecord(
            threshold=1, failed=(broken.uid,), halted_because="1 of 1 allowed failures"
        )
    }
    assert (status.base, status.phase) == (4, RolloutPhase.HALTED)


def test_nothing_is_made_of_an_absence_on_old_news_or_for_a_policy_that_is_gone() -> None:
    old = decided(without_rollout(), done("well"), now=instant(ages={"rollouts": 91.0}))
    assert old.rollouts == ()
    assert made(done("well"), pool=replace(without_rollout(), gone=True)).rollouts == ()


def test_a_policy_that_never_let_nodes_move_stamps_nothing() -> None:
    pool = open_pool(upgrade=ALL)
    off = replace(pool, upgrade=replace(pool.upgrade, auto_upgrade=False))
    assert off.rollout is not None
    never = replace(off, rollout=replace(off.rollout, status=RolloutStatus(epoch=EPOCH)))
    decision = decided(never, done("node-1", "target-old"))
    assert decision.steps == {}
    assert decision.waits["node-1"].code is WaitCode.PAUSED
    assert [write.status.target for write in decision.rollouts] == [""]
    was_on = decided(off, done("node-1", "target-old"))
    assert "node-1" in was_on.steps


def test_complete_is_done_and_skipped_and_excluded_and_nobody_else() -> None:
    skipped = required("skipped", skip=True)
    excluded = node("excluded", excluded=True)
    nodes = [done("well"), skipped, excluded]
    pool = open_pool(upgrade=ALL, record=of_target(threshold=9), base=3)
    (write,) = decided(pool, *nodes).rollouts
    assert write.status.phase is RolloutPhase.COMPLETE
    counts = write.status.counts
    assert (counts.total, counts.done, counts.skipped, counts.excluded) == (3, 1, 1, 1)
    assert write.status.targets[NEW].complete
    assert not write.has_finalizer
    for other in (required("waits"), failed("broken"), done("gone", excluded=True)):
        (write,) = decided(pool, *nodes, other).rollouts
        assert (write.status.phase, write.has_finalizer) == (RolloutPhase.PROVEN, True)


def test_a_target_is_kept_while_it_is_open_halted_or_last_good() -> None:
    complete = of_target(complete=True, proven_at=1.0)
    records = {
        NEW: of_target(proven_at=2.0),
        "complete": complete,
        "abandoned": replace(complete, complete=False),
        "halted": replace(complete, failed=("a",)),
        "proving": TargetRecord(threshold=2),
    }
    pool = open_pool(upgrade=ALL, base=1)
    assert pool.rollout is not None
    status = replace(pool.rollout.status, targets=records)
    pool = replace(pool, rollout=replace(pool.rollout, status=status))
    (write,) = decided(pool, done("well")).rollouts
    assert set(write.status.targets) == {"abandoned", "halted", NEW, "proving"}
    assert write.status.last_good == NEW


def test_the_last_good_is_kept_though_it_was_complete() -> None:
    records = {NEW: TargetRecord(threshold=2), "before": of_target(complete=True)}
    pool = open_pool(upgrade=ALL, base=1)
    assert pool.rollout is not None
    status = replace(pool.rollout.status, targets=records)
    pool = replace(pool, rollout=replace(pool.rollout, status=status))
    (write,) = decided(pool, candidate("node-1")).rollouts
    assert write.status.last_good == "before"
    assert "before" in write.status.targets


def test_counts_alone_are_no_reason_to_write_while_nodes_are_in_flight() -> None:
    busy = in_flight_node("pod-restart-required", "busy")
    place = InFlight(node="busy", token=7, target=NEW, since=NOW - 60)
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 1},
        record=TargetRecord(threshold=1),
        base=3,
        in_flight={busy.uid: place},
        phase=RolloutPhase.PROVING,
    )
    decision = decided(pool, busy, *candidates(2))
    assert decision.rollouts == ()
    assert decision.budgets[pool.key].parallel == 1
    idle = open_pool(upgrade=ALL, record=of_target(), base=3, held=("no image",))
    assert len(decided(idle, *candidates(2)).rollouts) == 1


def test_a_write_that_is_under_way_is_waited_for() -> None:
    pool = open_pool(upgrade=ALL, record=of_target(), base=3)
    assert pool.rollout is not None
    pool = replace(pool, rollout=replace(pool.rollout, write_pending=True))
    decision = decided(pool, candidate("node-1"))
    assert decision.rollouts == ()
    assert decision.waits["node-1"].code is WaitCode.BUDGET


def test_the_observed_generation_is_that_of_the_spec() -> None:
    pool = open_pool(upgrade=ALL, record=of_target(), base=3)
    assert pool.rollout is not None
    pool = replace(pool, rollout=replace(pool.rollout, generation=9))
    (write,) = decided(pool, done("well")).rollouts
    assert write.status.observed_generation == 9
    assert (write.uid, write.revision) == ("uid-of-rollout", "10")
