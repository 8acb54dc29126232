"""The small parts of which every pod of ours is made."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from libs.policy.kinds.common import EnvVar, Resources, Toleration
from libs.policy.normal import GPU_TAINT, amounts, tolerations
from libs.policy.rendering.rendered import MANAGED_BY

Part = dict[str, Any]

COMMON: Final = {
    "app.kubernetes.io/managed-by": MANAGED_BY,
    "app.kubernetes.io/part-of": "gpu-operator",
}
"""Labels of everything that is rendered; people select operands by the second."""


def some(part: Mapping[str, Any]) -> Part:
    """Without what is empty."""
    return {key: value for key, value in part.items() if value not in (None, "", {}, [], ())}


def literal(variables: Iterable[EnvVar]) -> list[Part]:
    """Variables with their values."""
    return [{"name": variable.name, "value": variable.value} for variable in variables]


def of_pod(**fields: str) -> list[Part]:
    """Variables that hold fields of the pod, by the downward API."""
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in fields.items()
    ]


def names(secrets: Iterable[str]) -> list[Part]:
    """References to objects by name."""
    return [{"name": name} for name in secrets]


def host(name: str, path: str, kind: str = "") -> Part:
    """A volume that is a place on the host."""
    return {"name": name, "hostPath": some({"path": path, "type": kind})}


def mount(name: str, path: str, *, propagation: str = "", read_only: bool = False) -> Part:
    """A volume inside a container."""
    part = some({"name": name, "mountPath": path, "mountPropagation": propagation})
    return {**part, "readOnly": True} if read_only else part


def needs(resources: Resources) -> Part:
    """What a container may use and is promised."""
    made = amounts(resources)
    return some({"limits": made.limits, "requests": made.requests})


def tolerated(given: Iterable[Toleration]) -> list[Part]:
    """Ours, and what people add."""
    return [msgspec.to_builtins(one) for one in (GPU_TAINT, *tolerations(given))]


def under(root: str, path: str) -> str:
    """A place of the host, as it is called where the host's root is `root`."""
    return f"{root.rstrip('/')}{path}"
