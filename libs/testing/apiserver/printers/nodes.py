"""The table of nodes."""

from libs.testing.apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
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

_ROLE_PREFIX = "node-role.kubernetes.io/"


def _status(node: Object, _now: float) -> Cell:
    known = any(each["type"] == "Ready" for each in list_at(node, "status", "conditions"))
    words = "NotReady" if known else "Unknown"
    words = "Ready" if true_condition(node, "Ready") else words
    return f"{words},SchedulingDisabled" if value_at(node, "spec", "unschedulable") else words


def _roles(node: Object, _now: float) -> Cell:
    labels = map_at(node, "metadata", "labels")
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return ",".join(sorted(roles - {""})) or NONE


def _internal_ip(node: Object, _now: float) -> Cell:
    addresses = list_at(node, "status", "addresses")
    return next((each["address"] for each in addresses if each["type"] == "InternalIP"), NONE)


NODE = (
    NAME,
    column("Status", _status),
    column("Roles", _roles),
    AGE,
    column("Version", at("status", "nodeInfo", "kubeletVersion")),
    wide("Internal-IP", _internal_ip),
    wide("OS-Image", at("status", "nodeInfo", "osImage", default=UNKNOWN)),
    wide("Kernel-Version", at("status", "nodeInfo", "kernelVersion", default=UNKNOWN)),
    wide("Container-Runtime", at("status", "nodeInfo", "containerRuntimeVersion", default=UNKNOWN)),
)
