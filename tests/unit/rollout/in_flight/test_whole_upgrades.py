"""Whole upgrades on a machine that works: what is written, in which order."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Swap
from libs.contracts.node import NodeRecord, Operation, UpgradeState
from libs.policy.kinds.upgrade_policy import Drain, WaitForCompletion
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import Candidate, DeleteDriverPod, Step, WriteNode, WriteSlot
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    begin,
    done,
    failed,
    granted,
    instant,
    label_of,
    node,
    on_host,
    pool,
    required,
    with_record,
    without_driver,
)
from tests.unit.rollout.in_flight.step_runner import react, run_step, run_upgrade, written_states
from tests.unit.rollout.outcomes import step_of

PODS = (
    WorkloadPod(namespace="ml", name="job-0", uid="u0", gpu=True, job=True, drained=True),
    WorkloadPod(namespace="ml", name="serve-0", uid="u1", gpu=True, drained=True),
    WorkloadPod(namespace="web", name="front-0", uid="u2", drained=True),
    WorkloadPod(
        namespace="gpu-operator", name="dcgm-0", uid="u3", exemption=EvictionExemption.OPERAND
    ),
    WorkloadPod(
        namespace="kube-system", name="proxy", uid="u4", exemption=EvictionExemption.DAEMON_SET
    ),
)
"""One pod of each kind."""


def candidate(operation: Operation = Operation.UPGRADE, target: str = NEW) -> Candidate:
    label = label_of(target) if operation is not Operation.REMOVE else ""
    outside = operation is Operation.VALIDATE
    target = target if label else ""
    return Candidate(operation=operation, target=target, label=label, outside=outside)


def begun(
    start: NodeView,
    pool_view: PoolView,
    operation: Operation = Operation.UPGRADE,
    target: str = NEW,
    at: float = NOW,
) -> tuple[NodeView, PoolView, Step]:
    start_candidate = candidate(operation, target)
    pool_view = granted(
        pool_view,
        start,
        target=start_candidate.target,
        outside=start_candidate.outside,
        validates=operation is Operation.VALIDATE,
        token=8,
    )
    entry = pool_view.constraints.in_flight[start.uid]
    step = step_of(begin(start, start_candidate, entry, pool_view, instant(at)))
    return react(run_step(start, step), instant(at)), pool_view, step


def policy(**upgrade: Any) -> PoolView:
    return pool(upgrade={"wait_for_completion": WaitForCompletion(pod_selector="x=y"), **upgrade})


def all_writes(
    start: NodeView,
    pool_view: PoolView,
    operation: Operation = Operation.UPGRADE,
    target: str = NEW,
    **options: Any,
) -> tuple[NodeView, list[str], list[Step]]:
    first_node, pool_view, first = begun(start, pool_view, operation, target)
    last, steps = run_upgrade(first_node, pool_view, at=NOW + 2, **options)
    every = [first, *steps]
    return last, written_states(every), every


def no_job(view: NodeView) -> NodeView:
    return replace(view, pods=tuple(pod for pod in view.pods or () if not pod.job))


S = UpgradeState
WHOLE = [
    S.WAIT_FOR_JOBS_REQUIRED,
    S.POD_DELETION_REQUIRED,
    S.POD_RESTART_REQUIRED,
    S.VALIDATION_REQUIRED,
    S.UPGRADE_DONE,
]


@pytest.mark.parametrize(
    ("upgrade", "states"),
    [
        ({}, WHOLE),
        (
            {"drain": Drain(enable=True)},
            [
                S.WAIT_FOR_JOBS_REQUIRED,
                S.POD_DELETION_REQUIRED,
                S.DRAIN_REQUIRED,
                S.POD_RESTART_REQUIRED,
                S.VALIDATION_REQUIRED,
                S.UPGRADE_DONE,
            ],
        ),
        ({"wait_for_completion": WaitForCompletion()}, WHOLE[1:]),
    ],
    ids=["with jobs", "with a drain", "without a selector"],
)
def test_an_upgrade_writes_each_state_once(upgrade: dict[str, Any], states: list[str]) -> None:
    last, written, _ = all_writes(required(pods=PODS), policy(**upgrade), meanwhile=no_job)
    assert written == states  # beside upgrade-required, which was the first
    assert len(written) + 1 <= (7 if "drain" in upgrade else 6)
    assert last.state == S.UPGRADE_DONE
    assert (last.cordoned, last.lease, last.driver_label) == (False, None, label_of(NEW))


def test_a_state_without_work_is_skipped() -> None:
    _, written, _ = all_writes(required(pods=()), policy(drain=Drain(enable=True)))
    assert written == WHOLE[1:]


def test_a_done_node_keeps_a_minimal_record() -> None:
    last, _, _ = all_writes(required(pods=PODS), policy(), meanwhile=no_job)
    record = last.record
    assert isinstance(record, NodeRecord)
    assert record.evidence == last.evidence
    assert record == NodeRecord(
        node_uid=last.uid,
        epoch=3,
        token=8,
        pool="clusterpolicy-cluster",
        target=NEW,
        label=label_of(NEW),
        state=S.UPGRADE_DONE,
        since=record.since,
        boot_id="boot-1",
        was_done=True,
        evidence=record.evidence,
        took=record.took,
    )
    assert record.took.keys() == {
        S.WAIT_FOR_JOBS_REQUIRED,
        S.POD_DELETION_REQUIRED,
        S.POD_RESTART_REQUIRED,
        S.VALIDATION_REQUIRED,
    }


def test_the_rest_after_an_upgrade_belongs_to_its_attempt() -> None:
    first_node, pool_view, _ = begun(required(pods=PODS), policy())
    last, _ = run_upgrade(with_record(first_node, edits=1), pool_view, at=NOW + 2, meanwhile=no_job)
    assert isinstance(last.record, NodeRecord)
    assert (last.record.state, last.record.edits) == (S.UPGRADE_DONE, 1)


def commands(steps: list[Step]) -> list[tuple[str, str]]:
    return [
        (action.component, action.command.kind.value)
        for step in steps
        for action in step.actions
        if isinstance(action, WriteSlot)
    ]


def swap_in(steps: list[Step]) -> Swap:
    actions = [action for step in steps for action in step.actions]
    (swap,) = (
        a.command.open() for a in actions if isinstance(a, WriteSlot) and a.command.kind == "swap"
    )
    assert isinstance(swap, Swap)
    return swap


def test_the_order_of_the_commands_of_an_upgrade() -> None:
    _, _, steps = all_writes(required(pods=PODS), policy(), meanwhile=no_job)
    sent_commands = commands(steps)
    assert sorted(sent_commands[:4]) == [
        ("discovery", "quiesce"),
        ("plugin", "quiesce"),
        ("telemetry", "quiesce"),
        ("validator", "quiesce"),
    ]
    assert sent_commands[4] == ("driver", "swap")
    assert sorted(sent_commands[5:8]) == [
        ("discovery", "idle"),
        ("telemetry", "idle"),
        ("validator", "validate"),
    ]
    assert sent_commands[8:] == [("plugin", "idle"), ("driver", "idle"), ("validator", "idle")]


def test_slots_name_the_proven_label_before_the_release() -> None:
    _, _, steps = all_writes(required(pods=()), policy())
    last = steps[-1]
    assert [type(action) for action in last.actions] == [WriteSlot, WriteSlot, WriteNode]


def test_operands_are_paused_from_the_eviction_to_the_validation() -> None:
    _, _, steps = all_writes(required(pods=PODS), policy(), meanwhile=no_job)
    paused = {
        action.applied.state: action.applied.record.paused
        for step in steps
        for action in step.actions
        if isinstance(action, WriteNode) and action.applied.record is not None
    }
    assert paused == {
        S.WAIT_FOR_JOBS_REQUIRED: False,
        S.POD_DELETION_REQUIRED: True,
        S.POD_RESTART_REQUIRED: True,
        S.VALIDATION_REQUIRED: False,
        S.UPGRADE_DONE: False,
    }


def test_only_the_first_write_lowers_capacity() -> None:
    _, _, steps = all_writes(required(pods=()), policy())
    node_writes = [a for step in steps for a in step.actions if isinstance(a, WriteNode)]
    assert [write.lowers_capacity for write in node_writes] == [True, False, False, False]
    first = node_writes[0].applied.record
    assert first is not None
    assert first.seen == dict.fromkeys(
        ("nodes", "pods", "rollouts", "policies", "daemonsets"), "100"
    )


# The variations.


def test_restart_only_has_no_eviction_no_quiesce_and_keeps_the_modules() -> None:
    last, written, steps = all_writes(required(pods=PODS), policy(), Operation.RESTART)
    assert written == WHOLE[2:]
    first = steps[0].actions[0]
    assert isinstance(first, WriteNode)
    assert first.applied.unschedulable is True
    assert first.applied.driver_label == label_of(NEW)
    assert commands(steps) == [
        ("driver", "swap"),
        ("validator", "validate"),
        ("driver", "idle"),
        ("validator", "idle"),
    ]
    assert swap_in(steps).keep
    assert last.pods == PODS  # no pod was evicted


def test_same_label_deletes_the_driver_pod_by_its_uid_before_the_swap() -> None:
    start = failed(pods=())
    last, written, steps = all_writes(start, policy(), Operation.SAME_LABEL)
    assert written == WHOLE[1:]
    every = [action for step in steps for action in step.actions]
    (delete,) = (action for action in every if isinstance(action, DeleteDriverPod))
    assert delete.pod.uid == f"pod-{NEW}-node-1"
    (swap,) = (a for a in every if isinstance(a, WriteSlot) and a.command.kind == "swap")
    assert every.index(delete) < every.index(swap)
    assert last.state == S.UPGRADE_DONE
    assert not last.cordoned


def test_first_bring_up_has_no_cordon_and_quiesces_the_plugin_alone() -> None:
    start = without_driver(node(pods=()))
    last, written, steps = all_writes(start, policy(), Operation.BRING_UP)
    assert written == WHOLE[2:]
    assert commands(steps)[:2] == [("plugin", "quiesce"), ("driver", "swap")]
    node_writes = [a for step in steps for a in step.actions if isinstance(a, WriteNode)]
    assert [write.applied.unschedulable for write in node_writes] == [None, None, None]
    assert not any(write.lowers_capacity for write in node_writes)
    assert last.state == S.UPGRADE_DONE


def test_a_take_over_is_a_whole_upgrade() -> None:
    start = replace(done(target=OLD, pods=PODS), state="", record=None, driver_label="")
    _, written, _ = all_writes(start, policy(), Operation.TAKE_OVER, meanwhile=no_job)
    assert written == WHOLE


def test_behind_a_shut_gate_only_the_driver_is_started() -> None:
    start = without_driver(required(pods=PODS))
    _, written, steps = all_writes(start, policy(), Operation.UPGRADE)
    assert written == WHOLE[2:]
    first = steps[0].actions[0]
    assert isinstance(first, WriteNode)
    assert (first.applied.unschedulable, first.lowers_capacity) == (True, True)


def test_on_hosts_the_agent_installs() -> None:
    start = replace(required(pods=()), driver_pods=())
    last, written, steps = all_writes(start, on_host(policy()), Operation.INSTALL)
    assert written == WHOLE[1:]
    assert ("driver", "install") in commands(steps)
    assert ("driver", "swap") not in commands(steps)
    assert last.state == S.UPGRADE_DONE


def test_a_pre_installed_driver_is_validated_and_nothing_else() -> None:
    start = replace(done(pods=()), state="", record=None, driver_label="", driver_pods=())
    pool_view = replace(pool(), method=InstallMethod.PRE_INSTALLED)
    last, written, steps = all_writes(start, pool_view, Operation.VALIDATE)
    assert written == WHOLE[3:]
    assert commands(steps)[0] == ("validator", "validate")
    node_writes = [a for step in steps for a in step.actions if isinstance(a, WriteNode)]
    assert [write.applied.unschedulable for write in node_writes] == [None, None]
    assert last.driver_label == label_of(NEW)


def test_a_removal_drops_state_label_and_record() -> None:
    start = done(pods=PODS, excluded=True)
    last, written, steps = all_writes(start, policy(), Operation.REMOVE, meanwhile=no_job)
    assert written == [
        S.WAIT_FOR_JOBS_REQUIRED,
        S.POD_DELETION_REQUIRED,
        S.POD_RESTART_REQUIRED,
        "",
    ]
    assert (last.state, last.driver_label, last.record, last.lease) == ("", "", None, None)
    assert not last.cordoned
    assert swap_in(steps) == Swap(label="", old_pod_uid=f"pod-{NEW}-node-1")


def test_a_done_node_whose_driver_restarted_is_validated_without_a_cordon() -> None:
    restarted = done(pods=PODS)
    pod = replace(restarted.driver_pods[0], started=NOW - 30, restarts=1)
    last, written, steps = all_writes(
        replace(restarted, driver_pods=(pod,), evidence=None), policy(), Operation.VALIDATE
    )
    assert written == WHOLE[3:]
    assert commands(steps) == [("validator", "validate"), ("validator", "idle")]
    assert last.pods == PODS
    assert isinstance(last.record, NodeRecord)
    assert last.record.evidence is not None
    assert last.record.evidence.driver_started == NOW - 30


def test_a_failed_node_that_came_into_sync_is_validated_and_uncordoned() -> None:
    last, written, _ = all_writes(failed(pods=()), policy(), Operation.VALIDATE)
    assert written == WHOLE[3:]
    assert not last.cordoned
