"""The tables of pods and DaemonSets."""

from libs.testing.apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    Cell,
    Object,
    at,
    column,
    count,
    list_at,
    map_at,
    value_at,
    wide,
)


def _ready(pod: Object, _now: float) -> Cell:
    ready = sum(bool(each.get("ready")) for each in list_at(pod, "status", "containerStatuses"))
    return f"{ready}/{len(list_at(pod, 'spec', 'containers'))}"


def _status(pod: Object, _now: float) -> Cell:
    """Return the state of the first container that is neither running nor completed.

    Init containers come first; a deletion hides all of them.
    """
    phase = value_at(pod, "status", "phase") or ""
    if value_at(pod, "metadata", "deletionTimestamp") and phase not in ("Succeeded", "Failed"):
        return "Terminating"
    total = len(list_at(pod, "spec", "initContainers"))
    for index, container in enumerate(list_at(pod, "status", "initContainerStatuses")):
        if value_at(container, "state", "terminated", "exitCode") != 0:
            reason = _reason(container)
            shown = reason if reason not in ("", "PodInitializing") else f"{index}/{total}"
            return f"Init:{shown}"
    reasons = [_reason(each) for each in list_at(pod, "status", "containerStatuses")]
    return next(filter(None, reasons), value_at(pod, "status", "reason") or phase)


def _reason(container: Object) -> str:
    waiting = value_at(container, "state", "waiting", "reason")
    terminated = map_at(container, "state", "terminated")
    default = f"ExitCode:{terminated.get('exitCode', 0)}" if terminated else ""
    return waiting or terminated.get("reason") or default


def _restarts(pod: Object, _now: float) -> Cell:
    names = ("initContainerStatuses", "containerStatuses")
    return str(
        sum(each.get("restartCount", 0) for name in names for each in list_at(pod, "status", name))
    )


def _address(pod: Object, _now: float) -> Cell:
    addresses = list_at(pod, "status", "podIPs")
    return (addresses[0].get("ip") if addresses else "") or NONE


def _node_selector(daemon_set: Object, _now: float) -> Cell:
    selector = map_at(daemon_set, "spec", "template", "spec", "nodeSelector")
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or NONE


POD = (
    NAME,
    column("Ready", _ready),
    column("Status", _status),
    column("Restarts", _restarts),
    AGE,
    wide("IP", _address),
    wide("Node", at("spec", "nodeName", default=NONE)),
)
DAEMON_SET = (
    NAME,
    column("Desired", count("status", "desiredNumberScheduled"), "integer"),
    column("Current", count("status", "currentNumberScheduled"), "integer"),
    column("Ready", count("status", "numberReady"), "integer"),
    column("Up-to-date", count("status", "updatedNumberScheduled"), "integer"),
    column("Available", count("status", "numberAvailable"), "integer"),
    column("Node Selector", _node_selector),
    AGE,
)
