"""The epoch of a new leader, and missing Rollouts (docs/states.md#leading, #reconcile)."""

import pytest
from msgspec.structs import replace

from libs.contracts.facts import LoadedDriver
from libs.contracts.node import UpgradeState
from libs.contracts.rollout import (
    SHORT_TARGET,
    Brake,
    InFlight,
    RolloutPhase,
    RolloutStatus,
    TargetRecord,
)
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
    written,
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
    with_rollout,
    with_status,
)

ALL = {"max_parallel_upgrades": 0, "max_unavailable": "100%"}


def with_epoch(pool: PoolView, epoch: int, **changes: object) -> PoolView:
    assert pool.rollout is not None
    status = replace(pool.rollout.status, epoch=epoch)
    return replace(pool, rollout=replace(pool.rollout, status=status, **changes))


def second_pool(first_pool: PoolView, epoch: int) -> PoolView:
    return with_epoch(replace(first_pool, key="nvidiadriver-two", uid="other"), epoch)


def test_a_new_leader_first_writes_its_epoch_into_every_rollout() -> None:
    pool = open_pool(upgrade=ALL, record=of_target(), base=3)
    old, new = with_epoch(pool, EPOCH - 1), second_pool(pool, EPOCH)
    broken = failed("broken")
    decision = decide(fleet([old, new], candidate("node-1"), broken, required("node-2")), instant())
    assert decision.steps == {}
    (write,) = decision.rollouts
    assert old.rollout is not None
    assert (write.pool, write.granted) == (old.key, ())
    assert write.status == replace(old.rollout.status, epoch=EPOCH)
    assert decision.waits["node-1"].code is WaitCode.STALE
    assert decision.waits.keys() == {"node-1", "node-2", "broken"}


def test_a_new_leader_waits_for_its_epoch_writes() -> None:
    pool = with_epoch(open_pool(upgrade=ALL, base=3), EPOCH - 1, write_pending=True)
    decision = decided(pool, candidate("node-1"))
    assert (decision.rollouts, decision.steps) == ((), {})


@pytest.mark.parametrize("epochs", [(EPOCH + 1, EPOCH), (EPOCH - 1, EPOCH + 1)])
def test_a_deposed_leader_decides_nothing(epochs: tuple[int, int]) -> None:
    pool = open_pool(upgrade=ALL, base=3)
    pools = [with_epoch(pool, epochs[0]), second_pool(pool, epochs[1])]
    decision = decide(fleet(pools, candidate("node-1")), instant())
    assert decision.deposed
    assert (decision.steps, decision.rollouts, decision.waits) == ({}, (), {})


def without_rollout() -> PoolView:
    return replace(open_pool(upgrade=ALL), rollout=None)


def decided_for(*nodes: object, pool: PoolView | None = None) -> Decision:
    return decided(pool or without_rollout(), *nodes)  # pyright: ignore[reportArgumentType]


def test_a_pool_gets_its_rollout_before_anything_else() -> None:
    adopted = node("adopted", state=UpgradeState.UPGRADE_DONE)
    decision = decided_for(adopted, node("bare"))
    assert decision.steps == {}
    (write,) = decision.rollouts
    assert (write.uid, write.revision, write.brake, write.has_finalizer) == ("", "", None, False)
    assert write.status == RolloutStatus(
        target=NEW,
        short_target=NEW[:SHORT_TARGET],
        progress="0/2",
        epoch=EPOCH,
        counts=replace(write.status.counts, total=2),
        conditions=write.status.conditions,
    )


def test_a_lost_rollout_is_rebuilt_from_the_nodes_and_paused() -> None:
    busy = in_flight_node("pod-restart-required", "busy")
    broken, well = failed("broken"), done("well")
    decision = decided_for(busy, broken, well, candidate("node-1"))
    (write,) = decision.rollouts
    assert (write.brake, write.has_finalizer) == (Brake.PAUSE, True)
    status = write.status
    since = NOW - 60
    assert status.in_flight == {busy.uid: InFlight(node="busy", token=7, target=NEW, since=since)}
    halted = replace(status.targets[NEW], halted_because="")
    assert halted == TargetRecord(threshold=1, failed=(broken.uid,))
    assert (status.base, status.phase) == (4, RolloutPhase.HALTED)


def test_no_rollout_is_created_on_stale_data_or_for_a_deleted_policy() -> None:
    old = decided(without_rollout(), done("well"), now=instant(ages={"rollouts": 91.0}))
    assert old.rollouts == ()
    assert decided_for(done("well"), pool=replace(without_rollout(), gone=True)).rollouts == ()


def test_nothing_is_done_while_rollouts_cannot_be_stored() -> None:
    missing = "CustomResourceDefinition rollouts.sluice.dev is not installed"
    now = instant(no_rollouts=missing)
    pool = open_pool(upgrade=ALL, record=of_target(), base=3)
    for view in (without_rollout(), pool, with_epoch(pool, EPOCH - 1)):
        busy = in_flight_node("pod-restart-required", "busy")
        decision = decided(view, busy, candidate("node-1"), now=now)
        assert (decision.steps, decision.rollouts) == ({}, ())
        wait = decision.waits["node-1"]
        assert (wait.code, wait.detail) == (WaitCode.STALE, missing)
        assert "CustomResourceDefinition" in wait.who


def test_a_policy_that_never_upgraded_a_node_stamps_nothing() -> None:
    pool = open_pool(upgrade=ALL)
    off = replace(pool, upgrade=replace(pool.upgrade, auto_upgrade=False))
    never = with_rollout(off, status=RolloutStatus(epoch=EPOCH))
    foreign = node("node-1", loaded=LoadedDriver(version="550.54", loaded_at=NOW - 9))
    decision = decided(never, foreign)
    assert decision.steps == {}
    assert decision.waits["node-1"].code is WaitCode.PAUSED
    assert [write.status.target for write in decision.rollouts] == [""]
    used = decided(never, done("node-1", "target-old"))
    assert [write.status.target for write in used.rollouts] == [NEW]
    was_on = decided(off, done("node-1", "target-old"))
    assert "node-1" in was_on.steps


def test_a_complete_rollout_has_only_done_skipped_and_excluded_nodes() -> None:
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
    pool = with_status(pool, targets=records)
    (write,) = decided(pool, done("well")).rollouts
    assert set(write.status.targets) == {"abandoned", "halted", NEW, "proving"}
    assert write.status.last_good == NEW


def test_a_complete_last_good_target_is_kept() -> None:
    records = {NEW: TargetRecord(threshold=2), "before": of_target(complete=True)}
    pool = open_pool(upgrade=ALL, base=1)
    pool = with_status(pool, targets=records)
    (write,) = decided(pool, candidate("node-1")).rollouts
    assert write.status.last_good == "before"
    assert "before" in write.status.targets


def test_counts_alone_are_not_written_while_nodes_are_in_flight() -> None:
    busy = in_flight_node("pod-restart-required", "busy")
    flight = InFlight(node="busy", token=7, target=NEW, since=NOW - 60)
    pool = open_pool(
        upgrade={"max_parallel_upgrades": 1},
        record=TargetRecord(threshold=1),
        base=3,
        in_flight={busy.uid: flight},
        phase=RolloutPhase.PROVING,
    )
    pool = with_rollout(pool, status=written(decided(pool, busy)))
    decision = decided(pool, busy, *candidates(2))
    assert decision.rollouts == ()
    assert decision.budgets[pool.key].parallel == 1
    idle = open_pool(upgrade=ALL, record=of_target(), base=3, errors=("no image",))
    assert len(decided(idle, *candidates(2)).rollouts) == 1


def test_nothing_is_granted_while_a_rollout_write_is_pending() -> None:
    pool = open_pool(upgrade=ALL, record=of_target(), base=3)
    pool = with_rollout(pool, write_pending=True)
    decision = decided(pool, candidate("node-1"))
    assert decision.rollouts == ()
    assert decision.waits["node-1"].code is WaitCode.BUDGET


def test_the_observed_generation_is_that_of_the_spec() -> None:
    pool = open_pool(upgrade=ALL, record=of_target(), base=3)
    pool = with_rollout(pool, generation=9)
    (write,) = decided(pool, done("well")).rollouts
    assert write.status.observed_generation == 9
    assert (write.uid, write.revision) == ("uid-of-rollout", "10")
