"""The first write of an operation: lease, record and, where needed, the cordon.

docs/states.md#upgrade, step 3. The grant was decided a moment ago, for a node that may have changed
since: what it rests on is checked once more.
"""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from libs.contracts.node import LeaseOwner, NodeLease, NodeRecord, Operation, UpgradeState
from libs.contracts.rollout import InFlight
from libs.contracts.waits import WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout import limits, wait_reasons
from libs.rollout.cordons import (
    NON_DISRUPTIVE,
    cordon_at_release,
    has_adopted_cordon,
    is_only_our_cordon,
)
from libs.rollout.decision import Candidate, Step, Wait
from libs.rollout.failed_gpus import failed_before
from libs.rollout.in_flight.start import old_driver_pod, safe_load_to_clear, stale_source_wait
from libs.rollout.node_case import NodeCase
from libs.rollout.node_driver import current_run
from libs.rollout.node_writes import NodeChange, record_in_state, write_step
from libs.rollout.requests import consume_requests
from libs.rollout.views.node import NodeView

_HARMLESS = frozenset({Operation.VALIDATE, Operation.REMOVE, Operation.MIG})
"""Operations that start no node on a target: a halt of the target does not hold them up."""


_NAMES = {
    Operation.SAME_LABEL: "another start of the same driver",
    Operation.VALIDATE: "validation",
    Operation.REMOVE: "removal of the driver",
    Operation.MIG: "division of the GPUs",
}
"""What people read, where the name of the operation says too little."""


def begin(case: NodeCase, candidate: Candidate, entry: InFlight) -> Step | Wait:
    """Begin a granted operation, or return why the grant cannot be used now."""
    blocked = _grant_wait(case, candidate, entry)
    if blocked is not None:
        return blocked
    if candidate.operation is Operation.REMOVE and _never_changed(case):
        return _forget(case)
    return _first_write(case, candidate, entry)


def _grant_wait(case: NodeCase, candidate: Candidate, entry: InFlight) -> Wait | None:
    constraints, target, operation = case.pool.constraints, entry.target, candidate.operation
    record, granted_kind = case.record, (entry.validates, entry.outside)
    if target != candidate.target:
        granted = target or "none"
        detail = f"the start was granted for target {granted}, and another one is wanted now"
    elif (operation is Operation.VALIDATE, candidate.outside) != granted_kind:
        detail = "the start was granted for another kind of operation than the node needs now"
    elif record is not None and record.token >= entry.token:
        detail = "the previous upgrade of the node is being removed from the Rollout"
    elif target in constraints.halted and operation not in _HARMLESS:
        detail = f"target {target} is halted: {constraints.halted[target]}"
        return wait_reasons.wait(WaitCode.HALTED, detail, case.now)
    elif operation not in NON_DISRUPTIVE and (source := limits.stale_source(case.now)):
        return stale_source_wait(source, case.now)
    elif case.node.uid in constraints.may_begin:
        return None
    else:
        detail = (
            "the start is granted, but would exceed maxUnavailable now: other nodes are, or may"
            " become, unavailable, or the limit was lowered"
        )
    return wait_reasons.wait(WaitCode.BUDGET, detail, case.now)


def _first_write(case: NodeCase, candidate: Candidate, entry: InFlight) -> Step:
    state = _first_state(case, candidate)
    label_moves = state in (UpgradeState.POD_RESTART_REQUIRED, UpgradeState.VALIDATION_REQUIRED)
    disruptive = candidate.operation not in NON_DISRUPTIVE
    cleared, notes = consume_requests(case.node)
    owner = LeaseOwner.MIG if candidate.operation is Operation.MIG else LeaseOwner.UPGRADE
    lease = NodeLease(node_uid=case.node.uid, owner=owner, token=entry.token, since=case.now.at)
    return write_step(
        case,
        NodeChange(
            because=f"{_NAMES.get(candidate.operation, candidate.operation.value)} begins",
            record=_record(case, candidate, entry, state=state),
            lease=lease,
            cordon=True if disruptive else UNSET,
            driver_label=candidate.label if label_moves else None,
            initially_cordoned=case.node.initially_cordoned
            or (disruptive and _cordoned_by_others(case.node)),
            cleared=cleared
            + (safe_load_to_clear(case.node, candidate.label) if label_moves else ()),
            lowers_capacity=disruptive,
            notes=notes,
        ),
    )


def _first_state(case: NodeCase, candidate: Candidate) -> UpgradeState:
    """Return the first state with work in it; states without work are not written."""
    operation = candidate.operation
    if operation is Operation.VALIDATE:
        return UpgradeState.VALIDATION_REQUIRED
    if operation in (Operation.RESTART, Operation.BRING_UP) or _nothing_admitted(
        case.node, operation
    ):
        return UpgradeState.POD_RESTART_REQUIRED
    jobs = case.node.pods is None or any(pod.job for pod in case.node.pods)
    if case.pool.upgrade.wait_for_completion.pod_selector and jobs:
        return UpgradeState.WAIT_FOR_JOBS_REQUIRED
    return UpgradeState.POD_DELETION_REQUIRED


def _nothing_admitted(node: NodeView, operation: Operation) -> bool:
    """Whether nothing is loaded and no pod was admitted since the boot: no GPU pods to evict."""
    admitted = node.gate is not None and node.gate.admitted_pod_uid
    nothing = node.modules_reported and node.loaded is None and not admitted
    return nothing and operation not in (
        Operation.TAKE_OVER,
        Operation.REMOVE,
        Operation.MIG,
    )


def _record(
    case: NodeCase, candidate: Candidate, entry: InFlight, *, state: UpgradeState
) -> NodeRecord:
    before = case.record or _new_record(case)
    before = replace(before, pool=case.pool.key)
    starts_now = state == UpgradeState.POD_RESTART_REQUIRED
    divides = candidate.operation is Operation.MIG
    target = before.target if divides else entry.target
    same_target = before.target == target
    old_pod = (
        old_driver_pod(case.node, candidate.label, candidate.operation) if starts_now else None
    )
    changes: dict[str, Any] = {
        "token": entry.token,
        "operation": candidate.operation,
        "target": target,
        "label": candidate.label,
        "label_before": case.node.driver_label,
        "started": starts_now,
        "old_pod_uid": old_pod.uid if old_pod is not None else "",
        "attempt": (before.attempt if same_target else 0) + _is_attempt(candidate, before),
        "outside": candidate.outside or divides,
        "paused": state == UpgradeState.POD_DELETION_REQUIRED,
        "back_off_until": 0.0,
        "back_off_seconds": before.back_off_seconds if same_target else 0.0,
        "edits": 0,
        "failed_gpus": failed_before(case.node),
        "restarts_before": {pod.uid: pod.restarts for pod in case.node.driver_pods if pod.restarts},
        "evidence": None if starts_now else before.evidence,
        **_kept_division(case.node, before, candidate),
        "revalidated": _revalidated(case, before, candidate),
    }
    return record_in_state(case, state, before, **changes)


def _kept_division(node: NodeView, before: NodeRecord, candidate: Candidate) -> dict[str, str]:
    """Return how the last division ended, where this operation makes no other."""
    kept = candidate.operation is Operation.VALIDATE and before.boot_id == node.boot_id
    return {} if kept else {"mig_digest": "", "mig_failed": ""}


def _new_record(case: NodeCase) -> NodeRecord:
    """Create a record. A cordon of ours without a record stays until there is a proof."""
    cordon_left = case.node.cordoned and is_only_our_cordon(case.node)
    return NodeRecord(node_uid=case.node.uid, epoch=case.now.epoch, token=0, unproven=cordon_left)


def _is_attempt(candidate: Candidate, before: NodeRecord) -> bool:
    """Whether the strategy counts this as an attempt; the validation of a node at rest is none."""
    at_rest = before.state in (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)
    without_change = candidate.operation in (Operation.VALIDATE, Operation.MIG)
    return not (without_change and at_rest)


def _revalidated(case: NodeCase, before: NodeRecord, candidate: Candidate) -> str:
    """Return the driver run for which a failed node gets one validation beside its retries."""
    is_validation = candidate.operation is Operation.VALIDATE
    run = current_run(case)
    if is_validation and run is not None and before.state == UpgradeState.UPGRADE_FAILED:
        return run.instance
    return before.revalidated


def _cordoned_by_others(node: NodeView) -> bool:
    """Whether the node is cordoned by another manager than us and the adopted upgrade."""
    record = node.current_record
    adopted = record is not None and has_adopted_cordon(node, record)
    return node.cordoned and not (is_only_our_cordon(node) or adopted)


def _never_changed(case: NodeCase) -> bool:
    """Whether the driver came with the machine: it was only validated, and stays."""
    if case.pool.method is not InstallMethod.PRE_INSTALLED or case.node.driver_pods:
        return False
    return any(
        build.label == case.node.driver_label
        for variants in case.pool.builds.values()
        for build in variants.values()
    )


def _forget(case: NodeCase) -> Step:
    record = case.record
    return write_step(
        case,
        NodeChange(
            because="the pre-installed driver stays; labels and annotations of Sluice are removed",
            record=None,
            cordon=None if record is None else cordon_at_release(case.node, record, proven=True),
            driver_label="",
            initially_cordoned=False,
        ),
    )
