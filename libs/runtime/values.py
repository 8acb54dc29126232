"""Types of settings that Python lacks: a span of time as people write it, and a secret."""

import re
from collections.abc import Iterable
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Self, cast

import msgspec

_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|s|m|h|d)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class Duration(float):
    """Seconds, read and shown like `30s`, `5m` or `1h30m`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` of a duration shows, or any sum of such parts."""
        if _WHOLE.fullmatch(text) is None:
            raise ValueError(f"{text!r} is no duration such as 30s, 5m or 1h30m")
        return cls(sum(Decimal(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))

    def __str__(self) -> str:
        rest = Decimal(float.__repr__(self))
        parts: list[str] = []
        for unit in ("d", "h", "m"):
            count, rest = divmod(rest, _SECONDS[unit])
            parts += [f"{count:f}{unit}"] if count else []
        rest = rest.normalize()
        return "".join(parts if parts and not rest else [*parts, f"{rest:f}s"])


class Secret:
    """Text that is never shown: who needs it says `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one call that needs it."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


CUSTOM: dict[type, str] = {
    Duration: "a duration such as 30s, 5m or 1h30m",
    Secret: "text",
    Path: "a path",
}
"""What a setting may be beside the types that msgspec knows, and how that is said to people."""


def decode(kind: type, value: object) -> object:
    """msgspec's `dec_hook` for these types."""
    if not isinstance(value, str) or kind not in CUSTOM:
        raise ValueError(f"{kind.__name__} is read from text")
    return Duration.parse(value) if kind is Duration else kind(value)


def show(value: object) -> str:
    """A value as the environment would hold it, secrets masked."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ",".join(show(item) for item in cast(Iterable[object], value))
    return show(value.value) if isinstance(value, Enum) else str(value)
