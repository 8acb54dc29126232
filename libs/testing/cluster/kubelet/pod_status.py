"""What a kubelet says of a pod, in the API's words, and since when that is so. Pure."""

from collections.abc import Sequence
from typing import Any

from libs.kube.times import format_time
from libs.testing.cluster.kubelet.container import ContainerPhase, SimulatedContainer


def pod_phase(boxes: Sequence[SimulatedContainer]) -> str:
    """What all containers together have come to."""
    inits = [box for box in boxes if box.init]
    if any(box.state is ContainerPhase.ENDED and not box.done for box in inits):
        return "Failed"
    if not all(box.done for box in inits):
        return "Pending"
    mains = [box for box in boxes if not box.init]
    if all(box.state is ContainerPhase.ENDED for box in mains):
        return "Succeeded" if all(box.done for box in mains) else "Failed"
    fresh = (ContainerPhase.WAITING, ContainerPhase.CREATING)
    if any(box.state in fresh and box.last is None for box in mains):
        return "Pending"
    return "Running"


class PodStatusBuilder:
    """Remembers since when each condition is as it is."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, float]] = {}

    def build(
        self,
        boxes: Sequence[SimulatedContainer],
        *,
        since: float,
        now: float,
        host_ip: str,
        pod_ip: str,
    ) -> dict[str, Any]:
        """All of a pod's status that is the kubelet's."""
        inits = [box for box in boxes if box.init]
        mains = [box for box in boxes if not box.init]
        whole = pod_phase(boxes)
        initialized = all(box.done for box in inits)
        ready = bool(mains) and all(box.ready for box in mains) and initialized
        why = "PodCompleted" if whole == "Succeeded" else "ContainersNotReady"
        begun = any(box.last or box.state is ContainerPhase.RUNNING for box in boxes)
        waiting = "PodInitializing" if inits else "ContainerCreating"
        status: dict[str, Any] = {
            "phase": whole,
            "startTime": format_time(since),
            "hostIP": host_ip,
            "hostIPs": [{"ip": host_ip}],
            "conditions": [
                self._condition("PodReadyToStartContainers", begun, now, ""),
                self._condition("Initialized", initialized, now, "ContainersNotInitialized"),
                self._condition("Ready", ready, now, why),
                self._condition("ContainersReady", ready, now, why),
            ],
            "containerStatuses": [box.as_status(waiting=waiting) for box in mains],
        }
        if inits:
            status["initContainerStatuses"] = [box.as_status(waiting=waiting) for box in inits]
        if begun:
            status |= {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
        return status

    def _condition(self, kind: str, holds: bool, now: float, why: str) -> dict[str, Any]:
        word = "True" if holds else "False"
        before = self._since.get(kind)
        if before is None or before[0] != word:
            before = self._since[kind] = (word, now)
        return {
            "type": kind,
            "status": word,
            "lastTransitionTime": format_time(before[1]),
            "reason": None if holds or not why else why,
        }
