"""Nodes with failed GPUs: they do not start by themselves, and no driver is blamed for the failure.

docs/states.md#failed-gpus
"""

from libs.contracts.gpus import GpuIdentity
from libs.contracts.waits import WaitCode
from libs.rollout.decision import Wait
from libs.rollout.node_case import NodeCase
from libs.rollout.views.machine import FailedGpu
from libs.rollout.views.node import NodeView
from libs.rollout.wait_reasons import wait

_DESCRIBED = 3
"""The number of failed GPUs that a wait describes; it counts the others."""


def failed_gpu_wait(case: NodeCase) -> Wait | None:
    """Return the wait of a node with a failed GPU, unless a person requested its upgrade."""
    failed = case.node.failed_gpus
    if not failed or case.node.requested or (case.record is not None and case.record.asked):
        return None
    return wait(WaitCode.GPU_FAILED, describe_failed_gpus(failed), case.now)


def describe_failed_gpus(failed: tuple[FailedGpu, ...]) -> str:
    """Return which GPUs have failed and why, for people."""
    texts = [
        f"{each.gpu.describe()} has failed: {each.cause or 'no cause was reported'}"
        for each in failed[:_DESCRIBED]
    ]
    more = len(failed) - _DESCRIBED
    return "; ".join([*texts, *([f"{more} more GPUs have failed"] if more > 0 else [])])


def failed_before(node: NodeView) -> tuple[GpuIdentity, ...]:
    """Return the GPUs that had failed before the operation that begins now.

    A GPU that failed in an attempt without a proof since then had not: another attempt must not
    accept what the first one broke. The last verdict counts, also one of an earlier boot.
    """
    record = node.current_record
    is_unproven = record is not None and record.unproven and record.evidence is None
    if record is not None and is_unproven and record.failed_gpus is not None:
        return record.failed_gpus
    verdict = node.gpu_verdict
    return () if verdict is None else tuple(each.gpu for each in verdict.failed)
