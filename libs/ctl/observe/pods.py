"""What happens to the pods of a node when the GPU Operator evicts those with GPUs. Pure.

Pods with GPUs by a resource claim are not looked at.
"""

from collections.abc import Iterable, Sequence

import msgspec

from libs.contracts.gpus import GPU_RESOURCES
from libs.ctl.observe.fleet import Limits
from libs.ctl.observe.objects import DisruptionBudget, Pod
from libs.kube.views import MIRROR_ANNOTATION


class Evicted(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with GPUs, and why its eviction does not succeed."""

    name: str
    obstacle: str = ""
    """Makes the operator fail the node, or drain it where that is on. Empty: none."""
    budget: str = ""
    """The disruption budget that refuses its eviction now."""


def uses_gpu(pod: Pod) -> bool:
    """Whether the operator evicts it: it is active, and one of its containers asks for a GPU."""
    asked = (
        name
        for container in pod.spec.containers
        for name in (*container.resources.limits, *container.resources.requests)
    )
    return pod.is_active and any(name.startswith(GPU_RESOURCES) for name in asked)


def evicted_pods(
    pods: Iterable[Pod], limits: Limits, budgets: Sequence[DisruptionBudget]
) -> tuple[Evicted, ...]:
    """Return the pods that an upgrade of their node evicts."""
    return tuple(
        Evicted(
            name=pod.metadata.key,
            obstacle=_obstacle(pod, limits),
            budget=_refusing_budget(pod, budgets),
        )
        for pod in sorted(pods, key=lambda each: each.metadata.key)
        if uses_gpu(pod)
    )


def _obstacle(pod: Pod, limits: Limits) -> str:
    """Return why the operator does not evict a pod; empty: it does."""
    eviction = limits.eviction
    owners = pod.metadata.owner_references
    if any(owner.kind == "DaemonSet" for owner in owners):
        return "it belongs to a DaemonSet, which the operator counts but never evicts"
    if MIRROR_ANNOTATION in pod.metadata.annotations:
        return "it is a static pod, which cannot be evicted"
    if eviction is None:
        return ""
    if not eviction.delete_empty_dir and any(
        volume.empty_dir is not None for volume in pod.spec.volumes
    ):
        return "it has an emptyDir, and podDeletion.deleteEmptyDir is off"
    if not eviction.force and not any(owner.controller for owner in owners):
        return "no controller would make it again, and podDeletion.force is off"
    return ""


def _refusing_budget(pod: Pod, budgets: Sequence[DisruptionBudget]) -> str:
    refusing = (
        each.metadata.key
        for each in budgets
        if each.status.disruptions_allowed < 1 and each.protects(pod)
    )
    return min(refusing, default="")
