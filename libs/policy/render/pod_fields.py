"""The small parts of which every pod of ours is made."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from libs.policy.kinds.common import EnvVar, ResourceRequirements, Toleration
from libs.policy.normalize import GPU_TAINT, normalize_quantities, user_tolerations
from libs.policy.render.rendered import MANAGED_BY

JsonObject = dict[str, Any]

COMMON_LABELS: Final = {
    "app.kubernetes.io/managed-by": MANAGED_BY,
    "app.kubernetes.io/part-of": "gpu-operator",
}
"""Labels of everything that is rendered; people select operands by the second."""


def drop_empty(part: Mapping[str, Any]) -> JsonObject:
    """Without what is empty."""
    return {key: value for key, value in part.items() if value not in (None, "", {}, [], ())}


def env_fields(variables: Iterable[EnvVar]) -> list[JsonObject]:
    """Variables with their values."""
    return [{"name": variable.name, "value": variable.value} for variable in variables]


def downward_api_env(**fields: str) -> list[JsonObject]:
    """Variables that hold fields of the pod, by the downward API."""
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in fields.items()
    ]


def name_references(secrets: Iterable[str]) -> list[JsonObject]:
    """References to objects by name."""
    return [{"name": name} for name in secrets]


def host_volume(name: str, path: str, kind: str = "") -> JsonObject:
    """A volume that is a place on the host."""
    return {"name": name, "hostPath": drop_empty({"path": path, "type": kind})}


def volume_mount(
    name: str, path: str, *, propagation: str = "", read_only: bool = False
) -> JsonObject:
    """A volume inside a container."""
    part = drop_empty({"name": name, "mountPath": path, "mountPropagation": propagation})
    return {**part, "readOnly": True} if read_only else part


def resource_fields(resources: ResourceRequirements) -> JsonObject:
    """What a container may use and is promised."""
    made = normalize_quantities(resources)
    return drop_empty({"limits": made.limits, "requests": made.requests})


def pod_tolerations(given: Iterable[Toleration]) -> list[JsonObject]:
    """Ours, and what people add."""
    return [msgspec.to_builtins(one) for one in (GPU_TAINT, *user_tolerations(given))]


def path_under(root: str, path: str) -> str:
    """A place of the host, as it is called where the host's root is `root`."""
    return f"{root.rstrip('/')}{path}"
