"""Routes a request: from method and path to verb, kind, namespace and name."""

from collections.abc import Mapping

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind, ResourceKinds
from libs.testing.apiserver.kinds.status_errors import (
    method_not_allowed,
    not_simulated,
    path_not_found,
)
from libs.testing.apiserver.requests.options import flag
from libs.testing.apiserver.requests.replies import PathNotFound
from libs.testing.apiserver.status import StatusError

_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_UNSERVED = {
    "pods": ("attach", "ephemeralcontainers", "exec", "log", "portforward", "proxy", "resize"),
    "nodes": ("proxy",),
    "serviceaccounts": ("token",),
    "replicasets": ("scale",),
}
_POSTED = ("binding", "eviction")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    verb: str
    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def route(method: str, path: str, query: Mapping[str, str], kinds: ResourceKinds) -> Route:
    """Route a path below /api or /apis; refuse unknown paths and methods."""
    group, version, rest = _api(path)
    namespace = ""
    if (
        len(rest) >= 3
        and rest[0] == "namespaces"
        and (len(rest) > 3 or rest[2] not in _NAMESPACE_SUBRESOURCES)
    ):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    kind = kinds.by_path(group, version, plural)
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        raise path_not_found() if kinds.has_version(group, version) else PathNotFound()
    if subresource and subresource not in kind.subresources:
        raise _unserved(kind, subresource)
    verb = _verb(method, kind, name=name, subresource=subresource, watching=flag(query, "watch"))
    if kind.namespaced and not namespace and (name or verb in ("create", "deletecollection")):
        raise method_not_allowed() if not name else path_not_found()
    return Route(verb=verb, kind=kind, namespace=namespace, name=name, subresource=subresource)


_NAMESPACE_SUBRESOURCES = ("status", "finalize")


def _api(path: str) -> tuple[str, str, list[str]]:
    match path.strip("/").split("/"):
        case ["api", version, *rest] if rest:
            return "", version, rest
        case ["apis", group, version, *rest] if rest:
            return group, version, rest
        case _:
            raise PathNotFound()


def _verb(method: str, kind: ResourceKind, *, name: str, subresource: str, watching: bool) -> str:
    if subresource in _POSTED:
        verb = {"POST": "evict" if subresource == "eviction" else "bind"}.get(method)
    elif subresource == "finalize":
        verb = {"PUT": "update"}.get(method)
    elif subresource:
        verb = {key: value for key, value in _OBJECT_VERBS.items() if key != "DELETE"}.get(method)
    else:
        verb = (_OBJECT_VERBS if name else _COLLECTION_VERBS).get(method)
    if verb == "list" and watching:
        verb = "watch"
    if verb is None or not (subresource or verb in kind.verbs):
        raise method_not_allowed()
    return verb


def _unserved(kind: ResourceKind, subresource: str) -> StatusError:
    if subresource not in _UNSERVED.get(kind.plural, ()):
        return path_not_found()
    return not_simulated(f"{kind.plural}/{subresource}")
