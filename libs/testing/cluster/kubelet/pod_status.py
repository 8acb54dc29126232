"""The pod status that a kubelet writes. Pure."""

from collections.abc import Sequence
from typing import Any

from libs.kube.views import format_time
from libs.testing.cluster.kubelet.container import ContainerPhase, SimulatedContainer


def pod_phase(containers: Sequence[SimulatedContainer]) -> str:
    """Return the pod's phase, as its containers imply it."""
    init_containers = [container for container in containers if container.init]
    if any(
        container.state is ContainerPhase.ENDED and not container.done
        for container in init_containers
    ):
        return "Failed"
    if not all(container.done for container in init_containers):
        return "Pending"
    main_containers = [container for container in containers if not container.init]
    if all(container.state is ContainerPhase.ENDED for container in main_containers):
        return "Succeeded" if all(container.done for container in main_containers) else "Failed"
    not_started = (ContainerPhase.WAITING, ContainerPhase.CREATING)
    if any(
        container.state in not_started and container.last is None for container in main_containers
    ):
        return "Pending"
    return "Running"


class PodStatusBuilder:
    """Builds statuses; remembers the transition time of each condition."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, float]] = {}

    def build(
        self,
        containers: Sequence[SimulatedContainer],
        *,
        since: float,
        now: float,
        host_ip: str,
        pod_ip: str,
    ) -> dict[str, Any]:
        """Return the kubelet's part of the pod's status."""
        init_containers = [container for container in containers if container.init]
        main_containers = [container for container in containers if not container.init]
        phase = pod_phase(containers)
        initialized = all(container.done for container in init_containers)
        ready = (
            bool(main_containers)
            and all(container.ready for container in main_containers)
            and initialized
        )
        reason = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
        started = any(
            container.last or container.state is ContainerPhase.RUNNING for container in containers
        )
        waiting = "PodInitializing" if init_containers else "ContainerCreating"
        status: dict[str, Any] = {
            "phase": phase,
            "startTime": format_time(since),
            "hostIP": host_ip,
            "hostIPs": [{"ip": host_ip}],
            "conditions": [
                self._condition("PodReadyToStartContainers", started, now, ""),
                self._condition("Initialized", initialized, now, "ContainersNotInitialized"),
                self._condition("Ready", ready, now, reason),
                self._condition("ContainersReady", ready, now, reason),
            ],
            "containerStatuses": [
                container.as_status(waiting=waiting) for container in main_containers
            ],
        }
        if init_containers:
            status["initContainerStatuses"] = [
                container.as_status(waiting=waiting) for container in init_containers
            ]
        if started:
            status |= {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
        return status

    def _condition(self, kind: str, is_true: bool, now: float, reason: str) -> dict[str, Any]:
        value = "True" if is_true else "False"
        before = self._since.get(kind)
        if before is None or before[0] != value:
            before = self._since[kind] = (value, now)
        return {
            "type": kind,
            "status": value,
            "lastTransitionTime": format_time(before[1]),
            "reason": None if is_true or not reason else reason,
        }
