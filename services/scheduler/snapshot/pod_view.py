"""Build the engine's views of pods. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from libs.contracts.gpus import GPU_RESOURCES
from libs.contracts.identities import Writer
from libs.contracts.node import DRAIN_SKIP_LABEL, DRIVER_LABEL, ITS_LOG, WHOLE_LOG
from libs.contracts.paths import DRIVER_CONTAINER
from libs.contracts.words import excerpt
from libs.kube.views import MIRROR_ANNOTATION, ContainerStatus, Terminated, parse_time
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.owners import DEPLOY_PREFIX
from libs.policy.render.agents import AGENTS
from libs.policy.render.driver import APP
from libs.policy.render.pauses import never_paused_labels
from libs.policy.render.rendered import (
    IMAGE_LABEL,
    INSTALL_ANNOTATION,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    WAY_BACK,
)
from libs.policy.selectors import selects
from libs.rollout.views.machine import DriverPod, EvictionExemption, ImagePull, WorkloadPod
from services.scheduler.resources import Pod
from services.scheduler.snapshot.claims import ClaimOf, claims_gpu

OWN_APPS: Final = {APP: None} | {agent.app: agent.component for agent in AGENTS}
"""The `app` label of Sluice's pods, and the agent; their namespace may have other pods too."""

_MAX_TROUBLE: Final = 400
"""Characters of a kubelet's error."""
_LOG_LINES: Final = 3
_MAX_LOG: Final = 300
"""How much is shown of the log of a driver container that ended."""
_BACKS_OFF: Final = "CrashLoopBackOff"
_STARTING: Final = frozenset(("ContainerCreating", "PodInitializing", ""))
_OVER: Final = frozenset(("Succeeded", "Failed"))
_GANG_LABELS: Final = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "leaderworkerset.sigs.k8s.io/group-key",
    "scheduling.x-k8s.io/pod-group",
    "kueue.x-k8s.io/pod-group-name",
)
"""The labels that name a group of pods which compute together, the outermost group first."""
_JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"


def driver_pod(pod: Pod, *, deleted_uid: str = "") -> DriverPod:
    """Return the view of a driver pod; the pod with `deleted_uid` was deleted by this leader."""
    metadata, status = pod.metadata, pod.status
    container = next(
        (each for each in status.container_statuses if each.name == DRIVER_CONTAINER), None
    )
    running = container.state.running if container is not None else None
    return DriverPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        label=metadata.labels.get(DRIVER_LABEL, ""),
        install_digest=metadata.annotations.get(INSTALL_ANNOTATION, ""),
        deleting=bool(metadata.deletion_timestamp) or metadata.uid == deleted_uid,
        ready=any(each.type == "Ready" and each.status == "True" for each in status.conditions),
        started=parse_time(running.started_at) if running and running.started_at else None,
        container_id=container.container_id.rpartition("/")[2] if container and running else "",
        restarts=container.restart_count if container is not None else 0,
        trouble=_trouble(pod),
        last_exit="" if container is None else _earlier_exit(pod, container),
        latest_exit="" if container is None else _latest_exit(container),
        pulled=_pulled(pod),
    )


def _pulled(pod: Pod) -> float | None:
    """Return the seconds until the first container, which pulls the image, was started."""
    first = pod.status.init_container_statuses[:1]
    state = first[0].state if first else None
    process = None if state is None else state.running or state.terminated
    created = pod.metadata.creation_timestamp
    if process is None or not process.started_at or not created:
        return None
    return max(0.0, parse_time(process.started_at) - parse_time(created))


def is_image_pod(pod: Pod) -> bool:
    """Return whether the pod brings a driver's image to its node."""
    return IMAGE_LABEL in pod.metadata.labels


def image_pull(pods: Iterable[Pod]) -> ImagePull | None:
    """Return the view of the latest pod that brings an image; None: there is none."""
    live = [pod for pod in pods if not pod.metadata.deletion_timestamp]
    if not live:
        return None
    pod = max(live, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name))
    statuses, status = pod.status.container_statuses, pod.status
    present = bool(statuses) and all(
        each.image_id and (each.state.running or each.state.terminated) for each in statuses
    )
    name, trouble = ("", "") if present else _pull_trouble(statuses)
    if not present and not trouble and status.phase == "Failed":
        trouble = status.message or status.reason or "the pod failed"
    label = pod.metadata.labels[IMAGE_LABEL]
    return ImagePull(
        label=label,
        present=present,
        trouble=excerpt(trouble, _MAX_TROUBLE),
        is_way_back=name.startswith(WAY_BACK),
    )


def _pull_trouble(containers: Iterable[ContainerStatus]) -> tuple[str, str]:
    """Return the first container in trouble, and the kubelet's error, which names the image."""
    for container in containers:
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in _STARTING:
            reason, message = waiting.reason, waiting.message
            return container.name, f"{reason}: {message}" if message else reason
    return "", ""


def _trouble(pod: Pod) -> str:
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting, ended = container.state.waiting, container.state.terminated
        if waiting is not None and waiting.reason not in _STARTING:
            # The kubelet's message of a back-off names the pod and the container again.
            is_told = not waiting.message or waiting.reason == _BACKS_OFF
            text = waiting.reason if is_told else f"{waiting.reason}: {waiting.message}"
            before = _earlier_exit(pod, container)
            # How the driver's own container ended is said apart.
            is_other = before and container.name != DRIVER_CONTAINER
            return f"{text}; container {container.name} {before}" if is_other else text
        if ended is not None and ended.exit_code:
            logs = _logs_command(pod, container)
            return f"container {container.name} {_exit_text(ended, logs)}"
    return ""


def _earlier_exit(pod: Pod, container: ContainerStatus) -> str:
    """Return how the last run of a container ended; empty: none did."""
    ended = container.last_state.terminated
    logs = f"{_logs_command(pod, container)} --previous"
    return "" if ended is None else _exit_text(ended, logs)


def _exit_text(ended: Terminated, logs: str) -> str:
    """Return how a container ended, the last lines of its log if the kubelet has them, and the
    command for all of it.
    """
    text = _code_text(ended)
    lines = [line.strip() for line in ended.message.splitlines() if line.strip()]
    log = " / ".join(lines[-_LOG_LINES:])
    if not log:
        return f"{text}; {ITS_LOG}: `{logs}`"
    if len(log) > _MAX_LOG:
        log = f"…{log[1 - _MAX_LOG :]}"
    return f"{text}, and its log ends: {excerpt(log, _MAX_LOG)}; {WHOLE_LOG}: `{logs}`"


def _latest_exit(container: ContainerStatus) -> str:
    """Return how a container last ended, in short; empty: it never did."""
    ended = container.state.terminated or container.last_state.terminated
    return "" if ended is None else _code_text(ended)


def _code_text(ended: Terminated) -> str:
    reason = "" if ended.reason in ("", "Error", "Completed") else f" ({ended.reason})"
    return f"exited with code {ended.exit_code}{reason}"


def _logs_command(pod: Pod, container: ContainerStatus) -> str:
    return f"kubectl logs -n {pod.metadata.namespace} {pod.metadata.name} -c {container.name}"


def no_claims(_key: str) -> None:
    """Know no resource claim."""


def workload_pod(
    pod: Pod,
    upgrade: UpgradePolicy | None,
    *,
    namespace: str,
    claim_of: ClaimOf = no_claims,
    absent_agents: frozenset[Writer] = frozenset(),
) -> WorkloadPod:
    """Return the view of a pod that is not a driver, under the upgrade policy of its pool.

    `absent_agents` are those that the policies switch off.
    """
    metadata = pod.metadata
    labels = metadata.labels
    exemption = _exemption(pod, namespace, never_paused_labels(absent_agents))
    deleting = bool(metadata.deletion_timestamp)
    requests_gpu, claimed_gpu = _requests_gpu(pod), claims_gpu(pod, claim_of)
    is_job = is_drained = False
    if upgrade is not None:
        job_selector, drain = upgrade.wait_for_completion.pod_selector, upgrade.drain
        is_job = not deleting and bool(job_selector) and selects(job_selector, labels)
        is_drained = (
            exemption is EvictionExemption.NONE
            and drain.enable
            and selects(drain.pod_selector, labels)
        )
    return WorkloadPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        gpu=requests_gpu or claimed_gpu is True,
        claims_unknown=not requests_gpu and claimed_gpu is None,
        job=is_job,
        drained=is_drained,
        exemption=exemption,
        owner=controller_kind(pod),
        bare=not any(owner.controller for owner in metadata.owner_references),
        empty_dir=any(volume.empty_dir is not None for volume in pod.spec.volumes),
        deleting=deleting,
        started=started_at(pod),
        gang=_gang(pod),
    )


def controller_kind(pod: Pod) -> str:
    """Return the kind of a pod's controller; empty: it has none."""
    return next((owner.kind for owner in pod.metadata.owner_references if owner.controller), "")


def started_at(pod: Pod) -> float | None:
    """Return when a pod started, or was created; None: it is not known."""
    text = pod.status.start_time or pod.metadata.creation_timestamp
    return parse_time(text) if text else None


def _gang(pod: Pod) -> str:
    """Return the namespace and name of the group that the pod computes with; empty: none."""
    labels = pod.metadata.labels
    names = [labels[key] for key in _GANG_LABELS if labels.get(key)]
    if not names and _JOB_INDEX in labels:
        owners = pod.metadata.owner_references
        names = [owner.name for owner in owners if owner.controller and owner.kind == "Job"]
    return f"{pod.metadata.namespace}/{names[0]}" if names else ""


def is_workload(pod: Pod) -> bool:
    """Return whether the pod is no driver, and runs or will run."""
    return not is_finished(pod) and DRIVER_LABEL not in pod.metadata.labels


def is_finished(pod: Pod) -> bool:
    """Return whether all containers have ended, so that the pod holds no devices."""
    return pod.status.phase in _OVER


def is_of_daemon_set(pod: Pod) -> bool:
    """Return whether a DaemonSet would recreate the pod at once."""
    return any(
        owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references
    )


def _requests_gpu(pod: Pod) -> bool:
    return any(
        name.startswith(GPU_RESOURCES) and amount != "0"
        for container in pod.spec.containers
        for amounts in (container.resources.limits, container.resources.requests)
        for name, amount in amounts.items()
    )


def _exemption(pod: Pod, namespace: str, never_paused: Collection[str]) -> EvictionExemption:
    metadata = pod.metadata
    in_namespace = metadata.namespace == namespace
    if MIRROR_ANNOTATION in metadata.annotations:
        return EvictionExemption.MIRROR
    if in_namespace and _is_own(metadata.labels):
        return EvictionExemption.SLUICE
    if is_of_daemon_set(pod):
        deploy_labels = (key for key in pod.spec.node_selector if key.startswith(DEPLOY_PREFIX))
        if any(key not in never_paused for key in deploy_labels):
            return EvictionExemption.OPERAND
        return EvictionExemption.SLUICE if in_namespace else EvictionExemption.DAEMON_SET
    if in_namespace:
        return EvictionExemption.SLUICE
    if metadata.labels.get(DRAIN_SKIP_LABEL) == "true":
        return EvictionExemption.DRAIN_SKIP
    return EvictionExemption.NONE


def _is_own(labels: Mapping[str, str]) -> bool:
    """Report whether a pod is Sluice's: a GPU Operator's pods have the same label `app`."""
    return labels.get("app") in OWN_APPS and labels.get(MANAGED_BY_LABEL) == MANAGED_BY
