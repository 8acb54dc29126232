"""Parse a request: route, options, the accepted form, and the attributes that faults select by."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from libs.kube.requests import Request
from libs.testing.apiserver.bodies import APPLY
from libs.testing.apiserver.faults import FaultTarget
from libs.testing.apiserver.kinds.kind import ResourceKind, ResourceKinds
from libs.testing.apiserver.kinds.status_errors import (
    bad_request,
    invalid_options,
    invalid_syntax,
    method_not_allowed,
    not_simulated,
    path_not_found,
)
from libs.testing.apiserver.status import PathNotFound, StatusError, forbidden

_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_UNSERVED = {
    "pods": ("attach", "ephemeralcontainers", "exec", "log", "portforward", "proxy", "resize"),
    "nodes": ("proxy",),
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
    if rest[0] == "namespaces" and (len(rest) > 3 or rest[2:] not in ([], ["status"])):
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


REQUEST_TIMEOUT = 60.0
"""Seconds that a request may take unless its query says otherwise."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a list or a watch, without its selectors."""

    limit: int
    continue_token: str
    resource_version: str
    bookmarks: bool
    timeout: float | None

    @property
    def revision(self) -> int:
        """The requested revision; 0 without one."""
        return int(self.resource_version or 0)


def flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "") in _TRUE


def list_options(query: Mapping[str, str]) -> ListOptions:
    """Return the options of a list or a watch; refuse contradictions."""
    for name in ("sendInitialEvents", "resourceVersionMatch"):
        # A client that is refused these falls back to a list and a watch.
        if name in query:
            raise invalid_options("ListOptions", [forbidden(name, "not simulated by this server")])
    resource_version, token = query.get("resourceVersion", ""), query.get("continue", "")
    if resource_version and not resource_version.isdecimal():
        message = _invalid_revision(resource_version)
        if flag(query, "watch"):
            raise StatusError(500, "", message)
        raise bad_request(f"invalid resource version: {message}")
    if token and resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    return ListOptions(
        limit=_integer(query, "limit"),
        continue_token=token,
        resource_version=resource_version,
        bookmarks=flag(query, "allowWatchBookmarks"),
        timeout=_integer(query, "timeoutSeconds") or None,
    )


def may_be_old(options: ListOptions) -> bool:
    """Return whether a real server might answer this list from a cache that lags behind."""
    return bool(options.resource_version) and not options.continue_token


def minimum_revision(query: Mapping[str, str]) -> int:
    """Return the revision that a read of one object must have reached."""
    text = query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise bad_request(f"invalid resource version: {_invalid_revision(text)}")
    return int(text)


def _invalid_revision(text: str) -> str:
    return (
        f'resourceVersion: Invalid value: "{text}": '
        f'strconv.ParseUint: parsing "{text}": invalid syntax'
    )


def _integer(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "") or "0"
    if not text.removeprefix("-").isdecimal():
        raise bad_request(invalid_syntax(text))
    return int(text)


def request_timeout(query: Mapping[str, str]) -> float:
    """Return the seconds that the request may take."""
    text = query.get("timeout", "")
    parts = _DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        raise bad_request(
            f'invalid timeout specified in the request URL - time: invalid duration "{text}"'
        )
    return sum(float(number) * _SECONDS[unit] for number, unit in parts) or REQUEST_TIMEOUT


JSON = "application/json"
_ANY = ("", "*/*", "application/*", JSON)
TABLE = "Table"
METADATA = "PartialObjectMetadata"
METADATA_LIST = "PartialObjectMetadataList"
OBJECT_FORMS = (TABLE, METADATA)
"""The forms of one object and of a watch event."""
LIST_FORMS = (TABLE, METADATA_LIST)


def accepted_form(accept: str, offered: Sequence[str]) -> str:
    """Return the first acceptable form: one of those offered, or empty for plain JSON."""
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        if media.lower() not in _ANY:
            continue
        form = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if "as" not in form:
            return ""
        if form["as"] in offered and (form.get("g"), form.get("v")) == ("meta.k8s.io", "v1"):
            return form["as"]
    forms = f", or as {' or '.join(offered)}" if offered else ""
    message = f"only the following media types are accepted: {JSON}{forms}; not {accept!r}"
    raise StatusError(406, "NotAcceptable", message)


READS = frozenset({"get", "list", "watch"})


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    verb: str
    route: Route
    request: Request
    user: str
    listing: ListOptions | None = None
    """The options of a list or a watch."""

    @property
    def accept(self) -> str:
        return self.request.headers.get("accept", "")

    @property
    def dry_run(self) -> bool:
        return "dryRun" in self.request.query

    @property
    def content_type(self) -> str:
        return self.request.headers.get("content-type", "").partition(";")[0].strip()

    @property
    def manager(self) -> str:
        """The field manager: the named one, or else the name of the client program."""
        manager = self.request.query.get("fieldManager", "")
        agent = self.request.headers.get("user-agent", "").partition("/")[0]
        return manager or agent or "unknown"

    @property
    def fault_target(self) -> FaultTarget:
        return FaultTarget(
            verb=self.verb,
            kind=self.route.kind.kind,
            name=self.route.name,
            user=self.user,
            any_age=self.verb == "list" and self.listing is not None and may_be_old(self.listing),
        )


def parse_call(request: Request, *, user: str, kinds: ResourceKinds) -> ApiCall:
    found = route(request.method, request.path, request.query, kinds)
    call = ApiCall(verb=found.verb, route=found, request=request, user=user)
    if found.verb == "patch" and call.content_type == APPLY:
        return msgspec.structs.replace(call, verb="apply")
    if found.verb in ("list", "watch"):
        return msgspec.structs.replace(call, listing=list_options(request.query))
    return call
