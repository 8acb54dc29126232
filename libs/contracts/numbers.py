"""The integers of messages. All have bounds, so that what was read can be written again."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Final

from msgspec import Meta

LIMIT: Final = 2**53 - 1
"""The highest integer that all readers of JSON keep exactly."""

Count = Annotated[int, Meta(ge=0, le=LIMIT)]
Epoch = Annotated[int, Meta(ge=0, le=LIMIT)]
Token = Annotated[int, Meta(ge=0, le=LIMIT)]
Op = Annotated[int, Meta(ge=0, le=LIMIT)]
Integer = Annotated[int, Meta(ge=-LIMIT, le=LIMIT)]
"""An integer that may be negative."""

_DIGITS: Final = re.compile(r"[0-9]{1,15}")
_VERSION: Final = re.compile(r"v?([0-9]{1,15}(?![0-9])(?:\.[0-9]{1,15}(?![0-9]))*)")


def next_number(numbers: Iterable[int]) -> int:
    """Return one above the highest number; a number at the limit, which has no next, is ignored."""
    return 1 + max((number for number in numbers if number < LIMIT), default=0)


def parse_count(text: str) -> int | None:
    """Return the value of a decimal number in a text; None for anything else."""
    return int(text) if _DIGITS.fullmatch(text) else None


@lru_cache(maxsize=256)
def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: of `v1.34.2-gke.1`, 1, 34 and 2.

    A text that is no version has none, and is then below every version: a caller that refuses old
    ones asks for that first.
    """
    found = _VERSION.match(text)
    return tuple(map(int, found[1].split("."))) if found else ()
