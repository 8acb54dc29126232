"""What ends a process, and how an error is said in one line.

It knows neither logs nor exit codes: those who speak and those who exit ask here for the words.
"""

import traceback
from pathlib import PurePath
from typing import cast


class Fatal(Exception):
    """Nothing can go on; the text is for a person, the error behind it is the `__cause__`."""


def describe_error(error: BaseException) -> str:
    """The error in one line: a `Fatal` by its text alone, a group by its first member."""
    if members := _members(error):
        first, *others = members
        return describe_error(first) + (f" (and {len(others)} more)" if others else "")
    text = " ".join(str(error).split())
    if isinstance(error, Fatal):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def raised_at(error: BaseException) -> str | None:
    """`file.py:line` where the error behind all others was raised, if it was raised at all."""
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
    """A `Fatal` that says `what` happened and why, and keeps the error as its cause."""
    words = reason if isinstance(reason, str) else describe_error(reason)
    verdict = Fatal(f"{what}: {words}" if what else words)
    if isinstance(reason, BaseException):
        verdict.__cause__ = reason
    return verdict


def _members(error: BaseException) -> list[BaseException]:
    """The errors in a group, flat; none where it is no group."""
    if not isinstance(error, BaseExceptionGroup):
        return []
    group = cast(BaseExceptionGroup[BaseException], error)
    return [leaf for member in group.exceptions for leaf in (_members(member) or [member])]
