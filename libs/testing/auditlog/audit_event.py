"""One event of an API server's audit log: who asked for what on which object, and what came of it.

Reads; knows of no other event. `libs.testing.auditlog` puts them together.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, cast
from urllib.parse import parse_qs, urlsplit

import msgspec

from libs.contracts.journal import Verb

_DONE = frozenset({"ResponseComplete", "Panic"})
_WRITES = {
    "create": Verb.CREATE,
    "update": Verb.UPDATE,
    "patch": Verb.PATCH,
    "delete": Verb.DELETE,
    "deletecollection": Verb.DELETE,
}
_QUESTIONS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
_DOORS = frozenset({"attach", "exec", "log", "portforward", "proxy", "token"})
"""Subresources that change no object."""

_LONGEST_MANAGER = 128


class _Named(msgspec.Struct, rename="camel", frozen=True):
    username: str = ""


class _Answer(msgspec.Struct, rename="camel", frozen=True):
    code: int = 0


class ObjectReference(msgspec.Struct, rename="camel", frozen=True):
    """What was asked for, as far as the request's address said it."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""
    subresource: str = ""


class AuditEvent(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """As the log has it; the bodies may be anything, and nothing."""

    kind: Literal["Event"]
    api_version: Literal["audit.k8s.io/v1"]
    stage: str
    verb: str
    uri: str = msgspec.field(name="requestURI")
    received: datetime = msgspec.field(name="requestReceivedTimestamp")
    logged: datetime = msgspec.field(name="stageTimestamp")
    user: _Named = _Named()
    impersonated_user: _Named | None = None
    user_agent: str = ""
    object_ref: ObjectReference | None = None
    response_status: _Answer = _Answer()
    request_object: Any = None
    response_object: Any = None

    @property
    def object_reference(self) -> ObjectReference:
        """Empty where no object was asked for."""
        return self.object_ref or ObjectReference()

    @property
    def request_body(self) -> Mapping[str, Any]:
        """The request's body; empty where it had none, or a list."""
        return _mapping(self.request_object)

    @property
    def response_body(self) -> Mapping[str, Any]:
        """The answer's body; empty where the log has none."""
        return _mapping(self.response_object)

    @property
    def code(self) -> int:
        """The HTTP status."""
        return self.response_status.code

    @property
    def revision(self) -> int:
        """Of the object that the answer shows, or 0."""
        return 0 if self.verb == "deletecollection" else revision_of(self.response_body)

    @property
    def time(self) -> float:
        """Unix seconds of when it came in."""
        return self.received.timestamp()

    @property
    def is_success(self) -> bool:
        """Whether it did what was asked."""
        return 200 <= self.code < 300

    @property
    def username(self) -> str:
        """In whose name, where somebody acts for another."""
        return (self.impersonated_user or self.user).username

    @property
    def manager(self) -> str:
        """Of fields, as the server names it: what the request says, else who the program is."""
        named = self.query.get("fieldManager", [""])[0]
        return named or self.user_agent.partition("/")[0][:_LONGEST_MANAGER]

    @property
    def query(self) -> dict[str, list[str]]:
        """What stands behind the address."""
        return parse_qs(urlsplit(self.uri).query)

    def is_write(self) -> bool:
        """Whether an object was to be changed, and not for show."""
        return (
            self.stage in _DONE
            and self.verb in _WRITES
            and self.object_ref is not None
            and self.object_reference.api_group not in _QUESTIONS
            and self.object_reference.subresource not in _DOORS
            and not self._is_dry()
        )

    def journal_verb(self) -> Verb:
        """In the journal's words."""
        if self.object_reference.subresource == "eviction":
            return Verb.EVICT
        if self.verb == "patch" and self._applies():
            return Verb.APPLY
        return _WRITES[self.verb]

    def _is_dry(self) -> bool:
        options = (self.request_body, _mapping(self.request_body.get("deleteOptions")))
        return bool(self.query.get("dryRun")) or any(body.get("dryRun") for body in options)

    def _applies(self) -> bool:
        """The log keeps no content type, so this goes by what only an apply has."""
        query = self.query
        if "force" in query:
            return True
        if "fieldManager" not in query or not {"apiVersion", "kind"} <= self.request_body.keys():
            return False
        # A merge patch may look so too; but then the manager has updated, and never applied.
        metadata = _mapping(self.response_body.get("metadata"))
        operations = {
            owner.get("operation")
            for owner in cast(list[Mapping[str, Any]], metadata.get("managedFields") or [])
            if owner.get("manager") == self.manager
        }
        return operations != {"Update"}


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def revision_of(whole: Mapping[str, Any]) -> int:
    """Of an object, or 0."""
    said = _mapping(whole.get("metadata")).get("resourceVersion", "")
    return int(said) if str(said).isdigit() else 0


def uid_of(whole: Mapping[str, Any]) -> str:
    """Of an object, or nothing."""
    return _mapping(whole.get("metadata")).get("uid", "")
