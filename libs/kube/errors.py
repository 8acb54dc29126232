"""What a request may end in, as types: what a caller decides on is an attribute, never a text.

`refusal` is the one place that reads a server's Status object.
"""

import msgspec


class KubeError(Exception):
    """A request that did not end well. The text names what was tried, why it failed, what to do."""

    def __init__(self, tried: str, message: str, *, code: int = 0, reason: str = "") -> None:
        super().__init__(f"{tried}: {message}")
        self.tried = tried
        self.message = message
        self.code = code
        self.reason = reason


class Misconfigured(KubeError):
    """What we were given leads to no API server: a person must mend it."""


class Unavailable(KubeError):
    """No answer, half an answer, or a server's own failure (5xx): it may have been carried out."""


class TimedOut(Unavailable):
    """No whole answer within the request's time: the server said so (504), or nothing at all."""


class NotFound(KubeError):
    """The object is not there; `missing` is the name that the server did not find."""

    def __init__(
        self, tried: str, message: str, *, code: int = 404, reason: str = "", missing: str = ""
    ) -> None:
        super().__init__(tried, message, code=code, reason=reason)
        self.missing = missing


class UnknownKind(NotFound):
    """The server does not serve objects of this kind."""


class Conflict(KubeError):
    """409: the object is another than the request was made for, or others own what it sets."""

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
    """409 of a create: there is one of that name."""


class Gone(KubeError):
    """410: the revision, or the page, is older than what the server remembers."""


class TooManyRequests(KubeError):
    """429: not now. Of an eviction it may be that a budget forbids it: then a cause says so."""

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
    """401: the server does not know who asks."""


class Forbidden(KubeError):
    """403: who asks may not."""


class Invalid(KubeError):
    """400, 405, 406, 413, 415 or 422: the request itself is wrong, and stays so."""

    def __init__(
        self, tried: str, message: str, *, code: int, reason: str, causes: "tuple[StatusCause, ...]"
    ) -> None:
        super().__init__(tried, message, code=code, reason=reason)
        self.causes = causes


class FieldConflict(msgspec.Struct, frozen=True):
    """A field that another manager owns."""

    manager: str
    field: str


class StatusCause(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that the server says is wrong, and where."""

    reason: str = ""
    message: str = ""
    field: str = ""


class MalformedResponse(KubeError):
    """An answer that is not what this client can read."""


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
    """The error that an answer other than 2xx stands for; without a `code`, the body has it."""
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
        wait = details.retry_after_seconds
        if wait is None and retry_after is not None and retry_after.isdecimal():
            wait = float(retry_after)
        return TooManyRequests(
            tried, message, code=code, reason=reason, retry_after=wait, causes=causes
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
    """From `conflict with "kubectl" using v1`."""
    _, _, rest = message.partition('"')
    return rest.partition('"')[0]
