"""Pods as the engine sees them: drivers, and all others that are on a node. Pure."""

from collections.abc import Iterable
from typing import Final

from libs.contracts.node import DRAIN_SKIP_LABEL, DRIVER_LABEL
from libs.kube.times import parse_time
from libs.kube.views import ContainerStatus
from libs.policy.deploy_labels import DEPLOY_PREFIX, NEVER_PAUSED_LABELS
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.render.agents import AGENTS
from libs.policy.render.driver import APP
from libs.policy.render.rendered import INSTALL_ANNOTATION
from libs.policy.selectors import selects
from libs.rollout.views.machine import DriverPod, EvictionExemption, WorkloadPod
from services.scheduler.resources import Pod

DRIVER_CONTAINER: Final = "nvidia-driver-ctr"
OWN_APPS: Final = frozenset((APP, *(agent.app for agent in AGENTS)))
"""The `app` of pods that are ours, wherever their namespace has others too."""

_MIRROR: Final = "kubernetes.io/config.mirror"
_PATIENT: Final = frozenset(("ContainerCreating", "PodInitializing", ""))
_OVER: Final = frozenset(("Succeeded", "Failed"))
_ACCELERATORS: Final = ("nvidia.com/gpu", "nvidia.com/mig-")


def driver_pod(pod: Pod) -> DriverPod:
    """One of those that bring a driver up."""
    metadata, status = pod.metadata, pod.status
    container = next(
        (one for one in status.container_statuses if one.name == DRIVER_CONTAINER), None
    )
    running = container.state.running if container is not None else None
    return DriverPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        label=metadata.labels.get(DRIVER_LABEL, ""),
        install_digest=metadata.annotations.get(INSTALL_ANNOTATION, ""),
        deleting=bool(metadata.deletion_timestamp),
        ready=any(one.type == "Ready" and one.status == "True" for one in status.conditions),
        started=parse_time(running.started_at) if running and running.started_at else None,
        restarts=container.restart_count if container is not None else 0,
        trouble=_trouble((*status.init_container_statuses, *status.container_statuses)),
    )


def _trouble(containers: Iterable[ContainerStatus]) -> str:
    for one in containers:
        waiting, ended = one.state.waiting, one.state.terminated
        if waiting is not None and waiting.reason not in _PATIENT:
            return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
        if ended is not None and ended.exit_code:
            return f"{one.name} ended with {ended.exit_code}"
    return ""


def is_over(pod: Pod) -> bool:
    """Whether it has ended by itself: it holds nothing."""
    return pod.status.phase in _OVER


def work_pod(pod: Pod, upgrade: UpgradePolicy | None, *, namespace: str) -> WorkloadPod:
    """One that is no driver, as this policy treats it."""
    metadata = pod.metadata
    shelter = _shelter(pod, namespace)
    deleting = bool(metadata.deletion_timestamp)
    return WorkloadPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        gpu=_computes(pod),
        job=upgrade is not None and not deleting and _is_awaited(pod, upgrade),
        drained=upgrade is not None
        and shelter is EvictionExemption.NONE
        and _is_drained(pod, upgrade),
        exemption=shelter,
        bare=not any(owner.controller for owner in metadata.owner_references),
        empty_dir=any(volume.empty_dir is not None for volume in pod.spec.volumes),
        deleting=deleting,
    )


def _computes(pod: Pod) -> bool:
    return any(
        name.startswith(_ACCELERATORS) and amount != "0"
        for container in pod.spec.containers
        for named in (container.resources.limits, container.resources.requests)
        for name, amount in named.items()
    )


def _is_awaited(pod: Pod, upgrade: UpgradePolicy) -> bool:
    selector = upgrade.wait_for_completion.pod_selector
    return bool(selector) and selects(selector, pod.metadata.labels)


def _is_drained(pod: Pod, upgrade: UpgradePolicy) -> bool:
    drain = upgrade.drain
    return drain.enable and selects(drain.pod_selector, pod.metadata.labels)


def _shelter(pod: Pod, namespace: str) -> EvictionExemption:
    metadata = pod.metadata
    at_home = metadata.namespace == namespace
    if _MIRROR in metadata.annotations:
        return EvictionExemption.MIRROR
    if at_home and metadata.labels.get("app") in OWN_APPS:
        return EvictionExemption.OURS
    if is_of_daemon_set(pod):
        pausable = (key for key in pod.spec.node_selector if key.startswith(DEPLOY_PREFIX))
        if any(key not in NEVER_PAUSED_LABELS for key in pausable):
            return EvictionExemption.OPERAND
        return EvictionExemption.OURS if at_home else EvictionExemption.DAEMON_SET
    if at_home:
        return EvictionExemption.OURS
    if metadata.labels.get(DRAIN_SKIP_LABEL) == "true":
        return EvictionExemption.DRAIN_SKIP
    return EvictionExemption.NONE


def is_of_daemon_set(pod: Pod) -> bool:
    """Whether one would be made anew in its place at once."""
    return any(
        owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references
    )
