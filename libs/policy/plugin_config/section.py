"""A section of a configuration file, read with the conversions that NVIDIA's plugin makes. Pure."""

from collections.abc import Iterator
from typing import cast

from libs.policy.plugin_config.config import RefusedConfig


class Section:
    """A mapping and its place in the file. Names may differ in case, and nothing counts as absent.

    The methods raise `RefusedConfig` for a value of another kind.
    """

    def __init__(self, content: object, where: str = "") -> None:
        if not isinstance(content, dict | None):
            raise RefusedConfig(f"{where or 'the file'} is no mapping: write names with values")
        found = cast("dict[object, object]", content or {})
        self.where = where
        self.content = {str(key): value for key, value in found.items()}

    def place(self, name: str) -> str:
        """Return the place of a value, for people."""
        return f"{self.where}.{name}" if self.where else name

    def has(self, name: str) -> bool:
        return any(key.lower() == name.lower() for key in self.content)

    def get(self, name: str) -> object:
        if name in self.content:
            return self.content[name]
        named = (value for key, value in self.content.items() if key.lower() == name.lower())
        return next(named, None)

    def section(self, name: str) -> "Section":
        return Section(self.get(name), self.place(name))

    def text(self, name: str) -> str:
        """Return a text; numbers and booleans are their own text."""
        value = self.get(name)
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float):
            raise RefusedConfig(f"{self.place(name)} is no text: write one")
        return str(value)

    def flag(self, name: str) -> bool | None:
        value = self.get(name)
        if not isinstance(value, bool | None):
            raise RefusedConfig(f"{self.place(name)} is neither true nor false: write one of them")
        return value

    def items(self, name: str) -> list[object]:
        value = self.get(name)
        if not isinstance(value, list | None):
            raise RefusedConfig(f"{self.place(name)} is no list: write one")
        return cast("list[object]", value or [])

    def sections(self, name: str) -> Iterator["Section"]:
        for number, each in enumerate(self.items(name)):
            yield Section(each, f"{self.place(name)}[{number}]")


def integer(value: object) -> int | None:
    """Return a whole number, also of a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        return None
    return int(value)
