"""The operation that a node needs (docs/states.md#variations), and whether it could start now.

Limits of the pool are not considered here. The reasons against a start are tested in the order in
which they are useful to a person.
"""

from functools import lru_cache

from libs.contracts.commands import CheckKind, CommandKind
from libs.contracts.identities import Writer
from libs.contracts.node import NodeRecord, Operation
from libs.contracts.waits import AGENT_LATE, WaitCode
from libs.policy.kinds.strategy import CordonedNodes
from libs.policy.wanted import InstallMethod
from libs.rollout.cordons import has_adopted_cordon, is_only_our_cordon
from libs.rollout.decision import Candidate, Wait
from libs.rollout.failed_gpus import failed_gpu_wait
from libs.rollout.mig_at_rest import is_divided, is_refused
from libs.rollout.node_case import NodeCase
from libs.rollout.node_driver import (
    Goal,
    driver_pod_of,
    is_joining,
    is_occupied,
    passed_evidence,
    starts_by_hand,
)
from libs.rollout.preflight_check import (
    build_check,
    needs_image,
    needs_preflight,
    unevictable_wait,
)
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build
from libs.rollout.wait_reasons import agent_wait, wait

_PRE_INSTALLED, _HOST = InstallMethod.PRE_INSTALLED, InstallMethod.HOST
_UPGRADE = Operation.UPGRADE

_VALIDATE, _REMOVE = Operation.VALIDATE, Operation.REMOVE

_SKIP = CordonedNodes.SKIP


def choose_operation(case: NodeCase, build: Build) -> Operation | Wait:
    """Return the lightest sound operation; a wait while the machine's contents are unknown."""
    if case.pool.method is _PRE_INSTALLED:
        return _pre_installed(case, build)
    if is_joining(case.node, case.record):
        return _first_operation(case)
    if case.pool.method is _HOST:
        return Operation.INSTALL
    if is_restart_only(case, build):
        return Operation.RESTART
    if build.label in (case.node.driver_label, _proven_label(case.record)):
        return Operation.SAME_LABEL
    return _UPGRADE


def _proven_label(record: NodeRecord | None) -> str:
    """Return the label of the proven driver; the node may have lost the label since."""
    return record.evidence.label if record is not None and record.evidence is not None else ""


def _pre_installed(case: NodeCase, build: Build) -> Operation | Wait:
    loaded = case.node.loaded
    ours = bool(case.node.driver_pods) or (loaded is not None and not loaded.preinstalled)
    if ours and case.node.driver_label not in ("", build.label):
        return Operation.REMOVE
    if loaded is not None:
        return Operation.VALIDATE
    if not case.node.modules_reported:
        return machine_unknown_wait(case.now)
    return wait(
        WaitCode.TARGET_MISSING,
        "the policy expects a pre-installed driver, but none is loaded",
        case.now,
        who="the administrator of the machine, or the author of the policy",
    )


def _first_operation(case: NodeCase) -> Operation | Wait:
    """Return the first operation; only a machine known to be empty needs no evictions."""
    occupied = is_occupied(case.node)
    if occupied is None:
        return machine_unknown_wait(case.now)
    if not occupied:
        return Operation.BRING_UP
    return Operation.INSTALL if case.pool.method is _HOST else Operation.TAKE_OVER


def machine_unknown_wait(now: Instant) -> Wait:
    detail = "the driver agent has not reported loaded modules and GPU pods since the last boot"
    return wait(WaitCode.AGENT_SILENT, detail, now, who=AGENT_LATE)


def is_restart_only(case: NodeCase, build: Build) -> bool:
    """Whether the modules may stay loaded: the same installation, in the proven version.

    docs/states.md#v-restart
    """
    if case.record is None or case.record.asked or case.node.safe_load or not build.install_digest:
        return False
    if not (is_divided(case.node, case.record) or is_refused(case.node, case.record)):
        return False  # pods have to leave before the GPUs are divided
    evidence, pod, loaded = (
        passed_evidence(case.node, case.record),
        driver_pod_of(case.node),
        case.node.loaded,
    )
    return (
        evidence is not None
        and evidence.boot_id == case.node.boot_id
        and pod is not None
        and pod.install_digest == build.install_digest
        and loaded is not None
        and loaded.version == evidence.driver_version
        and build.label != case.node.driver_label
    )


def start_candidate(case: NodeCase, goal: Goal) -> Candidate | Wait:
    operation = choose_operation(case, goal.build)
    if isinstance(operation, Wait):
        return operation
    if operation is _VALIDATE:
        return validation_candidate(case, goal)
    if operation is _REMOVE:
        return removal_candidate(case)
    checked = needs_preflight(case.node, operation)
    obstacle = _obstacle(case, operation=operation, target=goal.target, checked=checked)
    if obstacle is not None:
        return obstacle
    image = goal.build.image if checked and needs_image(operation) else ""
    check = build_check(case, goal.build, prefetch=bool(image)) if checked else None
    return Candidate(
        operation=operation,
        target=goal.target,
        label=goal.label,
        outside=_outside(case, goal.target),
        by_hand=starts_by_hand(case.node, case.record),
        check=check,
        image=image,
    )


def validation_candidate(case: NodeCase, goal: Goal) -> Candidate | Wait:
    """Return the candidate that validates the running driver, whatever skip label and back-off."""
    obstacle = _not_ready_wait(case) or _agent_wait(case, _VALIDATE, checked=False)
    return obstacle or Candidate(
        operation=_VALIDATE, target=goal.target, label=goal.label, outside=True, by_hand=True
    )


def removal_candidate(case: NodeCase) -> Candidate | Wait:
    """Return the candidate that removes the driver of the node."""
    checked = needs_preflight(case.node, _REMOVE)
    check = build_check(case, None) if checked else None
    obstacle = _obstacle(case, operation=_REMOVE, target="", checked=checked)
    return obstacle or Candidate(operation=_REMOVE, target="", label="", check=check)


def _obstacle(case: NodeCase, *, operation: Operation, target: str, checked: bool) -> Wait | None:
    return (
        _skipped_wait(case)
        or (failed_gpu_wait(case) if operation is not _REMOVE else None)
        or _back_off_wait(case.record, target, case.now)
        or _not_ready_wait(case)
        or _agent_wait(case, operation, checked=checked)
        or (unevictable_wait(case) if checked else None)
    )


def is_broken(record: NodeRecord) -> bool:
    """Whether the last attempt left the node without a proven driver."""
    changed = record.started or record.unproven
    return changed and (record.evidence is None or not record.evidence.passed)


def _outside(case: NodeCase, target: str) -> bool:
    """Whether the node failed on an earlier target and has had no proven driver since.

    The record of an adopted node does not show that: it was started only as far as its labels say.
    """
    if case.record is None or (case.record.evidence is not None and case.record.evidence.passed):
        return False
    has_failed = case.record.unproven and (case.record.started or bool(case.node.driver_label))
    return case.record.outside or (has_failed and case.record.target != target)


def _skipped_wait(case: NodeCase) -> Wait | None:
    """Return the wait for a label or a cordon."""
    if case.node.skip:
        who = f"an administrator, by `sluice upgrade unskip {case.node.name}`"
        return wait(WaitCode.SKIPPED, "the node has the skip label", case.now, who=who)
    skips_cordoned = case.pool.strategy.cordoned_nodes is _SKIP
    if skips_cordoned and case.node.cordoned and not _cordon_is_ours(case.node, case.record):
        detail = "the node is cordoned, and the strategy skips cordoned nodes"
        who = f"an administrator, by `kubectl uncordon {case.node.name}`"
        return wait(WaitCode.SKIPPED, detail, case.now, who=who)
    return None


def _back_off_wait(record: NodeRecord | None, target: str, now: Instant) -> Wait | None:
    if record is not None and record.target == target and now.at < record.back_off_until:
        obstacle = (
            f"released, to be retried later: {record.cause or 'the upgrade did not finish in time'}"
        )
        return wait(WaitCode.BACK_OFF, obstacle, now, record.back_off_until)
    return None


def _cordon_is_ours(node: NodeView, record: NodeRecord | None) -> bool:
    return is_only_our_cordon(node) or (record is not None and has_adopted_cordon(node, record))


def _not_ready_wait(case: NodeCase) -> Wait | None:
    if case.node.ready:
        return None
    return wait(WaitCode.NOT_READY, "the Node is not Ready", case.now)


def _agent_wait(case: NodeCase, operation: Operation, *, checked: bool) -> Wait | None:
    required = _required_components(operation, on_host=case.pool.method is _HOST, checked=checked)
    return agent_wait(case.node, required, case.now)


@lru_cache
def _required_components(
    operation: Operation, *, on_host: bool, checked: bool
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the components needed, with the commands and checks they must support."""
    validator = (Writer.VALIDATOR.value, (CommandKind.VALIDATE.value,))
    if operation is _VALIDATE:
        return (validator,)
    command = CommandKind.INSTALL if on_host else CommandKind.SWAP
    checks = (CheckKind.PREFLIGHT.value,) if checked else ()
    driver = (Writer.DRIVER.value, (command.value, *checks))
    return (driver,) if operation is _REMOVE else (driver, validator)
