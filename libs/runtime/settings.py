"""Settings of a process: a msgspec Struct filled from the environment and, below it, one TOML file.

`nats.url` of the struct is `SLUICE_NATS_URL` in the environment and `url` under `[nats]` in the
file, which `SLUICE_CONFIG` names. An empty variable counts as not set. Everything that is wrong is
said at once. It knows no setting by name, and nothing of what a value is for.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import NODEFAULT

from libs.runtime.schema import Setting, build, leaves
from libs.runtime.values import decode, show

S = TypeVar("S", bound=msgspec.Struct)

# A container platform adds such variables for each network service beside the process.
_SERVICE_LINK = re.compile(
    r"_SERVICE_HOST=|_SERVICE_PORT(_\w+)?=|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?=|_PORT=\w+://"
)


class SettingsError(Exception):
    """All that is wrong with the settings, one sentence each."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


class ResolvedSetting(msgspec.Struct, frozen=True):
    """One setting as it was found."""

    variable: str
    value: object
    origin: str


class Resolved(msgspec.Struct, Generic[S], frozen=True):
    """Settings, and where each value came from."""

    settings: S
    entries: list[ResolvedSetting]


def load(kind: type[S], *, environ: Mapping[str, str], prefix: str = "SLUICE_") -> S:
    """The settings, or a `SettingsError` that names everything that is wrong."""
    return resolve(kind, environ=environ, prefix=prefix).settings


def resolve(kind: type[S], *, environ: Mapping[str, str], prefix: str = "SLUICE_") -> Resolved[S]:
    """Like `load`, with the origin of each value."""
    settings = leaves(kind, prefix=prefix)
    errors: list[str] = []
    file = _File.read(environ.get(f"{prefix}CONFIG", ""), errors)
    values: dict[tuple[str, ...], object] = {}
    entries: list[ResolvedSetting] = []
    for setting in settings:
        try:
            value, origin = _one(setting, environ, file)
        except ValueError as error:
            errors.append(str(error))
            continue
        values[setting.path] = value
        entries.append(ResolvedSetting(setting.variable, value, origin))
    errors += _unknown_variables(settings, environ, prefix)
    errors += file.unknown(settings)
    made = build(kind, values, errors)
    if errors or made is None:
        raise SettingsError(errors)
    return Resolved(made, entries)


def describe(resolved: Resolved[Any]) -> str:
    """Every setting, its value and where it came from, in lines that an environment file takes."""
    assignments = [(f"{e.variable}={show(e.value)}", e.origin) for e in resolved.entries]
    width = max((len(text) for text, _ in assignments), default=0)
    return "".join(f"{text:<{width}}  # {origin}\n" for text, origin in assignments)


class _File:
    """The TOML file: a tree of tables, empty where no file was named."""

    def __init__(self, path: str, tree: dict[str, Any]) -> None:
        self.path = path
        self._tree = tree

    @classmethod
    def read(cls, path: str, errors: list[str]) -> "_File":
        if not path:
            return cls("", {})
        try:
            return cls(path, tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            errors.append(f"cannot read the settings file {path}: {error.strerror}")
        except ValueError as error:
            errors.append(f"the settings file {path} is not TOML: {error}")
        return cls(path, {})

    def get(self, path: tuple[str, ...]) -> object:
        """The value at a path, or NODEFAULT."""
        at: object = self._tree
        for name in path:
            if not isinstance(at, dict) or name not in at:
                return NODEFAULT
            at = cast(dict[str, object], at)[name]
        return at

    def unknown(self, settings: list[Setting]) -> Iterator[str]:
        """What stands in the file and is no setting, in words."""
        paths = {setting.path for setting in settings}
        tables = {path[:depth] for path in paths for depth in range(len(path))}
        keys = [setting.key for setting in settings]
        for path, value in _walk(self._tree, (), tables):
            key = ".".join(path)
            if path in tables:
                yield f"{key}={value!r} (file {self.path}): wants a table"
            elif path not in paths:
                yield f"{key} (file {self.path}) is no setting{_nearest(key, keys)}"


def _walk(
    tree: dict[str, Any], at: tuple[str, ...], tables: set[tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, value in tree.items():
        path = (*at, name)
        if isinstance(value, dict) and path in tables:
            yield from _walk(cast(dict[str, Any], value), path, tables)
        else:
            yield path, value


def _one(setting: Setting, environ: Mapping[str, str], file: _File) -> tuple[object, str]:
    """The value and its origin; a ValueError says what is wrong with it."""
    if text := environ.get(setting.variable, ""):
        raw = [part.strip() for part in text.split(",")] if setting.is_list else text
        return _convert(setting, raw, f"{setting.variable}={{}} (environment)", text)
    if (raw := file.get(setting.path)) is not NODEFAULT:
        return _convert(setting, raw, f"{setting.key}={{}} (file {file.path})", raw)
    if setting.default is NODEFAULT:
        raise ValueError(
            f"{setting.variable} is not set: wants {setting.expected}"
            f" (in a settings file: {setting.key})"
        )
    return setting.default, "default"


def _convert(setting: Setting, raw: object, where: str, shown: object) -> tuple[object, str]:
    try:
        value = msgspec.convert(raw, setting.kind, strict=False, dec_hook=decode)
    except msgspec.ValidationError:
        found = where.format("***" if setting.is_secret else repr(shown))
        raise ValueError(f"{found}: wants {setting.expected}") from None
    return value, where[where.index("(") + 1 : -1]


def _unknown_variables(
    settings: list[Setting], environ: Mapping[str, str], prefix: str
) -> Iterator[str]:
    known = [*(setting.variable for setting in settings), f"{prefix}CONFIG"]
    for name in sorted(environ):
        if not name.startswith(prefix) or name in known:
            continue
        if not _SERVICE_LINK.search(f"{name}={environ[name]}"):
            yield f"{name} (environment) is no setting{_nearest(name, known)}"


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {near[0]}?" if near else ""
