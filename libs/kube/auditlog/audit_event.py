"""One event of an API server's audit log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, cast
from urllib.parse import parse_qs, urlsplit

import msgspec

from libs.contracts.journal import Verb

_FINAL_STAGES = frozenset({"ResponseComplete", "Panic"})
_WRITES = {
    "create": Verb.CREATE,
    "update": Verb.UPDATE,
    "patch": Verb.PATCH,
    "delete": Verb.DELETE,
    "deletecollection": Verb.DELETE,
}
_QUERY_GROUPS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
_CONNECT_SUBRESOURCES = frozenset({"attach", "exec", "log", "portforward", "proxy", "token"})
"""Subresources that change no object."""

_MAX_MANAGER_LENGTH = 128


class _User(msgspec.Struct, rename="camel", frozen=True):
    username: str = ""


class _ResponseStatus(msgspec.Struct, rename="camel", frozen=True):
    code: int = 0


class ObjectReference(msgspec.Struct, rename="camel", frozen=True):
    """The requested object, as far as the URL names it."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""
    subresource: str = ""


class AuditEvent(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An event as the log has it; the bodies may be anything or missing."""

    kind: Literal["Event"]
    api_version: Literal["audit.k8s.io/v1"]
    stage: str
    verb: str
    uri: str = msgspec.field(name="requestURI")
    received: datetime = msgspec.field(name="requestReceivedTimestamp")
    logged: datetime = msgspec.field(name="stageTimestamp")
    user: _User = _User()
    user_agent: str = ""
    object_ref: ObjectReference | None = None
    response_status: _ResponseStatus = _ResponseStatus()
    request_object: Any = None
    response_object: Any = None

    @property
    def object_reference(self) -> ObjectReference:
        """The requested object; empty if the request names none."""
        return self.object_ref or ObjectReference()

    @property
    def request_body(self) -> Mapping[str, Any]:
        """The body of the request; empty without a body, or with a list."""
        return _mapping(self.request_object)

    @property
    def response_body(self) -> Mapping[str, Any]:
        """The body of the response; empty if the log has none."""
        return _mapping(self.response_object)

    @property
    def code(self) -> int:
        return self.response_status.code

    @property
    def revision(self) -> int:
        """The revision of the object in the response, or 0."""
        return 0 if self.verb == "deletecollection" else revision_of(self.response_body)

    @property
    def time(self) -> float:
        """The arrival of the request, in Unix seconds."""
        return self.received.timestamp()

    @property
    def is_success(self) -> bool:
        return 200 <= self.code < 300

    @property
    def username(self) -> str:
        return self.user.username

    @property
    def manager(self) -> str:
        """The field manager: by the request, or else by the user agent, as in the API server."""
        name = self.query.get("fieldManager", [""])[0]
        return name or self.user_agent.partition("/")[0][:_MAX_MANAGER_LENGTH]

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.uri).query)

    def is_write(self) -> bool:
        """Return whether the request writes an object and is not a dry run."""
        return (
            self.stage in _FINAL_STAGES
            and self.verb in _WRITES
            and self.object_ref is not None
            and self.object_reference.api_group not in _QUERY_GROUPS
            and self.object_reference.subresource not in _CONNECT_SUBRESOURCES
            and not self._is_dry_run()
        )

    def journal_verb(self) -> Verb:
        if self.object_reference.subresource == "eviction":
            return Verb.EVICT
        if self.verb == "patch" and self._is_apply():
            return Verb.APPLY
        return _WRITES[self.verb]

    def _is_dry_run(self) -> bool:
        options = (self.request_body, _mapping(self.request_body.get("deleteOptions")))
        return bool(self.query.get("dryRun")) or any(body.get("dryRun") for body in options)

    def _is_apply(self) -> bool:
        """Return whether a patch is an apply, which the log shows only indirectly."""
        query = self.query
        if "force" in query:
            return True
        if "fieldManager" not in query or not {"apiVersion", "kind"} <= self.request_body.keys():
            return False
        # A merge patch may look the same, but its manager has only updated.
        metadata = _mapping(self.response_body.get("metadata"))
        operations = {
            owner.get("operation")
            for owner in cast(list[Mapping[str, Any]], metadata.get("managedFields") or [])
            if owner.get("manager") == self.manager
        }
        return operations != {"Update"}


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def revision_of(manifest: Mapping[str, Any]) -> int:
    """Return the resourceVersion of an object, or 0."""
    version = _mapping(manifest.get("metadata")).get("resourceVersion", "")
    return int(version) if str(version).isdigit() else 0


def uid_of(manifest: Mapping[str, Any]) -> str:
    return _mapping(manifest.get("metadata")).get("uid", "")
