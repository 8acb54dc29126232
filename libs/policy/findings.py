"""What is to be said to people about what they wrote: field, value, problem, remedy."""

from enum import StrEnum
from typing import Any

import msgspec

MAX_VALUE_LENGTH = 80
"""Characters of a value that are shown."""


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """It cannot be done: nothing new starts in this object's pool until it is mended."""
    WARNING = "warning"
    """Something that was asked for will not happen, or not as it was meant."""
    NOTE = "note"
    """Accepted, and nothing follows from it here."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is to be said about one field."""

    field: str
    """Where, from the top of the object: `spec.driver.version`."""
    value: str = ""
    """What stands there, short; empty where nothing does."""
    problem: str
    quoted: str = ""
    """The problem in the very words of the GPU Operator, which people's scripts look for."""
    remedy: str = ""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return ": ".join(filter(None, (self._where, self.quoted, self.remedy)))

    @property
    def for_scripts(self) -> str:
        """The same, with the words that scripts look for first."""
        ours = ": ".join(filter(None, (self._where, self.remedy)))
        return "; ".join(filter(None, (self.quoted, ours)))

    @property
    def _where(self) -> str:
        value = f" ({self.value})" if self.value else ""
        return f"{self.field}{value} {self.problem}"


def quote_value(value: Any) -> str:
    """A value as people see it in a finding, whatever it is."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value) if abs(value) < 2**63 else "a number of more than 64 bits"
    if isinstance(value, str):
        return f'"{printable(value)}"'
    return printable(str(value)) if isinstance(value, float) else f"a {type(value).__name__}"


def printable(text: str) -> str:
    """Text that can be shown and sent: without halves of characters and line ends, not too long."""
    short = text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 1]}…"
    clean = short.encode("utf-8", "replace").decode()
    return "".join(letter if letter.isprintable() else "?" for letter in clean)
