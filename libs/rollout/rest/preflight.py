"""What a driver agent is to be asked before a cordon (docs/states.md#d-9).

Who is asked when, and what its answer or silence holds up, is decided with the grants.
"""

from libs.contracts.commands import PreflightCheck
from libs.contracts.node import Operation, Request
from libs.contracts.waits import WaitCode
from libs.policy.kinds.upgrades import PodDeletion
from libs.rollout.decision import Wait
from libs.rollout.rest.operations import EVICTING
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import Shelter, WorkPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build, PoolView
from libs.rollout.waiting import few, wait

_STOPPED = frozenset({Shelter.OURS, Shelter.OPERAND})
"""They let go of the devices by a command, or leave by a pause."""

_WITHOUT, _BRING_UP = Request.WITHOUT_PREFLIGHT, Operation.BRING_UP


def applies(node: NodeView, operation: Operation) -> bool:
    """Whether this operation needs one; a person may have waived it."""
    needed = operation in EVICTING or operation is _BRING_UP
    return needed and node.request is not _WITHOUT


def question(node: NodeView, pool: PoolView, build: Build | None) -> PreflightCheck:
    """Could this be brought up here; without a build: could the driver be removed?"""
    removed = _removed(node, pool)
    if build is None:
        return PreflightCheck(label="", removes_pods=removed)
    return PreflightCheck(
        label=build.label,
        install_digest=build.install_digest,
        artefact_digest=build.artefact,
        removes_pods=removed,
    )


def stuck(node: NodeView, pool: PoolView, now: Instant) -> Wait | None:
    """Pods with GPUs that the plan may not evict: that much is known without asking."""
    pods = [
        pod.shown
        for pod in node.pods or ()
        if pod.gpu and pod.shelter is Shelter.NONE and not _leaves(pod, pool)
    ]
    if not pods:
        return None
    detail = (
        f"the plan may not remove {few(pods)}: bare, or with an emptyDir, and podDeletion of the"
        f" policy does not allow it"
    )
    return wait(WaitCode.PREFLIGHT, detail, now)


def _removed(node: NodeView, pool: PoolView) -> tuple[str, ...]:
    """Uids of the pods that are gone, or hold nothing, by the time of the unload."""
    drivers = [pod.uid for pod in node.driver_pods]
    if node.pods is None:
        used = () if node.usage is None else node.usage.pods
        return tuple(sorted({*drivers, *(use.pod_uid for use in used if use.gpus)}))
    leaving = [pod.uid for pod in node.pods if pod.shelter in _STOPPED or _leaves(pod, pool)]
    return tuple(sorted({*drivers, *leaving}))


def _leaves(pod: WorkPod, pool: PoolView) -> bool:
    upgrade = pool.upgrade
    if pod.deleting or pod.job:
        return True
    if pod.shelter is not Shelter.NONE:
        return False
    evicted = pod.gpu and _may(pod, upgrade.gpu_pod_deletion or upgrade.pod_deletion)
    return evicted or (upgrade.drain.enable and pod.drained and _may(pod, upgrade.drain))


def _may(pod: WorkPod, rules: PodDeletion) -> bool:
    return (rules.force or not pod.bare) and (rules.delete_empty_dir or not pod.empty_dir)
