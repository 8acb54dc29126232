"""A pod in a table: one word for what its containers are doing, how many are ready, how often they
began again and when last.

The word is that of the first init container which is not through, and once they are through of the
first container that has something to say; a deletion drowns all of them.
"""

from dataclasses import dataclass, field
from typing import Any

from libs.kube.times import parse_time
from libs.testing.apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    Cell,
    Object,
    at,
    column,
    list_at,
    map_at,
    true_condition,
    value_at,
    wide,
)
from libs.testing.apiserver.printers.durations import since

_OVER = ("Succeeded", "Failed")
_ENDED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


@dataclass(slots=True)
class _Restarts:
    count: int = 0
    last: str = ""

    def add(self, status: Object) -> None:
        self.count += status.get("restartCount", 0)
        finished = value_at(status, "lastState", "terminated", "finishedAt")
        if finished and (not self.last or parse_time(finished) > parse_time(self.last)):
            self.last = finished


@dataclass(slots=True)
class _Picture:
    """What one pass over the container statuses makes of a pod."""

    reason: str
    ready: int = 0
    restarts: _Restarts = field(default_factory=_Restarts)


def conditions(pod: Object) -> list[dict[str, Any]]:
    """Of its row: that it is over, where it is."""
    phase = value_at(pod, "status", "phase")
    if phase not in _ENDED:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _ENDED[phase]}]


def _picture(pod: Object) -> _Picture:
    status: Object = pod.get("status") or {}
    phase = status.get("phase", "")
    picture = _Picture(reason=status.get("reason") or phase)
    for condition in list_at(status, "conditions"):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            picture.reason = "SchedulingGated"
    sidecar_restarts = _Restarts()
    if _initialise(pod, picture, sidecar_restarts) or true_condition(pod, "Initialized"):
        picture.restarts = sidecar_restarts
        _run(pod, picture)
    if value_at(pod, "metadata", "deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            picture.reason = "Unknown"
        elif phase not in _OVER:
            picture.reason = "Terminating"
    return picture


def _initialise(pod: Object, picture: _Picture, sidecar_restarts: _Restarts) -> bool:
    """Whether all init containers are through, as far as their statuses tell."""
    sidecars = _sidecars(pod)
    statuses = list_at(pod, "status", "initContainerStatuses")
    for index, container in enumerate(statuses):
        picture.restarts.add(container)
        sidecar = container["name"] in sidecars
        if sidecar:
            sidecar_restarts.add(container)
        terminated = value_at(container, "state", "terminated")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if sidecar and container.get("started"):
            picture.ready += bool(container.get("ready"))
            continue
        picture.reason = _init_reason(pod, index, container)
        return False
    return True


def _init_reason(pod: Object, index: int, container: Object) -> str:
    terminated = value_at(container, "state", "terminated")
    waiting = value_at(container, "state", "waiting", "reason")
    if terminated is not None:
        return f"Init:{_end(terminated)}"
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{index}/{len(list_at(pod, 'spec', 'initContainers'))}"


def _run(pod: Object, picture: _Picture) -> None:
    running = False
    failure = ""
    statuses = list_at(pod, "status", "containerStatuses")
    for container in reversed(statuses):
        picture.restarts.add(container)
        state = map_at(container, "state")
        terminated = state.get("terminated")
        waiting = value_at(state, "waiting", "reason")
        if waiting:
            picture.reason = waiting
        elif terminated is not None:
            picture.reason = _end(terminated)
            failure = picture.reason if terminated.get("exitCode", 0) else failure
        elif container.get("ready") and state.get("running") is not None:
            running = True
            picture.ready += 1
    if picture.reason == "Completed":
        if running and true_condition(pod, "Ready"):
            picture.reason = "Running"
        else:
            picture.reason = failure or ("NotReady" if running else picture.reason)


def _end(terminated: Object) -> str:
    if terminated.get("reason"):
        return terminated["reason"]
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _sidecars(pod: Object) -> set[str]:
    """Init containers that go on running beside the others."""
    return {
        container["name"]
        for container in list_at(pod, "spec", "initContainers")
        if container.get("restartPolicy") == "Always"
    }


def _ready(pod: Object, _now: float) -> Cell:
    total = len(list_at(pod, "spec", "containers")) + len(_sidecars(pod))
    return f"{_picture(pod).ready}/{total}"


def _status(pod: Object, _now: float) -> Cell:
    return _picture(pod).reason


def _restarts(pod: Object, now: float) -> Cell:
    restarts = _picture(pod).restarts
    if restarts.count and restarts.last:
        return f"{restarts.count} ({since(restarts.last, now)} ago)"
    return str(restarts.count)


def _address(pod: Object, _now: float) -> Cell:
    addresses = list_at(pod, "status", "podIPs")
    return (addresses[0].get("ip") if addresses else "") or NONE


def _gates(pod: Object, _now: float) -> Cell:
    gates = list_at(pod, "spec", "readinessGates")
    passed = sum(true_condition(pod, gate["conditionType"]) for gate in gates)
    return f"{passed}/{len(gates)}" if gates else NONE


POD = (
    NAME,
    column("Ready", _ready),
    column("Status", _status),
    column("Restarts", _restarts),
    AGE,
    wide("IP", _address),
    wide("Node", at("spec", "nodeName", default=NONE)),
    wide("Nominated Node", at("status", "nominatedNodeName", default=NONE)),
    wide("Readiness Gates", _gates),
)
