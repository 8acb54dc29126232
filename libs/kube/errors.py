"""Errors of API requests by type; callers decide on attributes, never on the text."""

import msgspec


class FieldConflict(msgspec.Struct, frozen=True):
    manager: str
    field: str


class StatusCause(msgspec.Struct, frozen=True, rename="camel"):
    """A single cause in a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


class KubeError(Exception):
    """A failed request. The text names the request, the cause and the remedy."""

    def __init__(
        self,
        operation: str,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        missing: str = "",
        causes: tuple[StatusCause, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{operation}: {message}")
        self.operation = operation
        self.message = message
        self.code = code
        self.reason = reason
        self.missing = missing
        """The name that the server did not find."""
        self.causes = causes
        self.retry_after = retry_after
        """Seconds that the server asks to wait with a 429."""


class Misconfigured(KubeError):
    """The configuration leads to no API server; an operator has to fix it."""


class Unavailable(KubeError):
    """No or half a response, or a server error (5xx). The request may have been carried out."""


class TimedOut(Unavailable):
    """No complete response in time: by our deadline or the server's (504)."""


class NotFound(KubeError):
    """404: the object does not exist."""


class UnknownKind(NotFound):
    """The server does not serve objects of this kind."""


class Conflict(KubeError):
    """409: the object has changed or is a different one, or other managers own the fields."""

    @property
    def field_conflicts(self) -> tuple[FieldConflict, ...]:
        """The fields that other managers own."""
        return tuple(
            FieldConflict(_manager(cause.message), cause.field)
            for cause in self.causes
            if cause.reason == "FieldManagerConflict"
        )


class AlreadyExists(Conflict):
    """409 of a create: an object of that name exists."""


class Gone(KubeError):
    """410: the revision or the page is older than the server's history."""


class TooManyRequests(KubeError):
    """429. For an eviction, the cause distinguishes a disruption budget from a busy server."""


class Unauthorized(KubeError):
    """401: missing or invalid credentials."""


class Forbidden(KubeError):
    """403: not permitted by RBAC."""


class Invalid(KubeError):
    """400, 405, 406, 413, 415 or 422: the request itself is wrong; a retry does not help."""


class MalformedResponse(KubeError):
    """A response that this client cannot decode."""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct, frozen=True):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_decode = msgspec.json.Decoder(_Status)

_BY_CODE: dict[int, type[KubeError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: TooManyRequests,
    504: TimedOut,
}

_HINTS = {
    401: ": the credentials are missing, wrong or expired; log in again",
    403: "; grant it in RBAC",
}


def status_error(
    tried: str, *, body: bytes, code: int = 0, retry_after: str | None = None
) -> KubeError:
    """Return the error for a response other than 2xx; the body's code counts if none is given."""
    status = _read(body, code=code)
    code = code or status.code
    details = status.details or _Details()
    message = status.message or f"the server answered {code or 'with an error'}, without a reason"
    if 300 <= code < 400:
        message = f"the server answered {code}, which no API server does; mend the address"
    delay = details.retry_after_seconds
    if delay is None and (retry_after or "").isdecimal():
        delay = float(retry_after or 0.0)
    kind = _BY_CODE.get(code, Invalid if 400 <= code < 500 else Unavailable)
    if kind is Conflict and status.reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(
        tried,
        message + _HINTS.get(code, ""),
        code=code,
        reason=status.reason,
        missing=details.name,
        causes=details.causes or (),
        retry_after=delay if code == 429 else None,
    )


def _read(body: bytes, *, code: int) -> _Status:
    try:
        return _decode.decode(body)
    except ValueError:
        text = body[:200].decode(errors="replace").strip()
        return _Status(message=text, code=code)


def _manager(message: str) -> str:
    """Return the manager named in `conflict with "kubectl" using v1`."""
    _, _, rest = message.partition('"')
    return rest.partition('"')[0]
