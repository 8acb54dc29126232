"""How the fields of a kind merge and who can own them.

A shape says of every field whether it is one value, a map, a list that is one value, a set, or a
list of things with keys; and what the older strategic merge thinks of it, which may differ. Knows
nothing of patches, owners or custom resource validation.

`shapes.txt` holds the shapes of the built-in kinds, one structure a line, a field a word:
`name` a plain value that is not written when empty; `name?` one that is written even when empty;
`name!`, `name!0`, `name!f`, `name!q`, `name!n` one that is always written: as an empty text, a
number, false, a quantity, null; `.Structure`, `@Structure` (owned as one);
`{}` a map of values, `{@}` one owned as one; `[]` a list owned as one, `[=]` a set, `[key=default]`
a list of structures by keys; `Structure@:` a structure that has one owner wherever it is;
`~strategy:key` what a strategic merge does with it; `*` anything.
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
    """One field, and what is below it."""

    sort: Sort = "scalar"
    atomic: bool = False
    """A map or a list that has one owner."""
    fields: Mapping[str, "MergeShape"] = field(default_factory=dict[str, "MergeShape"])
    element: "MergeShape | None" = None
    """Entries of a map that `fields` does not name, or items of a list."""
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What a key counts as where an item leaves it out."""
    strategies: frozenset[str] = frozenset()
    """Of strategic merge: merge, replace, retainKeys."""
    merge_key: str = ""
    typed: bool = False
    """Objects pass through a typed server: it drops what it does not know, and what is empty."""
    omitted: bool = False
    """Not written when empty."""
    filled: Any = None
    """What is written when nothing was said; None: nothing is."""

    def child(self, name: str) -> "MergeShape | None":
        """The shape of a map's entry; None: no such field is declared."""
        loose = self if self.sort == "any" and not self.fields else None
        return self.fields.get(name) or self.element or loose

    @property
    def granular(self) -> bool:
        """Whether things below it have owners of their own."""
        return not self.atomic and (
            self.sort == "map" or (self.sort == "list" and self.element is not None)
        )


ANYTHING: Final = MergeShape(sort="any")
"""Maps merge, lists are one value, all the way down."""

OPAQUE: Final = MergeShape(sort="any", atomic=True)
"""One value, whatever it is."""

NULL: Final = object()
"""Where null itself is written when nothing was said."""

_SCALAR: Final = MergeShape()
_WORD: Final = re.compile(
    r"(?P<name>\w+)(?P<zero>![f0qn]?|\?)?(?P<form>\[[^\]]*\]|\{@?\}|[.@])?(?P<of>\w+|\*)?"
    r"(?:~(?P<strategies>[\w,]+)(?::(?P<key>\w+))?)?"
)
_FILLED: Final[Mapping[str, Any]] = {"!": "", "!0": 0, "!f": False, "!q": "0", "!n": NULL}


@cache
def builtin(kind: str) -> MergeShape:
    """The shape of a kind that the server itself defines."""
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
    """The object as a typed server writes it; what equals `like` was written by it already."""
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
    """The shape of a custom resource, from its openAPIV3Schema."""
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
    if schema.get("x-kubernetes-embedded-resource"):
        meta = {"apiVersion": _SCALAR, "kind": _SCALAR, "metadata": _structure("ObjectMeta")}
        fields = {**fields, **meta}
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
