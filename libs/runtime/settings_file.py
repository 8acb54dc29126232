"""The TOML file with settings: its values by path, and what in it is no setting."""

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from msgspec import NODEFAULT

SettingsPath: TypeAlias = tuple[str, ...]
"""The names of the tables around a setting, and its own."""


class SettingsFile:
    """The TOML file as a tree of tables; empty where no file is named."""

    def __init__(self, path: str, tree: dict[str, Any]) -> None:
        self.path = path
        self._tree = tree

    @classmethod
    def read(cls, path: str, errors: list[str]) -> "SettingsFile":
        if not path:
            return cls("", {})
        try:
            return cls(path, tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            errors.append(f"cannot read the settings file {path}: {error.strerror}")
        except ValueError as error:
            errors.append(f"the settings file {path} is not TOML: {error}")
        return cls(path, {})

    def get(self, path: SettingsPath) -> object:
        """Return the value at a path, or NODEFAULT."""
        value: object = self._tree
        for name in path:
            if not isinstance(value, dict) or name not in value:
                return NODEFAULT
            value = cast(dict[str, object], value)[name]
        return value

    def unknown(
        self, known: Sequence[SettingsPath], gone: Mapping[SettingsPath, str]
    ) -> Iterator[str]:
        """Return an error for each entry of the file that is not a setting."""
        tables = {path[:depth] for path in known for depth in range(len(path))}
        keys = [".".join(path) for path in known]
        for path, value in _walk(self._tree, (), tables):
            key = ".".join(path)
            if path in tables:
                yield f"{key}={value!r} (file {self.path}): expected a table"
            elif path in gone and path not in known:
                yield f"{key} (file {self.path}) is gone: {gone[path]}"
            elif path not in known:
                yield f"{key} (file {self.path}) is not a setting{nearest(key, keys)}"


def _walk(
    tree: dict[str, Any], at: SettingsPath, tables: set[SettingsPath]
) -> Iterator[tuple[SettingsPath, object]]:
    for name, value in tree.items():
        path = (*at, name)
        if isinstance(value, dict) and path in tables:
            yield from _walk(cast(dict[str, Any], value), path, tables)
        else:
            yield path, value


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a question for the known name that was perhaps meant; empty: none is like it."""
    near = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {near[0]}?" if near else ""
