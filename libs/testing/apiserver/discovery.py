"""Discovery: the server's version, the kinds that it serves, and a minimal OpenAPI document."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from libs.testing.apiserver.kinds.kind import ResourceKind

VERSION: Mapping[str, str] = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.1+simulated",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}

_GROUPS = (
    "apps",
    "batch",
    "policy",
    "rbac.authorization.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
)
"""In the order of a real server, which resolves a resource name without a group."""

_VERSION = re.compile(r"v(?P<major>\d+)(?:(?P<stage>alpha|beta)(?P<minor>\d+))?")
_SUBRESOURCES: Mapping[str, tuple[Mapping[str, str], Sequence[str]]] = {
    "binding": ({"kind": "Binding"}, ("create",)),
    "eviction": ({"group": "policy", "version": "v1", "kind": "Eviction"}, ("create",)),
}
"""Subresources with a kind or verbs of their own."""

_OPENAPI = "openapi/v3"


def discovery_document(path: str, kinds: Sequence[ResourceKind]) -> dict[str, Any] | None:
    """Return the document at this path, or None if it is no discovery path."""
    match path.strip("/").split("/"):
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": _versions(kinds, "")}
        case ["apis"]:
            groups = [_group(kinds, name) for name in _group_names(kinds)]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", name] if name in _group_names(kinds):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(kinds, name)}
        case ["api", version]:
            return _resources(kinds, "", version)
        case ["apis", name, version]:
            return _resources(kinds, name, version)
        case ["openapi", *_]:
            return _openapi_document(path.strip("/"), kinds)
        case _:
            return None


def _group_names(kinds: Sequence[ResourceKind]) -> list[str]:
    """Return the groups, built-in ones first."""
    known = {name: index for index, name in enumerate(_GROUPS)}
    names = {kind.group for kind in kinds} - {""}
    return sorted(names, key=lambda name: (known.get(name, len(known)), name))


def _versions(kinds: Sequence[ResourceKind], group: str) -> list[str]:
    """Return the versions of a group, the preferred one first."""
    return sorted({kind.version for kind in kinds if kind.group == group}, key=_preference)


def _preference(version: str) -> tuple[int, int, int, str]:
    """Sort v2, v1, v1beta2, v1alpha1, and then everything else."""
    matched = _VERSION.fullmatch(version)
    if matched is None:
        return (3, 0, 0, version)
    rank = ("", "beta", "alpha").index(matched["stage"] or "")
    return (rank, -int(matched["major"]), -int(matched["minor"] or 0), version)


def _group(kinds: Sequence[ResourceKind], name: str) -> dict[str, Any]:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in _versions(kinds, name)
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(kinds: Sequence[ResourceKind], group: str, version: str) -> dict[str, Any] | None:
    served = [kind for kind in kinds if (kind.group, kind.version) == (group, version)]
    if not served:
        return None
    return {
        "kind": "APIResourceList",
        **({"apiVersion": "v1"} if group else {}),  # a real server omits it for the core group
        "groupVersion": served[0].api_version,
        "resources": [
            resource
            for kind in sorted(served, key=lambda kind: kind.plural)
            for resource in (_resource(kind), *_subresources(kind))
        ],
    }


def _resource(kind: ResourceKind) -> dict[str, Any]:
    names = {"shortNames": kind.short_names, "categories": kind.categories}
    return {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": kind.verbs,
        **{field: words for field, words in names.items() if words},
    }


def _subresources(kind: ResourceKind) -> Iterator[dict[str, Any]]:
    for name in kind.subresources:
        own = ({"kind": kind.kind}, ("get", "patch", "update"))
        response_kind, verbs = _SUBRESOURCES.get(name, own)
        yield {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **response_kind,
            "verbs": verbs,
        }


def _openapi_document(path: str, kinds: Sequence[ResourceKind]) -> dict[str, Any] | None:
    """Return the part of OpenAPI that kubectl's create and apply read before they write."""
    roots = {_root(kind) for kind in kinds}
    if path == _OPENAPI:
        urls = {root: {"serverRelativeURL": f"/{_OPENAPI}/{root}"} for root in sorted(roots)}
        return {"paths": urls}
    root = path.removeprefix(f"{_OPENAPI}/")
    if root not in roots:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "simulated"},
        "paths": {
            f"/{root}/{kind.plural}/{{name}}": {"patch": _patch_operation(kind)}
            for kind in kinds
            if _root(kind) == root and "patch" in kind.verbs
        },
        "components": {"schemas": {}},
    }


def _root(kind: ResourceKind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _patch_operation(kind: ResourceKind) -> dict[str, Any]:
    return {
        "parameters": [{"name": "fieldValidation", "in": "query"}],
        "responses": {},
        "x-kubernetes-group-version-kind": {
            "group": kind.group,
            "version": kind.version,
            "kind": kind.kind,
        },
    }
