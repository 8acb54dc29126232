"""How the command ends: exit codes, and failures with one line for people. Light to import."""

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from libs.bus.port import BusError
    from libs.contracts.queries import QueryError
    from libs.kube.errors import KubeError


_SUBJECT: Final = re.compile(r"(sluice\.v\d+|\$JS)\.\S+: ")
_RIGHTS: Final = ", or ask an administrator to; `sluice doctor` lists all rights that you lack"


class ExitCode(IntEnum):
    """The exit codes, as docs/cli.md lists them."""

    DONE = 0
    UNEXPECTED = 1
    WRONG_ARGUMENTS = 2
    NOT_REACHABLE = 3
    NOT_FOUND = 4
    NOT_ALLOWED = 5
    REFUSED = 6
    FAULT_FOUND = 7
    INTERRUPTED = 130


class Failure(Exception):
    """The verb cannot do what was asked; the text names what, why, and what to do.

    `hint` names another verb that helps; it is added where the failure is all that a person sees.
    """

    def __init__(self, code: ExitCode, message: str, *, hint: str = "") -> None:
        super().__init__(" ".join(message.split()))
        self.code = code
        self.hint = hint


class NoWayToNats(Failure):
    """What leads to NATS is missing: a file that an option names, an installation, or a right."""

    def __init__(self, code: ExitCode, problem: str, remedy: str) -> None:
        super().__init__(code, f"NATS: {problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy


class NotReady(Failure):
    """The scheduler cannot answer yet, but may soon."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.NOT_REACHABLE, message)


class KubeFailure(Failure):
    """The API server did not do what was asked."""


def kube_failure(error: "KubeError") -> KubeFailure:
    """Return the failure that an error of the API server means."""
    from libs.kube import errors

    codes: tuple[tuple[type[KubeError], ExitCode], ...] = (
        (errors.Misconfigured, ExitCode.NOT_REACHABLE),
        (errors.Unavailable, ExitCode.NOT_REACHABLE),
        (errors.TooManyRequests, ExitCode.NOT_REACHABLE),
        (errors.Gone, ExitCode.NOT_REACHABLE),
        (errors.MalformedResponse, ExitCode.NOT_REACHABLE),
        (errors.Forbidden, ExitCode.NOT_ALLOWED),
        (errors.Unauthorized, ExitCode.NOT_ALLOWED),
        (errors.NotFound, ExitCode.NOT_FOUND),
        (errors.Conflict, ExitCode.REFUSED),
        (errors.Invalid, ExitCode.REFUSED),
    )
    code = next((code for kind, code in codes if isinstance(error, kind)), ExitCode.UNEXPECTED)
    hint = _RIGHTS if isinstance(error, errors.Forbidden) else ""
    return KubeFailure(code, f"Kubernetes: {error}", hint=hint)


def bus_failure(error: "BusError") -> Failure:
    """Return the failure that an error of NATS means."""
    from libs.bus import port

    if isinstance(error, port.NoResponders):
        return Failure(
            ExitCode.NOT_REACHABLE,
            "the scheduler does not answer: NATS is reachable, but no scheduler leads; look at its"
            " pods",
        )
    if isinstance(error, port.SubjectForbidden):
        return Failure(ExitCode.NOT_ALLOWED, f"NATS: {error}")
    if isinstance(error, port.BusMisconfigured):
        return Failure(ExitCode.WRONG_ARGUMENTS, f"NATS: {error}")
    return Failure(ExitCode.NOT_REACHABLE, f"NATS: {without_subject(error)}")


def without_subject(error: "BusError") -> str:
    """Return what is wrong without the subject that it begins with, which tells people nothing."""
    return _SUBJECT.sub("", str(error))


def query_failure(error: "QueryError") -> Failure:
    """Return the failure that the scheduler's refusal of a query means."""
    from libs.contracts.queries import QueryErrorCode

    codes = {
        QueryErrorCode.UNREADABLE: ExitCode.WRONG_ARGUMENTS,
        QueryErrorCode.NOT_FOUND: ExitCode.NOT_FOUND,
    }
    if error.code is QueryErrorCode.NOT_READY:
        return NotReady(f"the scheduler: {error.message}")
    return Failure(codes.get(error.code, ExitCode.UNEXPECTED), f"the scheduler: {error.message}")
