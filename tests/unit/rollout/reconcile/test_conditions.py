"""The conditions of a Rollout, its phase without a policy, and why it is paused."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.rollout import (
    Brake,
    ConditionStatus,
    ConditionType,
    RolloutCondition,
    RolloutPhase,
    RolloutSpec,
    RolloutStatus,
)
from libs.contracts.waits import WaitCode
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.allocate.builders import candidate, decided, of_target, open_pool, written
from tests.unit.rollout.builders import (
    EPOCH,
    NEW,
    NOW,
    POOL,
    done,
    failed,
    instant,
    node,
    with_rollout,
)

COMPLETE, HALTED, PAUSED = ConditionType.COMPLETE, ConditionType.HALTED, ConditionType.PAUSED
PROGRESS = (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED)
TRUE, FALSE = ConditionStatus.TRUE, ConditionStatus.FALSE


def condition(status: RolloutStatus, type_: ConditionType) -> RolloutCondition:
    (found,) = (each for each in status.conditions if each.type is type_)
    return found


def facts(status: RolloutStatus) -> dict[str, tuple[str, str]]:
    return {each.type.value: (each.status.value, each.reason) for each in status.conditions}


def with_spec(pool: PoolView, brake: Brake, **changes: Any) -> PoolView:
    return with_rollout(pool, spec=RolloutSpec(brake=brake), **changes)


def after(pool: PoolView, *nodes: Any, at: float = NOW) -> RolloutStatus:
    return written(decided(pool, *nodes, now=instant(at)))


def settled(pool: PoolView, *nodes: Any, at: float = NOW) -> PoolView:
    """Return the pool with the status that is written for these nodes."""
    (write,) = decided(pool, *nodes, now=instant(at)).rollouts
    return with_rollout(pool, status=write.status, has_finalizer=write.has_finalizer)


@pytest.mark.parametrize(
    ("nodes", "record", "expected"),
    [
        ([done()], of_target(), {"Complete": ("True", "Complete")}),
        ([done(), candidate("n")], of_target(), {"Complete": ("False", "Proven")}),
        (
            [done(), candidate("n")],
            of_target(proven=False, threshold=2),
            {"Complete": ("False", "Proving")},
        ),
        (
            [failed("n")],
            of_target(),
            {"Complete": ("False", "Halted"), "Halted": ("True", "FailureThreshold")},
        ),
    ],
)
def test_the_conditions_follow_the_phase(
    nodes: list[Any], record: Any, expected: dict[str, tuple[str, str]]
) -> None:
    status = after(open_pool(record=record, base=9), *nodes)
    usual = {"Halted": ("False", "NotHalted"), "Paused": ("False", "NotPaused")}
    found = facts(status)
    assert {name: found[name] for name in ("Complete", *usual)} == {**usual, **expected}


READY, GOES_ON, STUCK = (
    ("True", "False", "False"),
    ("False", "True", "False"),
    (
        "False",
        "False",
        "True",
    ),
)


@pytest.mark.parametrize(
    ("nodes", "changes", "brake", "expected"),
    [
        pytest.param(["done"], {}, Brake.NONE, READY, id="complete"),
        pytest.param([], {}, Brake.NONE, READY, id="no nodes"),
        pytest.param(["done", "old"], {}, Brake.NONE, GOES_ON, id="proven"),
        pytest.param(["done", "old"], {}, Brake.PAUSE, GOES_ON, id="paused"),
        pytest.param(["done", "old"], {}, Brake.FREEZE, GOES_ON, id="frozen"),
        pytest.param(["failed"], {}, Brake.NONE, STUCK, id="halted"),
        pytest.param(["done", "old"], {"errors": ("wrong",)}, Brake.NONE, STUCK, id="invalid"),
        pytest.param(["done", "old"], {"gone": True}, Brake.NONE, READY, id="policy deleted"),
        pytest.param(
            ["done", "old"],
            {"upgrade": replace(open_pool(record=of_target()).upgrade, auto_upgrade=False)},
            Brake.NONE,
            READY,
            id="autoUpgrade is off",
        ),
    ],
)
def test_pipelines_are_told_whether_a_rollout_is_done_goes_on_or_is_stuck(
    nodes: list[str],
    changes: dict[str, Any],
    brake: Brake,
    expected: tuple[str, str, str],
) -> None:
    made = {"done": done, "old": lambda: candidate("n"), "failed": lambda: failed("n")}
    pool = with_spec(open_pool(record=of_target(), base=9), brake)
    status = after(replace(pool, **changes), *(made[each]() for each in nodes))
    found = [condition(status, kind) for kind in PROGRESS]
    assert tuple(each.status.value for each in found) == expected
    if expected is STUCK or brake is not Brake.NONE:
        assert any(each.message for each in found)


@pytest.mark.parametrize(
    ("changes", "spec", "visibility", "reason"),
    [
        ({}, Brake.PAUSE, {}, "Brake"),
        ({}, Brake.FREEZE, {}, "Brake"),
        ({"errors": ("it is wrong",)}, Brake.NONE, {}, "PolicyInvalid"),
        ({"gone": True}, Brake.NONE, {}, "PolicyDeleted"),
        ({}, Brake.NONE, {"foreign_operator": "another is at work"}, "ForeignOperator"),
    ],
)
def test_the_condition_paused_names_what_holds_the_pool(
    changes: dict[str, Any], spec: Brake, visibility: dict[str, Any], reason: str
) -> None:
    pool = settled(open_pool(record=of_target(), base=9), done(), candidate("n"))
    pool = replace(with_spec(pool, spec, generation=2), **changes)
    status = written(decided(pool, done(), candidate("n"), now=instant(**visibility)))
    paused = condition(status, PAUSED)
    assert (paused.status, paused.reason, paused.observed_generation) == (TRUE, reason, 2)
    assert paused.message


@pytest.mark.parametrize(
    ("brake", "state", "code"),
    [(Brake.PAUSE, "paused", WaitCode.PAUSED), (Brake.FREEZE, "frozen", WaitCode.FROZEN)],
)
def test_status_and_waits_name_who_set_the_brake_and_why(
    brake: Brake, state: str, code: WaitCode
) -> None:
    pool = settled(open_pool(record=of_target(), base=9), done(), candidate("n"))
    pool = with_spec(pool, brake, brake_set_by="alice", brake_reason="bad driver")
    decision = decided(pool, done(), candidate("n"))
    text = f"Rollout {POOL} is {state} by alice (spec.brake: {brake.value}): bad driver"
    assert written(decision).because == text
    assert condition(written(decision), PAUSED).message == text
    assert (decision.waits["n"].code, decision.waits["n"].detail) == (code, text)


def test_a_policy_without_auto_upgrade_is_paused() -> None:
    pool = open_pool(record=of_target(), base=9)
    off = replace(pool, upgrade=replace(pool.upgrade, auto_upgrade=False))
    paused = condition(after(off, done()), PAUSED)
    assert paused.reason == "AutoUpgradeOff"
    assert paused.message.startswith("autoUpgrade is off in the policy: a node keeps its driver")
    signed = condition(
        after(replace(off, auto_upgrade_off_by="somebody with helm"), done()), PAUSED
    )
    assert "off in the policy, set by somebody with helm: a node" in signed.message


def test_the_time_of_a_condition_changes_only_with_its_status() -> None:
    pool, minute = open_pool(record=of_target(), base=9), 60
    first = settled(pool, done(), candidate("n"), at=NOW)
    second = after(with_spec(first, Brake.PAUSE), done(), candidate("n"), at=NOW + minute)
    times = {each.type: each.last_transition_time for each in second.conditions}
    began = first.rollout.status.conditions[0].last_transition_time if first.rollout else ""
    assert times[COMPLETE] == times[HALTED] == began
    assert times[PAUSED] != began
    third = after(with_spec(with_rollout(first, status=second), Brake.FREEZE), done(), at=NOW + 120)
    assert condition(third, PAUSED).last_transition_time == times[PAUSED]


def test_nothing_is_written_while_nothing_changes() -> None:
    pool = settled(open_pool(record=of_target(), base=9), done(), candidate("n", skip=True))
    for now in (NOW + 60, NOW + 86_400):
        assert decided(pool, done(), candidate("n", skip=True), now=instant(now)).rollouts == ()


# A deleted policy.


def test_the_rollout_of_a_deleted_policy_is_not_complete() -> None:
    pool = settled(open_pool(record=of_target(), base=9), done())
    assert pool.rollout is not None
    assert pool.rollout.status.phase is RolloutPhase.COMPLETE
    gone = replace(pool, gone=True)
    status = after(gone, done())
    assert status.phase is RolloutPhase.POLICY_DELETED
    assert facts(status)["Complete"] == ("False", "PolicyDeleted")
    assert (status.target, status.targets) == (NEW, pool.rollout.status.targets)
    assert decided(settled(gone, done()), done()).rollouts == ()
    again = after(replace(settled(gone, done()), gone=False), done())
    assert again.phase is RolloutPhase.COMPLETE


def test_a_policy_that_is_made_again_starts_a_new_base_only_after_it_was_complete() -> None:
    nodes = [done(f"done-{number}") for number in range(4)]
    for others, base in (([], 0), ([candidate("n")], 9)):
        pool = open_pool(record=of_target(), base=9, upgrade={"max_unavailable": 0})
        pool = settled(pool, *nodes, *others)
        gone = settled(replace(pool, gone=True), *nodes, *others)
        assert gone.rollout is not None
        assert gone.rollout.status.base == base


# A Rollout that was deleted.


def rebuilt(*nodes: Any) -> PoolView:
    """Return the pool after its Rollout was deleted and created again."""
    pool = open_pool(record=of_target(), base=9)
    (write,) = decided(replace(pool, rollout=None), *nodes).rollouts
    assert write.brake is not None
    return with_spec(pool, write.brake, status=write.status, generation=1)


def test_a_rebuilt_rollout_says_why_it_is_paused_and_who_ends_that() -> None:
    pool = settled(rebuilt(done(), candidate("n")), done(), candidate("n"))
    assert pool.rollout is not None
    paused = condition(pool.rollout.status, PAUSED)
    assert (paused.status, paused.reason) == (TRUE, "Rebuilt")
    assert "rebuilt from the Nodes" in paused.message
    wait = decided(pool, done(), candidate("n")).waits["n"]
    assert (wait.code, wait.detail) == (WaitCode.PAUSED, paused.message)
    assert "spec.brake" in wait.who


def test_a_scheduler_that_died_before_the_first_status_says_the_same() -> None:
    pool = with_spec(open_pool(), Brake.PAUSE, status=RolloutStatus(epoch=EPOCH), generation=1)
    assert condition(after(pool, done()), PAUSED).reason == "Rebuilt"
    never_managed = node("n")
    assert condition(after(pool, never_managed), PAUSED).reason == "Brake"


def test_a_released_rollout_that_is_paused_again_names_the_brake() -> None:
    pool = settled(rebuilt(done(), candidate("n")), done(), candidate("n"))
    released = settled(with_spec(pool, Brake.NONE, generation=2), done())
    assert released.rollout is not None
    assert condition(released.rollout.status, PAUSED).reason == "NotPaused"
    again = after(with_spec(released, Brake.PAUSE, generation=3), done())
    assert condition(again, PAUSED).reason == "Brake"


def test_a_new_leader_does_not_forget_that_a_rollout_was_rebuilt() -> None:
    pool = settled(rebuilt(done(), candidate("n")), done(), candidate("n"))
    (write,) = decided(pool, done(), now=instant(epoch=EPOCH + 1)).rollouts
    later = with_rollout(pool, status=write.status)
    wait = decided(later, done(), candidate("n"), now=instant(epoch=EPOCH + 1)).waits["n"]
    assert "rebuilt from the Nodes" in wait.detail
