"""Settings of a process: a msgspec Struct filled from the environment and from one TOML file.

`nats.url` of the struct is `SLUICE_NATS_URL` in the environment and `url` under `[nats]` in the
file that `SLUICE_CONFIG` names; the environment takes precedence. An empty variable counts as not
set. All errors are reported together. A struct names in `GONE` the settings that earlier versions
had, each with what to do instead: people upgrade with their old settings.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar, cast, get_type_hints

import msgspec
from msgspec import NODEFAULT, inspect

from libs.runtime.settings_file import SettingsFile, SettingsPath, nearest
from libs.runtime.values import CUSTOM, decode, show

S = TypeVar("S", bound=msgspec.Struct)

PREFIX = "SLUICE_"
CONFIG = f"{PREFIX}CONFIG"
_LISTS = (inspect.ListType, inspect.VarTupleType)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting; `default` is NODEFAULT where a value is required."""

    path: tuple[str, ...]
    variable: str
    kind: Any
    expected: str
    is_list: bool
    default: Any

    @property
    def key(self) -> str:
        """The name in a settings file."""
        return ".".join(self.path)


def leaves(kind: type[msgspec.Struct]) -> list[Setting]:
    """Return all settings of a struct; raise TypeError for a field that cannot be one."""
    found = list(_leaves(kind, (), None))
    seen = {CONFIG: "the settings file"}
    for setting in found:
        if setting.variable in seen:
            raise TypeError(
                f"{setting.key} of {kind.__name__} and {seen[setting.variable]}"
                f" would both be {setting.variable}: rename one"
            )
        seen[setting.variable] = setting.key
    return found


def _variable(path: tuple[str, ...]) -> str:
    return PREFIX + "_".join(path).upper()


def build(kind: type[S], values: Mapping[tuple[str, ...], object], errors: list[str]) -> S | None:
    """Return the struct built from its leaves; None where a leaf is missing or a value is invalid.

    Append each invalid value to `errors`.
    """
    return cast(S | None, _build(kind, values, (), errors))


def expected_value(kind: inspect.Type) -> str:
    """Describe the values of this type for people; raise TypeError if it is unsupported."""
    if isinstance(kind, inspect.StrType):
        return f"text matching {kind.pattern}" if kind.pattern else "text"
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    if isinstance(kind, inspect.IntType):
        return "a whole number" + _limits(kind)
    if isinstance(kind, inspect.FloatType):
        return "a number" + _limits(kind)
    if isinstance(kind, inspect.EnumType):
        return "one of " + ", ".join(str(member.value) for member in kind.cls)
    if isinstance(kind, inspect.LiteralType):
        return "one of " + ", ".join(str(value) for value in kind.values)
    if isinstance(kind, inspect.CustomType) and kind.cls in CUSTOM:
        return CUSTOM[kind.cls]
    if isinstance(kind, _LISTS):
        return f"a list (comma-separated in the environment), each {expected_value(kind.item_type)}"
    if (required := _optional(kind)) is not None:
        return expected_value(required)
    raise TypeError(f"settings cannot be of {type(kind).__name__}")


def _leaves(
    kind: type[msgspec.Struct], parent: tuple[str, ...], instance: object
) -> Iterator[Setting]:
    hints = get_type_hints(kind, include_extras=True)
    for field in cast(inspect.StructType, inspect.type_info(kind)).fields:
        path = (*parent, field.name)
        if instance is not None:
            default = getattr(instance, field.name)
        elif field.default_factory is not NODEFAULT:
            default = field.default_factory()
        else:
            default = field.default
        if isinstance(field.type, inspect.StructType):
            nested = None if default is NODEFAULT else default
            yield from _leaves(field.type.cls, path, nested)
            continue
        try:
            expected = expected_value(field.type)
        except TypeError as error:
            raise TypeError(f"{'.'.join(path)} of {kind.__name__}: {error}") from None
        inner = _optional(field.type) or field.type
        yield Setting(
            path=path,
            variable=_variable(path),
            kind=hints[field.name],
            expected=expected,
            is_list=isinstance(inner, _LISTS),
            default=default,
        )


def _build(
    kind: type[msgspec.Struct],
    values: Mapping[tuple[str, ...], object],
    at: tuple[str, ...],
    errors: list[str],
) -> object:
    arguments: dict[str, object] = {}
    complete = True
    for field in cast(inspect.StructType, inspect.type_info(kind)).fields:
        path = (*at, field.name)
        if isinstance(field.type, inspect.StructType):
            value = _build(field.type.cls, values, path, errors)
            missing = value is None
        else:
            value = values.get(path)
            missing = path not in values
        complete = complete and not missing
        arguments[field.name] = value
    if not complete:
        return None
    try:
        return kind(**arguments)
    except ValueError as error:
        errors.append(f"{'.'.join(at) or 'the settings'}: {error}")
        return None


def _optional(kind: inspect.Type) -> inspect.Type | None:
    """Return T of `T | None`."""
    if isinstance(kind, inspect.UnionType) and kind.includes_none:
        others = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
        return others[0] if len(others) == 1 else None
    return None


def _limits(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    bounds = {"of at least": kind.ge, "above": kind.gt, "of at most": kind.le, "below": kind.lt}
    texts = [f"{word} {limit}" for word, limit in bounds.items() if limit is not None]
    return (" " + " and ".join(texts)) if texts else ""


# Variables that Kubernetes adds to each container for the Services of its namespace.
_SERVICE_LINK = re.compile(
    r"_SERVICE_HOST=|_SERVICE_PORT(_\w+)?=|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?=|_PORT=\w+://"
)


class SettingsError(Exception):
    """All errors of the settings, one sentence each."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


class ResolvedSetting(msgspec.Struct, frozen=True):
    """A setting with its value and its origin."""

    variable: str
    value: object
    origin: str


class Resolved(msgspec.Struct, Generic[S], frozen=True):
    """Settings, with the origin of each value."""

    settings: S
    entries: list[ResolvedSetting]


def load(kind: type[S], *, environ: Mapping[str, str]) -> S:
    """Return the settings, or raise a `SettingsError` that names all errors."""
    return resolve(kind, environ=environ).settings


def resolve(kind: type[S], *, environ: Mapping[str, str]) -> Resolved[S]:
    """Like `load`, with the origin of each value."""
    settings = leaves(kind)
    errors: list[str] = []
    file = SettingsFile.read(environ.get(CONFIG, ""), errors)
    values: dict[tuple[str, ...], object] = {}
    entries: list[ResolvedSetting] = []
    for setting in settings:
        try:
            value, origin = _value(setting, environ, file)
        except ValueError as error:
            errors.append(str(error))
            continue
        values[setting.path] = value
        entries.append(ResolvedSetting(setting.variable, value, origin))
    gone = dict(_gone(kind, ()))
    errors += _unknown_variables(settings, environ, gone)
    errors += file.unknown([setting.path for setting in settings], gone)
    loaded = build(kind, values, errors)
    if errors or loaded is None:
        raise SettingsError(errors)
    return Resolved(loaded, entries)


def describe(resolved: Resolved[Any]) -> str:
    """List every setting with its value and origin, in the format of an environment file."""
    assignments = [(f"{e.variable}={show(e.value)}", e.origin) for e in resolved.entries]
    width = max((len(text) for text, _ in assignments), default=0)
    return "".join(f"{text:<{width}}  # {origin}\n" for text, origin in assignments)


def _value(setting: Setting, environ: Mapping[str, str], file: SettingsFile) -> tuple[object, str]:
    """Return the value and its origin; raise ValueError if it is missing or invalid."""
    if text := environ.get(setting.variable, ""):
        raw = [part.strip() for part in text.split(",")] if setting.is_list else text
        return _convert(setting, raw, f"{setting.variable}={{}} (environment)", text)
    if (raw := file.get(setting.path)) is not NODEFAULT:
        return _convert(setting, raw, f"{setting.key}={{}} (file {file.path})", raw)
    if setting.default is NODEFAULT:
        raise ValueError(
            f"{setting.variable} is not set: expected {setting.expected}"
            f" (in a settings file: {setting.key})"
        )
    return setting.default, "default"


def _convert(setting: Setting, raw: object, where: str, shown: object) -> tuple[object, str]:
    try:
        value = msgspec.convert(raw, setting.kind, strict=False, dec_hook=decode)
    except msgspec.ValidationError:
        raise ValueError(f"{where.format(repr(shown))}: expected {setting.expected}") from None
    return value, where[where.index("(") + 1 : -1]


def _gone(
    kind: type[msgspec.Struct], parent: tuple[str, ...]
) -> Iterator[tuple[SettingsPath, str]]:
    named: Mapping[str, str] = getattr(kind, "GONE", {})
    yield from (((*parent, name), why) for name, why in named.items())
    for field in cast(inspect.StructType, inspect.type_info(kind)).fields:
        if isinstance(field.type, inspect.StructType):
            yield from _gone(field.type.cls, (*parent, field.name))


def _unknown_variables(
    settings: list[Setting], environ: Mapping[str, str], gone: Mapping[SettingsPath, str]
) -> Iterator[str]:
    known = [*(setting.variable for setting in settings), CONFIG]
    reasons = {_variable(path): why for path, why in gone.items()}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known:
            continue
        if name in reasons:
            if environ[name]:
                yield f"{name} (environment) is gone: {reasons[name]}"
        elif not _SERVICE_LINK.search(f"{name}={environ[name]}"):
            yield f"{name} (environment) is not a setting{nearest(name, known)}"
