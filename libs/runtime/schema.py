"""The settings that a Struct describes: names, types and defaults of its leaves.

`libs.runtime.settings` reads their values.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast, get_type_hints

import msgspec
from msgspec import NODEFAULT, inspect

from libs.runtime.values import CUSTOM, Secret

S = TypeVar("S", bound=msgspec.Struct)
_LISTS = (inspect.ListType, inspect.VarTupleType)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting; `default` is NODEFAULT where a value is required."""

    path: tuple[str, ...]
    variable: str
    kind: Any
    expected: str
    is_list: bool
    is_secret: bool
    default: Any

    @property
    def key(self) -> str:
        """The name in a settings file."""
        return ".".join(self.path)


def leaves(kind: type[msgspec.Struct], *, prefix: str) -> list[Setting]:
    """Return all settings of a struct; raise TypeError for a field that cannot be one."""
    found = list(_leaves(kind, prefix, (), None))
    seen = {f"{prefix}CONFIG": "the settings file"}
    for setting in found:
        if setting.variable in seen:
            raise TypeError(
                f"{setting.key} of {kind.__name__} and {seen[setting.variable]}"
                f" would both be {setting.variable}: rename one"
            )
        seen[setting.variable] = setting.key
    return found


def build(kind: type[S], values: Mapping[tuple[str, ...], object], errors: list[str]) -> S | None:
    """Return the struct built from its leaves; None where a leaf is missing or a value is invalid.

    Append each invalid value to `errors`.
    """
    return cast(S | None, _build(kind, values, (), errors))


def expected_value(kind: inspect.Type) -> str:
    """Describe what a person has to write for this type; raise TypeError if it is unsupported."""
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
    kind: type[msgspec.Struct], prefix: str, at: tuple[str, ...], given: object
) -> Iterator[Setting]:
    hints = get_type_hints(kind, include_extras=True)
    for field in cast(inspect.StructType, inspect.type_info(kind)).fields:
        path = (*at, field.name)
        if given is not None:
            default = getattr(given, field.name)
        elif field.default_factory is not NODEFAULT:
            default = field.default_factory()
        else:
            default = field.default
        if isinstance(field.type, inspect.StructType):
            nested = None if default is NODEFAULT else default
            yield from _leaves(field.type.cls, prefix, path, nested)
            continue
        try:
            expected = expected_value(field.type)
        except TypeError as error:
            raise TypeError(f"{'.'.join(path)} of {kind.__name__}: {error}") from None
        inner = _optional(field.type) or field.type
        item = inner.item_type if isinstance(inner, _LISTS) else inner
        yield Setting(
            path=path,
            variable=prefix + "_".join(path).upper(),
            kind=hints[field.name],
            expected=expected,
            is_list=isinstance(inner, _LISTS),
            is_secret=isinstance(item, inspect.CustomType) and item.cls is Secret,
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
