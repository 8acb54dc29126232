"""Errors of the simulated API server, with code, reason, message and details of a real one."""

from collections.abc import Mapping, Sequence
from typing import Any


class StatusError(Exception):
    """A request that is refused with a Status object."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        causes: Sequence[Mapping[str, Any]] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = None if details is None else dict(details)
        self.causes = [dict(cause) for cause in causes]
        self.retry_after = retry_after

    def status(self) -> dict[str, Any]:
        details = dict(self.details or {})
        if self.causes:
            details["causes"] = self.causes
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            **({"details": details} if details or self.details is not None else {}),
            "code": self.code,
        }
