"""The pods on a node: whether its machine may be switched off, and what drains it. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from libs.contracts.gpus import GPU_RESOURCES
from libs.ctl.observe.objects import Pod
from libs.ctl.text import plural, some
from libs.kube.views import MIRROR_ANNOTATION, Node
from libs.policy.render.rendered import IMAGE_LABEL

_OVER: Final = ("Succeeded", "Failed")
"""Phases of pods whose containers have ended."""


def may_be_pulled(node: Node, pods: Iterable[Pod]) -> str:
    """Return whether a machine may be switched off, by the pods that are bound to its node."""
    name = node.metadata.name
    drained = [each for each in pods if each.status.phase not in _OVER and not _stays(each)]
    running = [each for each in drained if IMAGE_LABEL not in each.metadata.labels]
    if not running:
        cordon = "" if node.spec.unschedulable else f"; `kubectl cordon {name}` keeps it so"
        return f"You may pull it: no pods run on it, except those of DaemonSets{cordon}"
    with_gpus = sum(map(_uses_gpu, running))
    all_use = with_gpus == len(running)
    count = f"{plural(len(running), 'pod')}{' with GPUs' if all_use else ''}"
    gpus = f", {with_gpus} of them with GPUs" if with_gpus and not all_use else ""
    drain = " ".join((f"kubectl drain {name} --ignore-daemonsets", *_flags(drained)))
    them = "it" if len(running) == 1 else "them"
    run = "runs" if len(running) == 1 else "run"
    return (
        f"Do not pull it yet: {count} {run} on it{gpus}: {_names(running)}; `{drain}` evicts"
        f" {them}{_lost(running)}"
    )


def _flags(drained: Sequence[Pod]) -> Iterator[str]:
    """Yield what a drain of these pods needs; Sluice's own that bring an image count, too."""
    if not all(map(_has_controller, drained)):
        yield "--force"
    if any(volume.empty_dir is not None for each in drained for volume in each.spec.volumes):
        yield "--delete-emptydir-data"


def _lost(running: Sequence[Pod]) -> str:
    """Return which pods nothing makes again."""
    alone = [each for each in running if not _has_controller(each)]
    if not alone:
        return ""
    names = "" if len(alone) == len(running) else f"{_names(alone)}: "
    they = "it has no controller and does" if len(alone) == 1 else "they have no controller and do"
    return f"; {names}{they} not come back"


def _names(pods: Sequence[Pod]) -> str:
    return some(sorted(each.metadata.key for each in pods))


def _has_controller(pod: Pod) -> bool:
    return any(each.controller for each in pod.metadata.owner_references)


def _stays(pod: Pod) -> bool:
    """Whether a drain leaves the pod alone: it belongs to a DaemonSet, or is the kubelet's own."""
    owners = pod.metadata.owner_references
    of_daemon_set = any(each.controller and each.kind == "DaemonSet" for each in owners)
    return of_daemon_set or MIRROR_ANNOTATION in pod.metadata.annotations


def _uses_gpu(pod: Pod) -> bool:
    return any(
        name.startswith(GPU_RESOURCES)
        for container in pod.spec.containers
        for name in (*container.resources.limits, *container.resources.requests)
    )
