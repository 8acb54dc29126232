"""Types of settings beside those of msgspec: durations such as `5m`, ports and paths."""

import re
from collections.abc import Iterable
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Self, cast

import msgspec

_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|s|m|h|d)", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class Duration(float):
    """Seconds, parsed from and formatted as `30s`, `5m` or `1h30m`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        if _DURATION.fullmatch(text) is None:
            raise ValueError(f"{text!r} is not a duration such as 30s, 5m or 1h30m")
        return cls(sum(Decimal(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))

    def __str__(self) -> str:
        rest = Decimal(float.__repr__(self))
        parts: list[str] = []
        for unit in ("d", "h", "m"):
            count, rest = divmod(rest, _SECONDS[unit])
            parts += [f"{count:f}{unit}"] if count else []
        rest = rest.normalize()
        return "".join(parts if parts and not rest else [*parts, f"{rest:f}s"])


CUSTOM: dict[type, str] = {
    Duration: "a duration such as 30s, 5m or 1h30m",
    Path: "a path",
}
"""Types of settings that msgspec does not have, and how error messages describe them."""


def decode(kind: type, value: object) -> object:
    """Decode one of `CUSTOM`: msgspec's `dec_hook`."""
    if not isinstance(value, str) or kind not in CUSTOM:
        raise ValueError(f"{kind.__name__} is read from text")
    return Duration.parse(value) if kind is Duration else kind(value)


def show(value: object) -> str:
    """Format a value as an environment variable would hold it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ",".join(show(item) for item in cast(Iterable[object], value))
    return show(value.value) if isinstance(value, Enum) else str(value)
