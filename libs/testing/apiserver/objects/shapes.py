"""Merge shapes: for every field of a kind whether it is a value, a map, an atomic list, a set, or
a list with keys, for server-side apply and for the strategic merge patch.

`shapes.txt` has the shapes of the built-in kinds: one structure a line, one field a word.
- `name`: a value that is omitted when empty. `name?`: a value that is encoded even when empty.
- `name!`, `name!0`, `name!f`, `name!q`, `name!n`: a value that is always encoded, by default as an
  empty text, 0, false, a quantity, null.
- `.Structure`, and `@Structure` with a single owner; `Structure@:` has a single owner everywhere.
- `{}`: a map of values; `{@}`: an atomic map. `[]`: an atomic list; `[=]`: a set; `[key=default]`:
  a list with keys.
- `~strategy:key`: the patch strategy. `*`: any value.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, cast

Sort = Literal["scalar", "map", "list", "any"]


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class MergeShape:
    """The shape of one field, and of the fields below it."""

    sort: Sort = "scalar"
    atomic: bool = False
    """Whether a map or a list has a single owner."""
    fields: Mapping[str, "MergeShape"] = field(default_factory=dict[str, "MergeShape"])
    element: "MergeShape | None" = None
    """Entries of a map that `fields` does not name, or items of a list."""
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The defaults of keys that an item omits."""
    strategies: frozenset[str] = frozenset()
    """Of strategic merge: merge, replace, retainKeys."""
    merge_key: str = ""
    typed: bool = False
    """Whether unknown and empty fields are dropped, as for built-in kinds."""
    omitted: bool = False
    """Whether the field is dropped when empty."""
    filled: Any = None
    """The value that is encoded for a missing one; None: none is."""

    def child(self, name: str) -> "MergeShape | None":
        """Return the shape of an entry; None where it is not declared."""
        loose = self if self.sort == "any" and not self.fields else None
        return self.fields.get(name) or self.element or loose


ANYTHING: Final = MergeShape(sort="any")
"""Any value, in which maps merge and lists are atomic."""

OPAQUE: Final = MergeShape(sort="any", atomic=True)
"""Any value, with a single owner."""

NULL: Final = object()
"""Stands for null in `filled`."""

_SCALAR: Final = MergeShape()
_WORD: Final = re.compile(
    r"(?P<name>\w+)(?P<zero>![f0qn]?|\?)?(?P<form>\[[^\]]*\]|\{@?\}|[.@])?(?P<of>\w+|\*)?"
    r"(?:~(?P<strategies>[\w,]+)(?::(?P<key>\w+))?)?"
)
_FILLED: Final[Mapping[str, Any]] = {"!": "", "!0": 0, "!f": False, "!q": "0", "!n": NULL}


@cache
def builtin(kind: str) -> MergeShape:
    """Return the shape of a built-in kind."""
    if not _lines().get(kind, "").startswith(" metadata"):
        raise LookupError(
            f"there is no shape of built-in kind {kind!r} in shapes.txt: add it there"
        )
    shape = _structure(kind)
    return replace(shape, fields={"apiVersion": _SCALAR, "kind": _SCALAR, **shape.fields})


@cache
def _lines() -> dict[str, str]:
    text = files(__package__ or "").joinpath("shapes.txt").read_text("utf-8")
    parts = (line.partition(":") for line in text.splitlines())
    return {name: words for name, _, words in parts}


@cache
def _structure(name: str) -> MergeShape:
    lines = _lines()
    atomic = f"{name}@" in lines
    line = lines[f"{name}@" if atomic else name]
    words = [_WORD.fullmatch(word) for word in line.split()]
    fields = {word["name"]: _field(word) for word in words if word is not None}
    return MergeShape(sort="map", atomic=atomic, fields=fields, typed=True)


def _field(word: re.Match[str]) -> MergeShape:
    form, of, zero = word["form"] or "", word["of"] or "", word["zero"] or ""
    strategic: dict[str, Any] = {
        "strategies": frozenset((word["strategies"] or "").split(",")) - {""},
        "merge_key": word["key"] or "",
    }
    below = OPAQUE if of == "*" else _structure(of) if of else None
    if form in (".", "@"):
        filled: dict[str, Any] | None = {} if zero == "!" else None
        atomic = form == "@"
        return replace(below or OPAQUE, atomic=atomic, filled=filled, **strategic)
    if form.startswith("{"):
        element = below or _SCALAR
        atomic = form == "{@}"
        return MergeShape(
            sort="map",
            atomic=atomic,
            element=element,
            omitted=not zero,
            filled=_FILLED.get(zero),
            **strategic,
        )
    if form.startswith("["):
        pairs = [key.partition("=") for key in form[1:-1].split(",") if key not in ("", "=")]
        return MergeShape(
            sort="list",
            atomic=form == "[]",
            element=below or _SCALAR,
            keys=tuple(sorted(name for name, _, _ in pairs)),
            defaults={name: _default(value) for name, equals, value in pairs if equals},
            omitted=not zero,
            filled=_FILLED.get(zero),
            **strategic,
        )
    return MergeShape(omitted=not zero, filled=_FILLED.get(zero), **strategic)


def _default(text: str) -> Any:
    return int(text) if text.isdigit() else text


def encoded(value: dict[str, Any], shape: MergeShape, like: Any = None) -> dict[str, Any]:
    """Encode an object as a typed server does; parts that equal `like` are encoded already."""
    return cast("dict[str, Any]", _encoded(value, shape, like)) if shape.typed else value


def _encoded(value: Any, shape: MergeShape, like: Any) -> Any:
    if value is like or (like is not None and type(value) is type(like) and value == like):
        return like
    if shape.sort == "list" and isinstance(value, list) and shape.element is not None:
        items = cast("list[Any]", value)
        if not shape.element.typed:
            return items
        known = cast("list[Any]", like) if isinstance(like, list) else []
        known = known if len(known) == len(items) else [None] * len(items)
        return [_encoded(v, shape.element, k) for v, k in zip(items, known, strict=True)]
    if shape.sort != "map" or not isinstance(value, dict) or not shape.typed:
        return cast("Any", value)
    return _structured(cast("dict[str, Any]", value), shape, like)


def _structured(value: dict[str, Any], shape: MergeShape, like: Any) -> dict[str, Any]:
    known = cast("dict[str, Any]", like) if isinstance(like, dict) else {}
    result: dict[str, Any] = {}
    for name, given in value.items():
        below = shape.fields.get(name)
        if below is None or (below.omitted and (given is None or given in _EMPTY)):
            continue
        if given is None and below.filled is None:
            continue
        result[name] = _encoded(given, below, known.get(name))
    for name, below in _always(shape):
        if result.get(name) is None:
            filled: Any = {} if below.sort == "map" and below.fields else below.filled
            result[name] = None if filled is NULL else _encoded(filled, below, None)
    return result


_EMPTY: Final[tuple[Any, ...]] = ("", 0, False, [], {})


@cache
def _always(shape: MergeShape) -> tuple[tuple[str, MergeShape], ...]:
    return tuple((n, below) for n, below in shape.fields.items() if below.filled is not None)


def from_schema(schema: Mapping[str, Any]) -> MergeShape:
    """Return the shape of a custom kind, from its openAPIV3Schema."""
    shape = _from(schema, preserving=False)
    meta = {"apiVersion": _SCALAR, "kind": _SCALAR, "metadata": _structure("ObjectMeta")}
    return replace(shape, sort="map", fields={**shape.fields, **meta})


def _from(schema: Mapping[str, Any], *, preserving: bool) -> MergeShape:
    preserving = preserving or schema.get("x-kubernetes-preserve-unknown-fields") is True
    match schema.get("type", ""):
        case "object":
            return _map_from(schema, "map", preserving)
        case "array":
            return _list_from(schema, preserving)
        case "":
            return _map_from(schema, "any", preserving)
        case _:
            return _SCALAR


def _map_from(schema: Mapping[str, Any], sort: Sort, preserving: bool) -> MergeShape:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    fields = {name: _from(below, preserving=preserving) for name, below in properties.items()}
    others = schema.get("additionalProperties")
    if others is None:
        element = ANYTHING if preserving or not properties else None
    elif isinstance(others, Mapping):
        element = _from(cast("Mapping[str, Any]", others), preserving=preserving)
    else:
        element = ANYTHING if others else None
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    return MergeShape(sort=sort, atomic=atomic, fields=fields, element=element)


def _list_from(schema: Mapping[str, Any], preserving: bool) -> MergeShape:
    items: Mapping[str, Any] = schema.get("items") or {}
    element = _from(items, preserving=preserving)
    kind = schema.get("x-kubernetes-list-type", "atomic")
    keys: list[str] = schema.get("x-kubernetes-list-map-keys") or []
    below: Mapping[str, Any] = items.get("properties") or {}
    defaults = {key: below[key]["default"] for key in keys if "default" in below.get(key, {})}
    return MergeShape(
        sort="list",
        atomic=kind == "atomic",
        element=element,
        keys=tuple(sorted(keys)) if kind == "map" else (),
        defaults=defaults,
    )
