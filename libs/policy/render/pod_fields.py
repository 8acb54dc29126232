"""Helpers that build the fields of pods."""

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
"""Labels of every rendered object; scripts select operands by `part-of`."""


def drop_empty(entries: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in entries.items() if value not in (None, "", {}, [], ())}


def env_fields(variables: Iterable[EnvVar]) -> list[JsonObject]:
    return [{"name": variable.name, "value": variable.value} for variable in variables]


def downward_api_env(**fields: str) -> list[JsonObject]:
    """Return variables that hold pod fields through the downward API."""
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in fields.items()
    ]


def name_references(secrets: Iterable[str]) -> list[JsonObject]:
    return [{"name": name} for name in secrets]


def host_volume(name: str, path: str, kind: str = "") -> JsonObject:
    return {"name": name, "hostPath": drop_empty({"path": path, "type": kind})}


def volume_mount(
    name: str, path: str, *, propagation: str = "", read_only: bool = False
) -> JsonObject:
    part = drop_empty({"name": name, "mountPath": path, "mountPropagation": propagation})
    return {**part, "readOnly": True} if read_only else part


def resource_fields(resources: ResourceRequirements) -> JsonObject:
    quantities = normalize_quantities(resources)
    return drop_empty({"limits": quantities.limits, "requests": quantities.requests})


def pod_tolerations(tolerations: Iterable[Toleration]) -> list[JsonObject]:
    """Return the GPU taint's toleration and the given ones."""
    return [
        msgspec.to_builtins(toleration)
        for toleration in (GPU_TAINT, *user_tolerations(tolerations))
    ]


def path_under(root: str, path: str) -> str:
    """Return an absolute host path as seen where the host's root is `root`."""
    return f"{root.rstrip('/')}{path}"
