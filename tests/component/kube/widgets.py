"""A custom kind with every schema feature that our own kinds use."""

from typing import Any

from libs.kube.resources import Resource
from libs.kube.views import Metadata, Object, View

GROUP = "suite.sluice.dev"

IMMUTABLE = "self.pool == oldSelf.pool"
"""The CEL rule for the real server; the simulated one uses the predicate below."""


def pool_stays(new: Any, old: Any) -> bool:
    """Return whether the pool is unchanged: `IMMUTABLE` in Python."""
    return new["pool"] == old["pool"]


class WidgetSpec(View, frozen=True, kw_only=True):
    pool: str = ""
    size: int = 0
    mode: str = ""


class WidgetStatus(View, frozen=True, kw_only=True):
    phase: str = ""


class Widget(Object, frozen=True, kw_only=True):
    metadata: Metadata
    spec: WidgetSpec = WidgetSpec()
    status: WidgetStatus = WidgetStatus()


WIDGETS = Resource(group=GROUP, version="v1alpha1", plural="widgets", kind="Widget", view=Widget)

_TOKENS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {"type": "object", "properties": {"token": {"type": "integer"}}},
}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["pool"],
            "x-kubernetes-validations": [{"rule": IMMUTABLE, "message": "pool is immutable"}],
            "properties": {
                "pool": {"type": "string", "minLength": 1, "maxLength": 20},
                "size": {"type": "integer", "minimum": 0, "maximum": 10, "default": 1},
                "mode": {
                    "type": "string",
                    "enum": ["None", "Pause", "Freeze"],
                    "default": "None",
                },
                "digest": {"type": "string", "pattern": "^[0-9a-f]{4}$"},
                "share": {
                    "x-kubernetes-int-or-string": True,
                    "anyOf": [{"type": "integer"}, {"type": "string"}],
                },
                "nested": {
                    "type": "object",
                    "default": {},
                    "properties": {
                        "deep": {"type": "boolean", "default": True},
                        "name": {"type": "string"},
                    },
                },
                "optional": {
                    "type": "object",
                    "properties": {"inner": {"type": "string", "default": "there"}},
                },
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "steps": {
                    "type": "array",
                    "maxItems": 3,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "seconds": {"type": "integer", "default": 5},
                        },
                    },
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string"},
                "whole": _TOKENS | {"x-kubernetes-map-type": "atomic"},
                "each": _TOKENS,
                "names": {
                    "type": "array",
                    "x-kubernetes-list-type": "set",
                    "items": {"type": "string"},
                },
                "all": {
                    "type": "array",
                    "x-kubernetes-list-type": "atomic",
                    "items": {"type": "string"},
                },
            },
        },
    },
}


def definition(
    *, plural: str = "widgets", kind: str = "Widget", schema: dict[str, Any] = SCHEMA
) -> dict[str, Any]:
    """Return the CustomResourceDefinition."""
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "Pool", "type": "string", "jsonPath": ".spec.pool"},
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }
    return {
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [version],
        },
    }


def widget(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": WIDGETS.api_version,
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"pool": "p", **spec},
    }
