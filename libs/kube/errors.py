"""Errors of API requests by type; callers decide on attributes, never on the text."""

import msgspec


class KubeError(Exception):
    """A failed request. The text names what was tried, why it failed and what to do."""

    def __init__(self, tried: str, message: str, *, code: int = 0, reason: str = "") -> None:
        super().__init__(f"{tried}: {message}")
        self.tried = tried
        self.message = message
        self.code = code
        self.reason = reason


class Misconfigured(KubeError):
    """The configuration leads to no API server; an operator has to fix it."""


class Unavailable(KubeError):
    """No or half a response, or a server error (5xx). The request may have been carried out."""


class TimedOut(Unavailable):
    """No complete response in time: by our deadline or the server's (504)."""


class NotFound(KubeError):
    """The object does not exist; `missing` is the name that the server did not find."""

    def __init__(
        self, tried: str, message: str, *, code: int = 404, reason: str = "", missing: str = ""
    ) -> None:
        super().__init__(tried, message, code=code, reason=reason)
        self.missing = missing


class UnknownKind(NotFound):
    """The server does not serve objects of this kind."""


class Conflict(KubeError):
    """409: the object has changed or is a different one, or other managers own the fields
    (`claims`).
    """

    def __init__(
        self,
        tried: str,
        message: str,
        *,
        code: int,
        reason: str,
        claims: "tuple[FieldConflict, ...]",
    ) -> None:
        super().__init__(tried, message, code=code, reason=reason)
        self.claims = claims


class AlreadyExists(Conflict):
    """409 of a create: an object of that name exists."""


class Gone(KubeError):
    """410: the revision or the page is older than the server's history."""


class TooManyRequests(KubeError):
    """429. For an eviction, a cause tells a disruption budget from a busy server."""

    def __init__(
        self,
        tried: str,
        message: str,
        *,
        code: int,
        reason: str,
        retry_after: float | None,
        causes: "tuple[StatusCause, ...]" = (),
    ) -> None:
        super().__init__(tried, message, code=code, reason=reason)
        self.retry_after = retry_after
        self.causes = causes


class Unauthorized(KubeError):
    """401: missing or invalid credentials."""


class Forbidden(KubeError):
    """403: not permitted by RBAC."""


class Invalid(KubeError):
    """400, 405, 406, 413, 415 or 422: the request itself is wrong; a retry does not help."""

    def __init__(
        self, tried: str, message: str, *, code: int, reason: str, causes: "tuple[StatusCause, ...]"
    ) -> None:
        super().__init__(tried, message, code=code, reason=reason)
        self.causes = causes


class FieldConflict(msgspec.Struct, frozen=True):
    manager: str
    field: str


class StatusCause(msgspec.Struct, frozen=True, rename="camel"):
    """A single cause in a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


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


def status_error(
    tried: str, *, body: bytes, code: int = 0, retry_after: str | None = None
) -> KubeError:
    """Return the error for a response other than 2xx; the body's code counts if none is given."""
    status = _read(body, code=code)
    code = code or status.code
    details = status.details or _Details()
    causes = details.causes or ()
    message = status.message or f"the server answered {code or 'with an error'}, without a reason"
    reason = status.reason
    if code == 404:
        return NotFound(tried, message, code=code, reason=reason, missing=details.name)
    if code == 409:
        claims = tuple(
            FieldConflict(_manager(cause.message), cause.field)
            for cause in causes
            if cause.reason == "FieldManagerConflict"
        )
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
        return kind(tried, message, code=code, reason=reason, claims=claims)
    if code == 410:
        return Gone(tried, message, code=code, reason=reason)
    if code == 429:
        delay = details.retry_after_seconds
        if delay is None and retry_after is not None and retry_after.isdecimal():
            delay = float(retry_after)
        return TooManyRequests(
            tried, message, code=code, reason=reason, retry_after=delay, causes=causes
        )
    if code == 401:
        words = f"{message}: the credentials are missing, wrong or expired; log in again"
        return Unauthorized(tried, words, code=code, reason=reason)
    if code == 403:
        return Forbidden(tried, f"{message}; grant it in RBAC", code=code, reason=reason)
    if code == 504:
        return TimedOut(tried, message, code=code, reason=reason)
    if 300 <= code < 400:
        words = f"the server answered {code}, which no API server does; mend the address"
        return Unavailable(tried, words, code=code, reason=reason)
    if code >= 500 or code < 400:
        return Unavailable(tried, message, code=code, reason=reason)
    return Invalid(tried, message, code=code, reason=reason, causes=causes)


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
