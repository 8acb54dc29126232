"""Fields of all pods."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from libs.policy.kinds.common import (
    EnvVar,
    ResourceRequirements,
    Toleration,
)
from libs.policy.normal_form import GPU_TAINT

JsonObject = dict[str, Any]

BOTH_WAYS: Final = "Bidirectional"
FROM_HOST: Final = "HostToContainer"
CREATE: Final = "DirectoryOrCreate"
MODULE_CONFIG: Final = "kernel-module-config"


class ConfigFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Volumes and one mount per file: mounting a directory would hide the image's files there."""

    volumes: Sequence[JsonObject]
    mounts: Sequence[JsonObject]
    """Mounts of the driver container. Mounts of the volume `MODULE_CONFIG` are module parameters,
    for every container that loads one of the driver's modules.
    """


def drop_empty(entries: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in entries.items() if value not in (None, "", {}, [], ())}


def env_fields(variables: Iterable[EnvVar]) -> list[JsonObject]:
    return [{"name": variable.name, "value": variable.value} for variable in variables]


def downward_api_env(fields: Mapping[str, str]) -> list[JsonObject]:
    """Return variables that hold pod fields through the downward API."""
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in fields.items()
    ]


def pull_secrets(names: Iterable[str]) -> list[JsonObject]:
    return [{"name": name} for name in dict.fromkeys(filter(None, names))]


def host_volume(name: str, path: str, kind: str = "") -> JsonObject:
    return {"name": name, "hostPath": drop_empty({"path": path, "type": kind})}


def volume_mount(
    name: str, path: str, *, propagation: str = "", read_only: bool = False
) -> JsonObject:
    mount = drop_empty({"name": name, "mountPath": path, "mountPropagation": propagation})
    return {**mount, "readOnly": True} if read_only else mount


def resource_fields(resources: ResourceRequirements) -> JsonObject:
    """Return limits and requests, with numbers as strings, as Kubernetes writes them."""
    fields = {"limits": resources.limits, "requests": resources.requests}
    return drop_empty(
        {
            field: {name: str(amount) for name, amount in amounts.items()}
            for field, amounts in fields.items()
        }
    )


def pod_tolerations(
    tolerations: Iterable[Toleration], startup_taints: Iterable[str] = ()
) -> list[JsonObject]:
    """Return the tolerations of the GPU taint, the given ones, and those of startup taints."""
    startup = (Toleration(key=key, operator="Exists") for key in sorted(set(startup_taints) - {""}))
    distinct = dict.fromkeys((GPU_TAINT, *tolerations, *startup))
    return [msgspec.to_builtins(toleration) for toleration in distinct]
