"""Check whether an apply would change a live object. Pure.

The server adds defaults and drops empty values, and others may add fields that we do not set. So
an apply is needed only if a wanted value is missing, or if a field that the server records as
ours is not wanted any more.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, cast

import msgspec

from libs.kube.views import Object
from services.driver.cluster.resources import MANAGER, operand_content

_IDENTITIES: Final = ("mountPath", "name", "containerPort")
"""Fields that identify the items of a list, if all items have one."""

_QUANTITY_FIELDS: Final = frozenset(("limits", "requests"))
_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]+)|([numkKMGTPE]?i?))", re.ASCII
)
_POWERS: Final[Mapping[str, Decimal]] = {
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("numkMGTPE", -3) if power < 0},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}

_Tree = Mapping[str, Any]


def difference(wanted: _Tree, live: Object) -> str:
    """Return the path of the first difference; empty if an apply would change nothing."""
    live_metadata = {"labels": live.metadata.labels, "annotations": live.metadata.annotations}
    content = {**operand_content(live), "metadata": live_metadata}
    metadata: _Tree = wanted["metadata"]
    compared = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind")}
    compared["metadata"] = {name: _tree(metadata.get(name)) for name in live_metadata}
    missing = next(_missing(compared, content, ""), "")
    return missing or next(_surplus(_owned(live), compared, ""), "")


def _owned(live: Object) -> _Tree:
    """Return the tree of fields that the server records as ours."""
    for fields in live.metadata.managed_fields:
        if fields.manager == MANAGER and fields.operation == "Apply" and not fields.subresource:
            return msgspec.json.decode(fields.fields_v1)
    return {}


def _missing(wanted: Any, live: Any, path: str) -> Iterator[str]:
    """Yield the paths of wanted values that the live object lacks or has changed."""
    if not wanted and not live:
        return  # false, zero and empty are often left out
    if isinstance(wanted, Mapping):
        tree, live_tree = _tree(wanted), _tree(live)
        quantities = path.rpartition(".")[2] in _QUANTITY_FIELDS
        for key, value in tree.items():
            if not (quantities and _same_quantity(value, live_tree.get(key))):
                yield from _missing(value, live_tree.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(wanted, list | tuple):
        items = cast("Sequence[Any]", wanted)
        yield from _missing_items(items, cast("list[Any]", live or []), path)
    elif wanted != live:
        yield path


def _missing_items(wanted: Sequence[Any], live: Sequence[Any], path: str) -> Iterator[str]:
    identity = _identity(wanted)
    if not identity:
        if len(wanted) != len(live):
            yield path
        for index, (item, live_item) in enumerate(zip(wanted, live, strict=False)):
            yield from _missing(item, live_item, f"{path}[{index}]")
        return
    names = [item[identity] for item in wanted]
    by_name = {_tree(item).get(identity): item for item in live}
    # The order counts: a variable may refer to those before it.
    if [name for name in by_name if name in names] != names:
        yield path
    for item in wanted:
        name = item[identity]
        yield from _missing(item, by_name.get(name), f"{path}[{identity}={name}]")


def _identity(items: Sequence[Any]) -> str:
    """Return the field that identifies each item; empty if there is none."""
    trees = [_tree(item) for item in items]
    for field in _IDENTITIES:
        names = {tree[field] for tree in trees if field in tree}
        if items and len(names) == len(items):
            return field
    return ""


def _surplus(owned: _Tree, wanted: Any, path: str) -> Iterator[str]:
    """Yield the paths of fields that are recorded as ours and not wanted."""
    for key, subtree in owned.items():
        if key == ".":
            continue
        kind, _, name = key.partition(":")
        field_path = f"{path}.{name}".lstrip(".") if kind == "f" else f"{path}[{name}]"
        if kind == "f":
            found = name in _tree(wanted)
            item = _tree(wanted).get(name)
        else:
            item = _item(kind, name, wanted)
            found = item is not None
        if not found:
            yield field_path
        elif subtree:
            yield from _surplus(subtree, item, field_path)


def _item(kind: str, name: str, wanted: Any) -> Any:
    """Return the item of a list with these keys (`k`) or this value (`v`)."""
    identity = msgspec.json.decode(name)
    items = cast("Sequence[Any]", wanted) if isinstance(wanted, list | tuple) else ()
    if kind == "v":
        return next((item for item in items if item == identity), None)
    for item in items:
        if all(_tree(item).get(key) == value for key, value in identity.items()):
            return item
    return None


def _tree(value: Any) -> _Tree:
    return cast(_Tree, value) if isinstance(value, Mapping) else {}


def _same_quantity(wanted: Any, live: Any) -> bool:
    """Compare Kubernetes quantities: `0.5` and `500m` are equal."""
    return _quantity(wanted) is not None and _quantity(wanted) == _quantity(live)


def _quantity(text: Any) -> Decimal | None:
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    power = Decimal(10) ** int(exponent) if exponent else _POWERS.get(suffix or "")
    return None if power is None else Decimal(number) * power
