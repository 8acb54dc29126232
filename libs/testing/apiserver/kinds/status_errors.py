"""Errors that several parts of the server raise, in a real server's words."""

from collections.abc import Sequence
from typing import Any

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.status import Cause, StatusError

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def details(kind: ResourceKind, name: str) -> dict[str, Any]:
    """Return the details of a status about this object."""
    return {
        **({"name": name} if name else {}),
        **({"group": kind.group} if kind.group else {}),
        "kind": kind.plural,
    }


def not_found(kind: ResourceKind, name: str) -> StatusError:
    message = f'{kind.resource} "{name}" not found'
    return StatusError(404, "NotFound", message, details=details(kind, name))


def namespace_not_found(name: str) -> StatusError:
    message = f'namespaces "{name}" not found'
    return StatusError(404, "NotFound", message, details={"name": name, "kind": "namespaces"})


def path_not_found() -> StatusError:
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, details={})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, details={})


def not_simulated(what: str) -> StatusError:
    """Refuse what a real server does and this one does not."""
    return StatusError(501, "NotImplemented", f"this simulated server does not support {what}")


def already_exists(kind: ResourceKind, name: str) -> StatusError:
    message = f'{kind.resource} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=details(kind, name))


def conflict(kind: ResourceKind, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=details(kind, name))


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def invalid_syntax(text: str) -> str:
    """Return Go's words for a text that is no number."""
    return f'strconv.ParseInt: parsing "{text}": invalid syntax'


def invalid_request(
    kind: str, name: str, causes: Sequence[Cause], *, group: str = "", qualified: str = ""
) -> StatusError:
    """Return the error of an invalid object; `qualified` is how the message names its kind."""
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


def invalid_object(kind: ResourceKind, name: str, causes: Sequence[Cause]) -> StatusError:
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return invalid_request(kind.kind, name, causes, group=kind.group, qualified=qualified)


def invalid_options(kind: str, causes: Sequence[Cause]) -> StatusError:
    """Return the error of invalid query options, as `ListOptions`."""
    group = "meta.k8s.io"
    return invalid_request(kind, "", causes, group=group, qualified=f"{kind}.{group}")


def resource_version_too_large(requested: int, current: int) -> StatusError:
    """Return the error of a revision that is still to come."""
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {requested}, current: {current}",
        causes=[{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        retry_after=1,
    )
