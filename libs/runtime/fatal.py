"""`Fatal`, the error that ends a process, and one-line descriptions of errors."""

import errno
import os
import re
import socket
import traceback
from pathlib import PurePath
from typing import cast


class Fatal(Exception):
    """The process cannot continue; the text is for a person, the `__cause__` has the details."""


def describe_error(error: BaseException) -> str:
    """Describe an error in one line: a `Fatal` by its text alone, a group by its first member."""
    if members := _members(error):
        first, *others = members
        return describe_error(first) + (f" (and {len(others)} more)" if others else "")
    text = " ".join(str(error).split())
    if isinstance(error, Fatal):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def describe_connect_error(error: OSError) -> str:
    """Describe why nothing could be connected to, or why a connection was lost, without numbers."""
    if isinstance(error, socket.gaierror):
        return "the host name cannot be resolved"
    number = error.errno
    if number is None:  # of several addresses, in asyncio's words
        numbers = {int(each) for each in re.findall(r"\[Errno (\d+)\]", str(error))}
        number = numbers.pop() if len(numbers) == 1 else None
    if number == errno.ECONNREFUSED:
        return "connection refused: nothing listens there"
    if number in {errno.ECONNRESET, errno.EPIPE}:
        return "the server reset the connection"
    return os.strerror(number).lower() if number else f"{error}" or type(error).__name__


def raised_at(error: BaseException) -> str | None:
    """Return `file.py:line` where the root cause was raised; None if it was never raised."""
    while True:
        if members := _members(error):
            error = members[0]
        elif error.__cause__ is not None:
            error = error.__cause__
        else:
            break
    frames = traceback.extract_tb(error.__traceback__)
    return f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else None


def fatal(reason: "str | BaseException", *, what: str = "") -> Fatal:
    """Return a `Fatal` that names `what` failed and why, with the error as its cause."""
    text = reason if isinstance(reason, str) else describe_error(reason)
    error = Fatal(f"{what}: {text}" if what else text)
    if isinstance(reason, BaseException):
        error.__cause__ = reason
    return error


def _members(error: BaseException) -> list[BaseException]:
    """Return the leaf errors of a group; empty for any other error."""
    if not isinstance(error, BaseExceptionGroup):
        return []
    group = cast(BaseExceptionGroup[BaseException], error)
    return [leaf for member in group.exceptions for leaf in (_members(member) or [member])]
