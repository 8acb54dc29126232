"""Upgrades disturbed at random by failing agents, reboots and people.

Invariants are checked at every step, and every lease ends.
"""

from random import Random

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Swap, Validate
from libs.contracts.facts import Gate
from libs.contracts.node import NodeRecord, Operation, UpgradeState
from libs.policy.kinds.upgrade_policy import Drain, WaitForCompletion
from libs.rollout.decision import Step, Wait, WriteNode, WriteSlot
from libs.rollout.in_flight.in_flight_node import is_old_pod
from libs.rollout.step import step as look
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    NOW,
    OLD,
    done,
    failed,
    instant,
    node,
    pool,
    required,
    without_driver,
)
from tests.unit.rollout.in_flight.step_runner import (
    at_phase,
    new_pod,
    proof,
    react,
    run_step,
    silenced,
    with_beats,
    with_results,
)
from tests.unit.rollout.in_flight.test_whole_upgrades import PODS, begun

STARTS = {
    Operation.UPGRADE: required(pods=PODS),
    Operation.RESTART: required(pods=PODS),
    Operation.SAME_LABEL: failed(pods=()),
    Operation.BRING_UP: without_driver(node(pods=())),
    Operation.TAKE_OVER: replace(
        done(target=OLD, pods=PODS), state="", record=None, driver_label=""
    ),
    Operation.REMOVE: done(pods=PODS, excluded=True),
    Operation.VALIDATE: failed(pods=()),
}


def reboot(view: NodeView) -> NodeView:
    return replace(
        view,
        boot_id=f"{view.boot_id}+",
        loaded=None,
        gate=Gate(),
        evidence=None,
        driver_pods=tuple(
            replace(pod, ready=False, started=None) for pod in view.driver_pods if not pod.deleting
        ),
    )


def driver_restarts(view: NodeView, at: float) -> NodeView:
    return replace(
        view,
        driver_pods=tuple(
            replace(pod, started=at, restarts=pod.restarts + 1) if pod.started is not None else pod
            for pod in view.driver_pods
        ),
    )


def driver_pod_recreated(view: NodeView, at: float) -> NodeView:
    pods = [pod for pod in view.driver_pods if not pod.deleting and pod.ready]
    if not pods or not view.driver_label:
        return view
    pod = new_pod(view, at, ready=False, started=None)
    gate = Gate(waiting_pod_uid=pod.uid, waiting_label=pod.label)
    return replace(view, driver_pods=(pod,), gate=gate)


def agent_fails(view: NodeView, chance: Random) -> NodeView:
    name = chance.choice(sorted(view.components))
    slot = view.components[name].slot
    if slot is None or view.components[name].result_of(slot.order) is not None:
        return view
    if isinstance(slot.open(), Validate):
        return with_results(proof(view, NOW, passed=False), name)
    code = "busy" if isinstance(slot.open(), Swap) else ""
    return with_results(view, name, outcome="failed", code=code, message="python (pid 12)")


def unload_blocked(view: NodeView) -> NodeView:
    driver = view.components["driver"]
    slot = driver.slot
    if (
        slot is None
        or not isinstance(slot.open(), Swap)
        or driver.result_of(slot.order) is not None
    ):
        return view
    return at_phase(view, "driver", "unload", "pid 12 holds nvidia0")


def next_event(view: NodeView, chance: Random, at: float, *, well: int) -> NodeView:
    match chance.choices(range(9), weights=[well, 12, 4, 4, 3, 4, 3, 3, 3])[0]:
        case 0:
            return react(view, instant(at))
        case 1:
            return with_beats(view, at)
        case 2:
            return reboot(view)
        case 3:
            return driver_restarts(view, at)
        case 4:
            return driver_pod_recreated(view, at)
        case 5:
            return agent_fails(view, chance)
        case 6:
            return silenced(view, chance.choice(sorted(view.components)))
        case 7:
            return replace(view, cordoned=False, cordon_taint=False)
        case _:
            return unload_blocked(view)


def check_step(before: NodeView, outcome: Step) -> None:
    """Check what holds for every step."""
    record = before.record
    assert isinstance(record, NodeRecord)
    for action in outcome.actions:
        if isinstance(action, WriteSlot):
            slot = before.components[action.component].slot
            sent = action.command
            assert slot is None or sent.order >= slot.order
            if sent.kind == "swap" and (slot is None or sent.order != slot.order):
                assert not any(is_old_pod(record, pod) for pod in before.driver_pods)
        if isinstance(action, WriteNode):
            _check_node_write(before, record, action)


def _check_node_write(before: NodeView, record: NodeRecord, action: WriteNode) -> None:
    applied = action.applied
    if applied.state == UpgradeState.UPGRADE_DONE:
        evidence = applied.record.evidence if applied.record is not None else None
        assert evidence is not None
        (pod,) = (pod for pod in before.driver_pods if not pod.deleting)
        assert evidence.passed
        assert (evidence.token, evidence.boot_id) == (record.token, before.boot_id)
        assert (evidence.driver_pod_uid, evidence.driver_started) == (pod.uid, pod.started)
        assert pod.ready
    if applied.state == UpgradeState.UPGRADE_REQUIRED:
        assert not record.started
    if applied.state == UpgradeState.UPGRADE_FAILED:
        driver = before.components["driver"]
        changed = record.started or record.operation is Operation.VALIDATE
        sent = driver.slot is not None and driver.slot.open() == Idle()
        assert not changed or sent
        assert applied.record is not None
        assert applied.record.cause
    if applied.lease is None and applied.unschedulable is None:
        assert record.operation is not None


def run_lease(operation: Operation, chance: Random, where: PoolView) -> NodeView:
    view, where, _ = begun(STARTS[operation], where, operation)
    at, outcome, well = NOW + 2, None, chance.choice([10, 60])
    for _ in range(400):
        outcome = look(view, where, instant(at))
        assert isinstance(outcome, Step | Wait)
        if isinstance(outcome, Step) and outcome.actions:
            check_step(view, outcome)
            view = run_step(view, outcome)
            if view.lease is None:
                return view
        view = next_event(view, chance, at, well=well)
        at += chance.choice([0.5, 2.0, 10.0, 60.0])
    raise AssertionError(f"{view.state} after {at - NOW:.0f} s: {outcome}")


ENDS = {UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED, UpgradeState.UPGRADE_REQUIRED}


@pytest.mark.parametrize("operation", sorted(STARTS))
def test_every_lease_ends_whatever_happens(operation: Operation) -> None:
    seen: set[str] = set()
    for seed in range(150):
        chance = Random(f"{operation} {seed}")
        waits = WaitForCompletion(pod_selector="x=y", timeout_seconds=60)
        drain = Drain(enable=chance.random() < 0.5)
        where = pool(upgrade={"wait_for_completion": waits, "drain": drain})
        view = run_lease(operation, chance, where)
        seen.add(view.state)
    good = "" if operation is Operation.REMOVE else UpgradeState.UPGRADE_DONE
    assert {good, UpgradeState.UPGRADE_FAILED} <= seen <= {*ENDS, good}
