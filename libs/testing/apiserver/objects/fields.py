"""Sets of fields in the form of `fieldsV1`.

A set is the JSON object itself: `{"f:spec": {"f:unschedulable": {}}}`. An entry that is empty or
has the key `"."` is a member of the set; its other keys are the fields below it.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from libs.testing.apiserver.objects.shapes import MergeShape

Fields = dict[str, Any]

MISSING: Final = object()
"""The absence of a value, as opposed to null."""


class ShapeMismatch(Exception):
    """The object does not match its shape, so its fields cannot be named."""


def member(entry: Mapping[str, Any]) -> bool:
    """Return whether the field of this entry is itself in the set."""
    return not entry or "." in entry


def _entry(own: bool, below: Fields) -> Fields | None:
    if own:
        return {".": {}, **below} if below else {}
    return below or None


def union(first: Fields, second: Fields) -> Fields:
    if not second or first is second:
        return first
    result = dict(first)
    for key, entry in second.items():
        existing = first.get(key)
        if existing is None or key == ".":
            result[key] = entry
        elif existing != entry:
            below = union(_below(existing), _below(entry))
            result[key] = _entry(member(existing) or member(entry), below) or {}
    return result


def difference(first: Fields, second: Fields) -> Fields:
    """Return what is only in the first; fields below a removed member stay."""
    result: Fields = {}
    for key, entry in first.items():
        counterpart = second.get(key)
        if counterpart is None:
            result[key] = entry
        elif key != ".":
            rest = _entry(
                member(entry) and not member(counterpart),
                difference(_below(entry), _below(counterpart)),
            )
            if rest is not None:
                result[key] = rest
    return result


def intersection(first: Fields, second: Fields) -> Fields:
    result: Fields = {}
    for key, entry in first.items():
        counterpart = second.get(key)
        if counterpart is not None and key != ".":
            rest = _entry(
                member(entry) and member(counterpart),
                intersection(_below(entry), _below(counterpart)),
            )
            if rest is not None:
                result[key] = rest
    return result


def _below(entry: Fields) -> Fields:
    return {key: value for key, value in entry.items() if key != "."} if "." in entry else entry


def named(fields: Fields, shape: MergeShape | None) -> Fields:
    """Return the set with every declared field that has fields below it as a member."""
    result: Fields = {}
    for key, entry in fields.items():
        if key == "." or not entry:
            result[key] = entry
            continue
        below = _shape_at(shape, key)
        declared = shape is not None and key[:2] == "f:" and key[2:] in shape.fields
        deeper = named(_below(entry), below)
        result[key] = _entry(declared or "." in entry, deeper) or {}
    return result


def _shape_at(shape: MergeShape | None, key: str) -> MergeShape | None:
    if shape is None:
        return None
    return shape.child(key[2:]) if key[:2] == "f:" else shape.element


def paths(fields: Fields, prefix: str = "") -> Iterator[str]:
    """Iterate over the members as paths of messages: `.spec.taints`."""
    keys = sorted((key for key in fields if key != "."), key=_order)
    for key in keys:
        if member(fields[key]):
            yield prefix + describe_step(key)
    for key in keys:
        yield from paths(fields[key], prefix + describe_step(key))


def ordered(fields: Fields) -> Fields:
    """Return the set with its keys in a server's order."""
    return {key: ordered(fields[key]) for key in sorted(fields, key=_order)}


@lru_cache(maxsize=4096)
def _order(key: str) -> tuple[Any, ...]:
    sort, _, rest = key.partition(":")
    if sort == "k":
        return (2, [(name, _rank(value)) for name, value in sorted(json.loads(rest).items())])
    if sort == "v":
        return (3, _rank(json.loads(rest)))
    return (0, "") if key == "." else (1, rest)


def _rank(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool):
        return (3, value)
    if isinstance(value, int | float):
        return (1, value)
    return (2, value) if isinstance(value, str) else (4, json.dumps(value))


@lru_cache(maxsize=4096)
def describe_step(key: str) -> str:
    sort, _, rest = key.partition(":")
    match sort:
        case "f":
            return f".{rest}"
        case "k":
            pairs = sorted(json.loads(rest).items())
            return f"[{','.join(f'{name}={_quoted(value)}' for name, value in pairs)}]"
        case "v":
            return f"[={_quoted(json.loads(rest))}]"
        case _:
            return f"[{rest}]"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _written(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def item_key(item: Any, shape: MergeShape) -> str:
    """Return the key of a list item in a set."""
    if not shape.keys:
        if item is None or isinstance(item, dict | list):
            raise ShapeMismatch("associative list without keys has an element that is not a scalar")
        return f"v:{_written(item)}"
    if not isinstance(item, dict):
        raise ShapeMismatch("associative list with keys may not have non-map elements")
    given = cast("dict[str, Any]", item)
    keys = {name: given.get(name, shape.defaults.get(name)) for name in shape.keys}
    present = {name: value for name, value in keys.items() if value is not None}
    if not present:
        words = " ".join(f'"{name}"' for name in shape.keys)
        raise ShapeMismatch(
            f"associative list with keys has an element that omits all key fields [{words}] "
            "(and doesn't have default values for any key fields)"
        )
    return f"k:{_written(present)}"


def items_by_key(value: Any, shape: MergeShape) -> dict[str, list[Any]]:
    """Return the items of a list, grouped by key."""
    result: dict[str, list[Any]] = {}
    for item in cast("list[Any]", value) if isinstance(value, list) else ():
        result.setdefault(item_key(item, shape), []).append(item)
    return result


def sort_of(value: Any, shape: MergeShape) -> str:
    """Return whether a value is walked as map, list or scalar."""
    if value is None or value is MISSING:
        return "map" if shape.sort == "any" else shape.sort
    if shape.sort != "any":
        return shape.sort
    return "map" if isinstance(value, dict) else "list" if isinstance(value, list) else "scalar"


def as_map(value: Any) -> dict[str, Any]:
    """Return the entries of a map, and none of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def is_leaf(shape: MergeShape, sort: str, *values: Any) -> bool:
    """Return whether the walk ends here: a single value, or an empty one on all sides."""
    if sort == "scalar" or shape.atomic or (sort == "list" and shape.sort == "any"):
        return True
    kind = dict if sort == "map" else list
    return not any(isinstance(value, kind) and len(cast("Any", value)) for value in values)


def declared(shape: MergeShape, name: str) -> MergeShape:
    """Return the shape of an entry; raise for one that is not declared."""
    below = shape.child(name)
    if below is None:
        raise ShapeMismatch(f".{name}: field not declared in schema")
    return below


def stated(value: dict[str, Any], shape: MergeShape) -> Fields:
    """Return the fields that an apply of this object claims."""
    return _stated_map(value, shape)


def _stated(value: Any, shape: MergeShape) -> Fields | None:
    sort = sort_of(value, shape)
    if sort == "scalar" or shape.atomic or (sort == "list" and shape.sort == "any"):
        return {}
    if sort == "map":
        return _stated_map(as_map(value), shape) or None
    result: Fields = {}
    for key, same in items_by_key(value, shape).items():
        below = _stated(same[0], shape.element or MergeShape()) if len(same) == 1 else None
        result[key] = {".": {}, **below} if below else {}
    return result or None


def _stated_map(value: dict[str, Any], shape: MergeShape) -> Fields:
    result: Fields = {}
    for name, given in value.items():
        below = _stated(given, declared(shape, name))
        own = given is None or given == {} or name not in shape.fields or below == {}
        entry = _entry(own, below or {})
        if entry is not None:
            result[f"f:{name}"] = entry
    return result
