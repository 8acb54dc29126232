"""What starts although `autoUpgrade` is off (docs/states.md#by-hand)."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.reports import PodUse, Usage
from libs.contracts.rollout import Brake, RolloutPhase, RolloutSpec, TargetRecord
from libs.contracts.waits import WaitCode
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.allocate.builders import (
    FINDING,
    asked_of,
    candidate,
    checked,
    code_of,
    decided,
    entry,
    granted_to,
    of_target,
    open_pool,
)
from tests.unit.rollout.builders import NEW, NOW, OLD, done, driver_pod, node, with_record
from tests.unit.rollout.reconcile.builders import ALL, evaluate

HALTED = TargetRecord(threshold=1, failed=("gone",), halted_because="1 of 1 allowed failures")


def off(**changes: Any) -> PoolView:
    """Return a pool whose policy wants another driver and has `autoUpgrade` off."""
    given: dict[str, Any] = {"upgrade": ALL, "base": 9, "record": of_target(), **changes}
    pool = open_pool(**given)
    return replace(pool, upgrade=replace(pool.upgrade, auto_upgrade=False))


def replaced(name: str = "n", **changes: Any) -> NodeView:
    """Return a node with the old driver in a new pod: somebody deleted the validated one."""
    pod = driver_pod(OLD, node=name, uid="another", ready=False, started=None)
    return candidate(name, driver_pods=(pod,), **changes)


def terminating(name: str = "n") -> NodeView:
    return candidate(name, driver_pods=(driver_pod(OLD, node=name, deleting=True),))


def unloaded(name: str = "n", **changes: Any) -> NodeView:
    return candidate(name, loaded=None, **changes)


def empty(name: str = "n", **changes: Any) -> NodeView:
    """Return a node that never had a driver of ours."""
    return checked(node(name, **changes))


def test_a_node_keeps_its_driver_until_its_pod_is_deleted() -> None:
    decision = decided(off(), candidate("n"))
    wait = decision.waits["n"]
    assert wait.code is WaitCode.PAUSED
    assert "until somebody deletes its driver pod" in wait.detail
    assert "by deleting the driver pod" in wait.who
    for deleted in (replaced(), terminating(), candidate("n", driver_pods=())):
        assert granted_to(off(), deleted) == ["n"]


def test_a_node_without_a_driver_gets_one() -> None:
    assert granted_to(off(), unloaded(boot_id="boot-2", kernel="6.8.0-48-generic")) == ["n"]
    assert granted_to(off(), empty()) == ["n"]
    # Evictions would be needed, which nobody has asked for.
    used = Usage(pods=(PodUse(pod_uid="job", processes=1, gpus=1),))
    for occupied in (empty(usage=used), unloaded(modules_reported=False)):
        assert granted_to(off(), occupied) == []


def test_a_restarted_driver_is_validated_again() -> None:
    pod = driver_pod(NEW, node="n", started=NOW - 9)
    restarted = with_record(done("n", driver_pods=(pod,)), restarts=(NOW - 9,))
    assert granted_to(off(), restarted) == ["n"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"spec": RolloutSpec(brake=Brake.PAUSE)}, WaitCode.PAUSED),
        ({"errors": ("no such image",)}, WaitCode.PAUSED),
        ({"gone": True}, WaitCode.POLICY_GONE),
        ({"record": HALTED, "phase": RolloutPhase.HALTED}, WaitCode.HALTED),
        ({"upgrade": {**ALL, "max_unavailable": 0}}, WaitCode.BUDGET),
    ],
)
def test_brake_errors_harm_and_budget_hold_a_deleted_pod_too(
    changes: dict[str, Any], code: WaitCode
) -> None:
    decision = decided(off(**changes), replaced())
    assert not any(write.granted for write in decision.rollouts)
    assert code_of(decision, "n") is code


def test_deleted_pods_start_within_the_limit() -> None:
    limited = off(upgrade={"max_parallel_upgrades": 0, "max_unavailable": 2})
    assert granted_to(limited, *(replaced(f"n-{number}") for number in range(5))) == ["n-0", "n-1"]


def test_a_grant_stays_while_its_reason_does() -> None:
    for view, withdrawn in ((replaced(), False), (candidate("n"), True)):
        pool = off(in_flight={view.uid: entry(view)})
        assert evaluate(pool, view).withdrawn == ({view.uid} if withdrawn else frozenset())


def test_the_preflight_check_precedes_and_is_repeated() -> None:
    never = replace(replaced(), preflight=None)
    assert asked_of(decided(off(), never)).keys() == {"n"}
    blocked = checked(replaced(), FINDING, asked=NOW - 70, answered=NOW - 69)
    other = checked(candidate("other"), FINDING, asked=NOW - 70, answered=NOW - 69)
    decision = decided(off(), blocked, other)
    assert asked_of(decision).keys() == {"n"}
    assert code_of(decision, "other") is WaitCode.PAUSED
