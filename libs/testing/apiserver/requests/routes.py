"""From a request's method and path to what is meant: a verb, a kind, a place."""

from collections.abc import Mapping

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind, ResourceKinds
from libs.testing.apiserver.kinds.status_errors import method_not_allowed, path_not_found
from libs.testing.apiserver.requests.options import flag
from libs.testing.apiserver.requests.replies import PathNotFound
from libs.testing.apiserver.status import StatusError

_ONE = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MANY = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_UNSERVED = {
    "pods": ("attach", "ephemeralcontainers", "exec", "log", "portforward", "proxy", "resize"),
    "nodes": ("proxy",),
    "services": ("proxy",),
    "serviceaccounts": ("token",),
    "deployments": ("scale",),
    "replicasets": ("scale",),
}
_POSTED = ("binding", "eviction")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for."""

    verb: str
    kind: ResourceKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def route(method: str, path: str, query: Mapping[str, str], kinds: ResourceKinds) -> Route:
    """Of a path below /api or /apis; refused where there is nothing, or not for this method."""
    group, version, rest = _api(path)
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and (len(rest) > 3 or rest[2] not in _OWN):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    kind = kinds.by_path(group, version, plural)
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        raise path_not_found() if kinds.has_version(group, version) else PathNotFound()
    if subresource and subresource not in kind.subresources:
        raise _unserved(kind, name, subresource)
    verb = _verb(method, kind, name=name, subresource=subresource, watching=flag(query, "watch"))
    if kind.namespaced and not namespace and (name or verb in ("create", "deletecollection")):
        raise method_not_allowed() if not name else path_not_found()
    return Route(verb=verb, kind=kind, namespace=namespace, name=name, subresource=subresource)


_OWN = ("status", "finalize")


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
        verb = {key: value for key, value in _ONE.items() if key != "DELETE"}.get(method)
    else:
        verb = (_ONE if name else _MANY).get(method)
    if verb == "list" and watching:
        verb = "watch"
    known = verb is not None and (bool(subresource) or verb in kind.verbs)
    if verb is None or not known:
        raise method_not_allowed()
    return verb


def _unserved(kind: ResourceKind, name: str, subresource: str) -> StatusError:
    if subresource not in _UNSERVED.get(kind.plural, ()):
        return path_not_found()
    words = (
        f"this simulated server does not serve {kind.plural}/{subresource}: nothing behind "
        f'{kind.kind} "{name}" could do it'
    )
    return StatusError(501, "NotImplemented", words)
