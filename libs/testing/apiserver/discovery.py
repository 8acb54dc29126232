"""What the server says of itself: its version, and which kinds it serves, in both of the forms that
clients ask for.

Pure. Must know no objects, and nothing of how a kind's requests are answered.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.requests.negotiation import GROUPS, ResponseForm, negotiate

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
"""A client judges by it what it may ask for."""

_GROUPS = (
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
)
"""In the order of the real server, which decides what a name without a group means."""

_VERSION = re.compile(r"v(?P<major>\d+)(?:(?P<stage>alpha|beta)(?P<minor>\d+))?")
_OBJECT_VERBS = ("get", "patch", "update")
_SUBRESOURCES: Mapping[str, tuple[tuple[str, str, str], tuple[str, ...]]] = {
    "binding": (("", "", "Binding"), ("create",)),
    "eviction": (("policy", "v1", "Eviction"), ("create",)),
    "finalize": (("", "", "Namespace"), ("update",)),
    "scale": (("autoscaling", "v1", "Scale"), ("get", "patch", "update")),
    "token": (("authentication.k8s.io", "v1", "TokenRequest"), ("create",)),
}
"""Those with a kind or verbs of their own; the others are their object's, to read and to change."""


def discovery_document(
    path: str, kinds: Sequence[ResourceKind], accept: str
) -> dict[str, Any] | None:
    """What there is to say at this path; None where it is not a question about the server.

    The form, and with it the answer's content type, is `negotiated(path, accept)`.
    """
    match path.strip("/").split("/"):
        case ["version"]:
            return dict(VERSION)
        case ["api" | "apis" as root]:
            here = [kind for kind in kinds if bool(kind.group) == (root == "apis")]
            aggregated = negotiated(path, accept) is ResponseForm.DISCOVERY
            return _aggregated(here) if aggregated else _listed(here, root)
        case ["apis", name] if name in _names(kinds):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(kinds, name)}
        case ["api", version]:
            return _resources(kinds, "", version)
        case ["apis", name, version]:
            return _resources(kinds, name, version)
        case ["openapi", *_]:
            return openapi_document(path, kinds)
        case _:
            return None


def negotiated(path: str, accept: str) -> ResponseForm:
    """Only the two roots have a second form."""
    return negotiate(accept, GROUPS if path.strip("/") in ("api", "apis") else ())


def _listed(kinds: Sequence[ResourceKind], root: str) -> dict[str, Any]:
    if root == "api":
        return {"kind": "APIVersions", "versions": _versions(kinds, "")}
    groups = [_group(kinds, name) for name in _names(kinds)]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _names(kinds: Sequence[ResourceKind]) -> list[str]:
    """The groups, the server's own first."""
    known = {name: index for index, name in enumerate(_GROUPS)}
    names = {kind.group for kind in kinds}
    return sorted(names, key=lambda name: (known.get(name, len(known)), name))


def _versions(kinds: Sequence[ResourceKind], group: str) -> list[str]:
    """Of a group, the preferred one first."""
    versions = {kind.version for kind in kinds if kind.group == group}
    return sorted(versions, key=_preference)


def _preference(version: str) -> tuple[int, int, int, str]:
    """v2 before v1 before v1beta2 before v1alpha1 before what is named otherwise."""
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
    """The form in which a subresource is a resource whose name has a slash."""
    here = _here(kinds, group, version)
    if not here:
        return None
    resources = [resource for kind in here for resource in (_resource(kind), *_parts(kind))]
    return {
        "kind": "APIResourceList",
        **({"apiVersion": "v1"} if group else {}),  # the core's has none on the real server
        "groupVersion": here[0].api_version,
        "resources": resources,
    }


def _here(kinds: Sequence[ResourceKind], group: str, version: str) -> list[ResourceKind]:
    here = [kind for kind in kinds if (kind.group, kind.version) == (group, version)]
    return sorted(here, key=lambda kind: kind.plural)


def _resource(kind: ResourceKind) -> dict[str, Any]:
    return {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": kind.verbs,
        **_known_as(kind),
    }


def _known_as(kind: ResourceKind) -> dict[str, Any]:
    """What people may also call it, alone or with others."""
    words = {"shortNames": kind.short_names, "categories": kind.categories}
    return {field: names for field, names in words.items() if names}


def _parts(kind: ResourceKind) -> Iterator[dict[str, Any]]:
    for subresource in kind.subresources:
        (group, version, name), verbs = _subresource(kind, subresource)
        yield {
            "name": f"{kind.plural}/{subresource}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **({"group": group, "version": version} if group else {}),
            "kind": name,
            "verbs": verbs,
        }


def _subresource(
    kind: ResourceKind, subresource: str
) -> tuple[tuple[str, str, str], tuple[str, ...]]:
    return _SUBRESOURCES.get(subresource, (("", "", kind.kind), _OBJECT_VERBS))


def _aggregated(kinds: Sequence[ResourceKind]) -> dict[str, Any]:
    """The form that says all of an API at once."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": name} if name else {},
                "versions": [
                    {
                        "version": version,
                        "resources": [_whole(kind) for kind in _here(kinds, name, version)],
                        "freshness": "Current",
                    }
                    for version in _versions(kinds, name)
                ],
            }
            for name in _names(kinds)
        ],
    }


def _whole(kind: ResourceKind) -> dict[str, Any]:
    subresources = [_aggregated_part(kind, each) for each in kind.subresources]
    return {
        "resource": kind.plural,
        "responseKind": _response_kind(kind, ("", "", kind.kind)),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": kind.verbs,
        **_known_as(kind),
        **({"subresources": subresources} if subresources else {}),
    }


def _aggregated_part(kind: ResourceKind, subresource: str) -> dict[str, Any]:
    response_kind, verbs = _subresource(kind, subresource)
    return {
        "subresource": subresource,
        "responseKind": _response_kind(kind, response_kind),
        "verbs": verbs,
    }


def _response_kind(kind: ResourceKind, response_kind: tuple[str, str, str]) -> dict[str, str]:
    group, version, name = response_kind
    if kind.custom and not group:  # the server's own leave it to be understood
        group, version = kind.group, kind.version
    return {"group": group, "version": version, "kind": name}


_ROOT = "openapi/v3"


def openapi_document(path: str, kinds: Sequence[ResourceKind]) -> dict[str, Any] | None:
    """What there is to say at this path; None where there is nothing."""
    path = path.strip("/")
    places = {_place(kind) for kind in kinds}
    if path == _ROOT:
        urls = {place: {"serverRelativeURL": f"/{_ROOT}/{place}"} for place in sorted(places)}
        return {"paths": urls}
    place = path.removeprefix(f"{_ROOT}/")
    if place == path or place not in places:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "simulated"},
        "paths": {
            f"/{place}/{kind.plural}/{{name}}": {"patch": _patch(kind)}
            for kind in kinds
            if _place(kind) == place and "patch" in kind.verbs
        },
        "components": {"schemas": {}},
    }


def _place(kind: ResourceKind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _patch(kind: ResourceKind) -> dict[str, Any]:
    return {
        "parameters": [{"name": "fieldValidation", "in": "query"}],
        "responses": {},
        "x-kubernetes-group-version-kind": {
            "group": kind.group,
            "version": kind.version,
            "kind": kind.kind,
        },
    }
