"""Nodes with failed GPUs: they do not start by themselves, and no driver is blamed for the failure.

docs/states.md#failed-gpus
"""

from libs.contracts.gpus import GpuIdentity
from libs.contracts.node import NodeRecord, WaitCode
from libs.rollout.decision import Wait
from libs.rollout.node_writes import current_record
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import FailedGpu
from libs.rollout.views.node import NodeView
from libs.rollout.wait_reasons import wait

_DESCRIBED = 3
"""The number of failed GPUs that a wait describes; it counts the others."""


def failed_gpu_wait(node: NodeView, record: NodeRecord | None, now: Instant) -> Wait | None:
    """Return the wait of a node with a failed GPU, unless a person requested its upgrade."""
    failed = node.failed_gpus
    if not failed or node.requested or (record is not None and record.asked):
        return None
    return wait(WaitCode.GPU_FAILED, describe_failed_gpus(failed), now)


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
    record = current_record(node)
    is_unproven = record is not None and record.unproven and record.evidence is None
    if record is not None and is_unproven and record.failed_gpus is not None:
        return record.failed_gpus
    verdict = node.gpu_verdict
    return () if verdict is None else tuple(each.gpu for each in verdict.failed)
