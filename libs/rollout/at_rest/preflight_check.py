"""The preflight check that a driver agent makes before a cordon (docs/states.md#d-9)."""

from libs.contracts.commands import PreflightCheck
from libs.contracts.node import NodeRequest, Operation, WaitCode
from libs.policy.kinds.upgrade_policy import PodDeletion
from libs.rollout.at_rest.operations import EVICTING_OPERATIONS
from libs.rollout.decision import Wait
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build, PoolView
from libs.rollout.wait_reasons import first_few, wait

_STOPPED = frozenset({EvictionExemption.OURS, EvictionExemption.OPERAND})
"""These release the devices on a command, or leave by a pause."""

_WITHOUT_PREFLIGHT, _BRING_UP = NodeRequest.WITHOUT_PREFLIGHT, Operation.BRING_UP


def needs_preflight(node: NodeView, operation: Operation) -> bool:
    """Whether this operation needs a check that no person waived."""
    needed = operation in EVICTING_OPERATIONS or operation is _BRING_UP
    return needed and node.request is not _WITHOUT_PREFLIGHT


def build_check(node: NodeView, pool: PoolView, build: Build | None) -> PreflightCheck:
    """Ask whether the build could be brought up here; None: whether the driver could be removed."""
    removed = _removed_pods(node, pool)
    if build is None:
        return PreflightCheck(label="", removes_pods=removed)
    return PreflightCheck(
        label=build.label,
        install_digest=build.install_digest,
        artefact_digest=build.artefact,
        removes_pods=removed,
    )


def unevictable_wait(node: NodeView, pool: PoolView, now: Instant) -> Wait | None:
    """Return the wait for GPU pods that may not be evicted: known without a check."""
    pods = [
        pod.display_name
        for pod in node.pods or ()
        if pod.gpu and pod.exemption is EvictionExemption.NONE and not _will_leave(pod, pool)
    ]
    if not pods:
        return None
    detail = (
        f"GPU pods that podDeletion of the policy does not allow to evict, because they have"
        f" no controller or use an emptyDir volume: {first_few(pods)}"
    )
    return wait(WaitCode.PREFLIGHT, detail, now)


def _removed_pods(node: NodeView, pool: PoolView) -> tuple[str, ...]:
    """Return uids of pods that are gone, or hold no device, by the time of the unload."""
    drivers = [pod.uid for pod in node.driver_pods]
    if node.pods is None:
        pods = () if node.usage is None else node.usage.pods
        return tuple(sorted({*drivers, *(use.pod_uid for use in pods if use.gpus)}))
    leaving = [pod.uid for pod in node.pods if pod.exemption in _STOPPED or _will_leave(pod, pool)]
    return tuple(sorted({*drivers, *leaving}))


def _will_leave(pod: WorkloadPod, pool: PoolView) -> bool:
    upgrade = pool.upgrade
    if pod.deleting or pod.job:
        return True
    if pod.exemption is not EvictionExemption.NONE:
        return False
    evicted = pod.gpu and _allows(pod, upgrade.gpu_pod_deletion or upgrade.pod_deletion)
    return evicted or (upgrade.drain.enable and pod.drained and _allows(pod, upgrade.drain))


def _allows(pod: WorkloadPod, rules: PodDeletion) -> bool:
    return (rules.force or not pod.bare) and (rules.delete_empty_dir or not pod.empty_dir)
