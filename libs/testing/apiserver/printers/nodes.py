"""A node in a table."""

from libs.testing.apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    Cell,
    CellReader,
    Object,
    at,
    column,
    list_at,
    map_at,
    value_at,
    wide,
)

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"


def _status(node: Object, _now: float) -> Cell:
    words = "Unknown"
    for condition in list_at(node, "status", "conditions"):
        if condition["type"] == "Ready":
            words = "Ready" if condition.get("status") == "True" else "NotReady"
    return f"{words},SchedulingDisabled" if value_at(node, "spec", "unschedulable") else words


def _roles(node: Object, _now: float) -> Cell:
    roles: set[str] = set()
    for key, value in map_at(node, "metadata", "labels").items():
        if key.startswith(_ROLE_PREFIX):
            roles.add(key.removeprefix(_ROLE_PREFIX))
        elif key == _ROLE:
            roles.add(value)
    return ",".join(sorted(roles - {""})) or NONE


def _address(type: str) -> CellReader:
    def read(node: Object, _now: float) -> Cell:
        for address in list_at(node, "status", "addresses"):
            if address["type"] == type:
                return address["address"]
        return NONE

    return read


def _kernel(node: Object, _now: float) -> Cell:
    version = value_at(node, "status", "nodeInfo", "kernelVersion") or UNKNOWN
    architecture = value_at(node, "status", "nodeInfo", "architecture")
    return f"{version} ({architecture})" if architecture else version


NODE = (
    NAME,
    column("Status", _status),
    column("Roles", _roles),
    AGE,
    column("Version", at("status", "nodeInfo", "kubeletVersion")),
    wide("Internal-IP", _address("InternalIP")),
    wide("External-IP", _address("ExternalIP")),
    wide("OS-Image", at("status", "nodeInfo", "osImage", default=UNKNOWN)),
    wide("Kernel-Version", _kernel),
    wide("Container-Runtime", at("status", "nodeInfo", "containerRuntimeVersion", default=UNKNOWN)),
)
