"""What a pipeline that waits for a policy is told: it goes on, it is stuck, it is done."""

from typing import Any

import pytest

from libs.contracts.rollout import (
    ConditionStatus,
    ConditionType,
    RolloutCondition,
    RolloutPhase,
    RolloutStatus,
)
from libs.policy.progress import ObservedRollout, observe_rollout
from libs.policy.readiness import ObservedNode
from libs.policy.status import PolicyStatus
from tests.unit.policy import situations
from tests.unit.policy.situations import DRIVER, UBUNTU, Situation, node
from tests.unit.policy.test_status import (
    HEALTHY,
    OFF,
    ONE_DRIVER,
    cluster_policy,
    complete,
    condition_of,
    only_status,
)

(POOL,) = ONE_DRIVER.pools().pools
OLD = ObservedNode(state="upgrade-required", label="old")


def told(status: PolicyStatus) -> tuple[str, str, str]:
    """Return which of Reconciling and Stalled is true, with its reason and message."""
    for kind in ("Reconciling", "Stalled"):
        found = condition_of(status, kind)
        if found.status:
            return kind, found.reason, found.message
    return "", "", ""


def status_of(*, node_c: ObservedNode | None = None, **rollout: Any) -> PolicyStatus:
    nodes = {**HEALTHY["nodes"], **({"c": node_c} if node_c else {})}
    rollouts = {POOL.key: complete(POOL, is_complete=False, **rollout)}
    return only_status(ONE_DRIVER, nodes=nodes, rollouts=rollouts)


def test_a_policy_that_is_ready_and_whose_rollout_is_complete_is_done() -> None:
    status = only_status(ONE_DRIVER)
    assert (told(status), status.is_observed) == (("", "", ""), True)


@pytest.mark.parametrize("rollouts", [{}, {POOL.key: complete(POOL, target="of the edit before")}])
def test_an_edit_is_not_observed_before_the_scheduler_has_taken_it_up(
    rollouts: dict[str, ObservedRollout],
) -> None:
    status = only_status(ONE_DRIVER, rollouts=rollouts)
    assert not status.is_observed
    message = "the scheduler has not taken up the change yet: clusterpolicy-cluster-policy"
    assert told(status) == ("Reconciling", "NotTakenUp", message)


def test_a_policy_without_nodes_waits_for_no_rollout() -> None:
    status = only_status(Situation([cluster_policy()], []), rollouts={})
    assert (told(status), status.is_observed) == (("", "", ""), True)


def test_a_halt_is_told_as_stuck_with_the_words_of_the_rollout() -> None:
    words = "1 of 1 failures: c; it ends with spec.release, or with another driver"
    status = status_of(node_c=OLD, halted=words, because="1 of 1 failures: c")
    assert told(status) == ("Stalled", "Halted", words)
    assert status.is_observed


def test_the_halt_of_an_earlier_target_is_no_halt_of_this_one() -> None:
    status = status_of(node_c=OLD, target="of the edit before", halted="1 of 1 failures: c")
    assert told(status)[:2] == ("Reconciling", "NotTakenUp")
    assert not status.is_observed


def test_a_paused_rollout_goes_on_and_tells_why_it_does_not_now() -> None:
    words = "Rollout clusterpolicy-cluster-policy is paused by anna (spec.brake: Pause)"
    status = status_of(node_c=OLD, paused="Brake", because=words)
    assert told(status) == ("Reconciling", "Brake", words)


def test_a_ready_policy_whose_rollout_is_not_complete_goes_on() -> None:
    status = status_of()
    assert status.state == "ready"
    words = "Rollout clusterpolicy-cluster-policy is under way"
    assert told(status) == ("Reconciling", "RollingOut", words)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param(None, "Stalled", id="all others are done"),
        pytest.param(OLD, "Reconciling", id="another has not begun"),
    ],
)
def test_failed_nodes_are_what_a_policy_is_stuck_with_once_nothing_else_goes_on(
    other: ObservedNode | None, expected: str
) -> None:
    nodes = {**HEALTHY["nodes"], "c": ObservedNode(state="upgrade-failed", cause="busy: sshd")}
    nodes |= {"a": other} if other else {}
    assert told(only_status(ONE_DRIVER, nodes=nodes))[0] == expected


def test_a_section_without_effect_is_what_a_policy_is_stuck_with() -> None:
    policy = situations.cluster_policy(devicePlugin=OFF, cdi=OFF)
    status = only_status(Situation([policy]))
    assert told(status)[:2] == ("Stalled", "MissingOperands")
    assert "spec.toolkit is switched on" in told(status)[2]


def test_nodes_that_keep_their_driver_because_autoupgrade_is_off_are_no_reason_to_wait() -> None:
    situation = Situation([cluster_policy(driver=DRIVER)], [UBUNTU, node("c")])
    (pool,) = situation.pools().pools
    nodes = {**HEALTHY["nodes"], "c": ObservedNode(state="upgrade-done", label="old")}
    paused = complete(pool, is_complete=False, paused="AutoUpgradeOff", because="it is off")
    status = only_status(situation, nodes=nodes, rollouts={pool.key: paused})
    assert (status.state, told(status)) == ("ready", ("", "", ""))
    assert condition_of(status, "Ready").message.endswith(
        "; 1 of 2 nodes keep another driver than the policy wants, because autoUpgrade is off"
    )


def test_a_node_that_is_being_changed_is_waited_for_though_autoupgrade_is_off() -> None:
    situation = Situation([cluster_policy(driver=DRIVER)], [UBUNTU, node("c")])
    nodes = {**HEALTHY["nodes"], "c": ObservedNode(state="validation-required", label="old")}
    assert told(only_status(situation, nodes=nodes))[0] == "Reconciling"


def condition(kind: ConditionType, reason: str, message: str) -> RolloutCondition:
    return RolloutCondition(
        type=kind,
        status=ConditionStatus.TRUE,
        reason=reason,
        message=message,
        last_transition_time="2026-01-01T00:00:00Z",
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (RolloutStatus(target="t"), ObservedRollout(target="t")),
        (
            RolloutStatus(target="t", phase=RolloutPhase.NO_NODES, because="no node"),
            ObservedRollout(target="t", because="no node", is_complete=True),
        ),
        (
            RolloutStatus(
                target="t",
                phase=RolloutPhase.HALTED,
                conditions=(condition(ConditionType.HALTED, "FailureThreshold", "1 of 1"),),
            ),
            ObservedRollout(target="t", halted="1 of 1"),
        ),
        (
            RolloutStatus(
                target="t",
                phase=RolloutPhase.PROVEN,
                conditions=(
                    condition(ConditionType.PAUSED, "Brake", "by anna"),
                    condition(ConditionType.COMPLETE, "Complete", ""),
                ),
            ),
            ObservedRollout(target="t", paused="Brake", is_complete=True),
        ),
    ],
    ids=["under way", "no nodes", "halted", "complete and paused"],
)
def test_a_rollout_is_read_from_its_status(
    status: RolloutStatus, expected: ObservedRollout
) -> None:
    assert observe_rollout(status) == expected
