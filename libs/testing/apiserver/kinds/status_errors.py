"""The refusals that more than one part of the server gives, in the real one's words."""

from collections.abc import Mapping, Sequence
from typing import Any

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.status import StatusError

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def details(kind: ResourceKind, name: str) -> dict[str, Any]:
    """Which object it is about."""
    return {
        **({"name": name} if name else {}),
        **({"group": kind.group} if kind.group else {}),
        "kind": kind.plural,
    }


def not_found(kind: ResourceKind, name: str) -> StatusError:
    """There is no such object."""
    words = f'{kind.resource} "{name}" not found'
    return StatusError(404, "NotFound", words, details=details(kind, name))


def namespace_not_found(name: str) -> StatusError:
    """There is no such namespace."""
    words = f'namespaces "{name}" not found'
    return StatusError(404, "NotFound", words, details={"name": name, "kind": "namespaces"})


def path_not_found() -> StatusError:
    """No such path."""
    return StatusError(
        404, "NotFound", "the server could not find the requested resource", details={}
    )


def method_not_allowed() -> StatusError:
    """The path is there, but not for this method."""
    words = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", words, details={})


def already_exists(kind: ResourceKind, name: str) -> StatusError:
    """There is one of that name."""
    words = f'{kind.resource} "{name}" already exists'
    return StatusError(409, "AlreadyExists", words, details=details(kind, name))


def conflict(kind: ResourceKind, name: str, why: str) -> StatusError:
    """The object is not what the request was made for."""
    words = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return StatusError(409, "Conflict", words, details=details(kind, name))


def bad_request(words: str) -> StatusError:
    """The request itself makes no sense."""
    return StatusError(400, "BadRequest", words)


def cause(reason: str, field: str, message: str) -> dict[str, Any]:
    """One thing that is wrong with an object."""
    return {"reason": reason, "message": message, "field": field}


def invalid_value(field: str, value: object, why: str) -> dict[str, Any]:
    """A value that cannot be so."""
    shown = f'"{value}"' if isinstance(value, str) else value
    return cause("FieldValueInvalid", field, f"Invalid value: {shown}: {why}")


def required(field: str, why: str) -> dict[str, Any]:
    """A value that is missing."""
    return cause("FieldValueRequired", field, f"Required value: {why}" if why else "Required value")


def forbidden(field: str, why: str) -> dict[str, Any]:
    """A value that may not be there, or may not change."""
    return cause("FieldValueForbidden", field, f"Forbidden: {why}")


def unsupported(field: str, value: str, known: Sequence[str]) -> dict[str, Any]:
    """A word that is none of those."""
    words = ", ".join(f'"{each}"' for each in known)
    return cause(
        "FieldValueNotSupported", field, f"Unsupported value: {value}: supported values: {words}"
    )


def invalid(
    kind: str,
    name: str,
    causes: Sequence[Mapping[str, Any]],
    *,
    group: str = "",
    qualified: str = "",
) -> StatusError:
    """An object with these things wrong; `told` where messages name the kind with its group."""
    found = [f"{each['field']}: {each['message']}" for each in causes]
    words = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
    return StatusError(
        422,
        "Invalid",
        f'{qualified or kind} "{name}" is invalid: {words}',
        details={
            **({"name": name} if name else {}),
            **({"group": group} if group else {}),
            "kind": kind,
        },
        causes=causes,
    )


def invalid_object(
    kind: ResourceKind, name: str, causes: Sequence[Mapping[str, Any]]
) -> StatusError:
    """An object of this kind with these things wrong."""
    told = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return invalid(kind.kind, name, causes, group=kind.group, qualified=told)


def invalid_options(kind: str, causes: Sequence[Mapping[str, Any]]) -> StatusError:
    """A query with these things wrong."""
    group = "meta.k8s.io"
    return invalid(kind, "", causes, group=group, qualified=f"{kind}.{group}")


def resource_version_too_large(asked: int, now: int) -> StatusError:
    """A revision that is not there yet."""
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {now}",
        causes=[{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        retry_after=1,
    )
