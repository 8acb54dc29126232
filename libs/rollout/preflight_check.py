"""The preflight check of a node: whether it needs one, and which of its pods leave.

A GPU pod that may not be evicted is known without a check.
"""

from libs.contracts.commands import PreflightCheck
from libs.contracts.node import NodeRequest, Operation
from libs.contracts.waits import WaitCode
from libs.contracts.words import first_few
from libs.rollout.decision import Wait
from libs.rollout.node_case import NodeCase
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build, PoolView
from libs.rollout.wait_reasons import wait

_STOPPED = frozenset({EvictionExemption.SLUICE, EvictionExemption.OPERAND})
"""These release the devices on a command, or leave by a pause."""

_UNCHECKED = (Operation.VALIDATE, Operation.RESTART)

_PREFETCHED = frozenset({Operation.UPGRADE, Operation.SAME_LABEL, Operation.TAKE_OVER})
"""The operations that drain a node and then start a driver container."""

_WITHOUT_PREFLIGHT = NodeRequest.WITHOUT_PREFLIGHT


def needs_image(operation: Operation) -> bool:
    """Whether the driver's image has to be on the node before the operation begins."""
    return operation in _PREFETCHED


def needs_preflight(node: NodeView, operation: Operation) -> bool:
    """Whether this operation needs a check that no person waived."""
    return operation not in _UNCHECKED and node.request is not _WITHOUT_PREFLIGHT


def build_check(case: NodeCase, build: Build | None, *, prefetch: bool = False) -> PreflightCheck:
    """Ask whether the build could be brought up here; None: whether the driver could be removed."""
    removed = _removed_pods(case)
    if build is None:
        return PreflightCheck(label="", removes_pods=removed)
    return PreflightCheck(
        label=build.label,
        install_digest=build.install_digest,
        artefact_digest=build.artefact,
        removes_pods=removed,
        prefetch=prefetch,
    )


def unevictable_wait(case: NodeCase) -> Wait | None:
    """Return the wait for GPU pods that may not be evicted: known without a check."""
    unknown = [pod.display_name for pod in case.node.pods or () if pod.may_hold_gpus]
    if unknown:
        detail = (
            "pods that may have GPUs by a resource claim that could not be read or has no"
            f" devices yet: {first_few(unknown)}"
        )
        return wait(WaitCode.PREFLIGHT, detail, case.now)
    pods = [
        pod.display_name
        for pod in case.node.pods or ()
        if pod.gpu and pod.exemption is EvictionExemption.NONE and not _will_leave(pod, case.pool)
    ]
    if not pods:
        return None
    detail = (
        f"GPU pods that podDeletion of the policy does not allow to evict, because they have"
        f" no controller or use an emptyDir volume: {first_few(pods)}"
    )
    return wait(WaitCode.PREFLIGHT, detail, case.now)


def _removed_pods(case: NodeCase) -> tuple[str, ...]:
    """Return uids of pods that are gone, or hold no device, by the time of the unload."""
    drivers = [pod.uid for pod in case.node.driver_pods]
    leaving = [
        pod.uid
        for pod in case.node.pods or ()
        if pod.exemption in _STOPPED or _will_leave(pod, case.pool)
    ]
    return tuple(sorted({*drivers, *leaving}))


def _will_leave(pod: WorkloadPod, pool: PoolView) -> bool:
    upgrade = pool.upgrade
    if pod.deleting or pod.job:
        return True
    if pod.exemption is not EvictionExemption.NONE:
        return False
    evicted = pod.gpu and pod.is_evictable(upgrade.gpu_pod_deletion or upgrade.pod_deletion)
    return evicted or (upgrade.drain.enable and pod.drained and pod.is_evictable(upgrade.drain))
