"""Whether an apply would change anything: what is rendered, held against what the server has.

A server adds defaults and leaves out what is empty; others may add what we do not speak of. So
only two things count: something that we want is not there, or something that we once applied, and
the server still keeps for us, is not wanted any more. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, cast

import msgspec

from libs.kube.views import Object
from services.driver.cluster.resources import MANAGER, operand_content

_IDENTITIES: Final = ("mountPath", "name", "containerPort")
"""By which the items of a list are told apart, wherever all of them have it."""

_AMOUNTS: Final = frozenset(("limits", "requests"))
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


def difference(wanted: _Tree, there: Object) -> str:
    """Where the first one is, as a path; empty where an apply would change nothing."""
    words = {"labels": there.metadata.labels, "annotations": there.metadata.annotations}
    live = {**operand_content(there), "metadata": words}
    metadata: _Tree = wanted["metadata"]
    said = {name: _tree(metadata.get(name)) for name in ("labels", "annotations")}
    whole = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind")}
    whole["metadata"] = said
    missing = next(_missing(whole, live, ""), "")
    return missing or next(_surplus(_owned(there), whole, ""), "")


def _owned(there: Object) -> _Tree:
    """What the server keeps as ours, as a tree of fields."""
    for fields in there.metadata.managed_fields:
        if fields.manager == MANAGER and fields.operation == "Apply" and not fields.subresource:
            return msgspec.json.decode(fields.fields_v1)
    return {}


def _missing(wanted: Any, there: Any, path: str) -> Iterator[str]:
    """Paths of what is wanted, and is not there or is other."""
    if not wanted and not there:
        return  # false, zero and empty are often left out
    if isinstance(wanted, Mapping):
        tree, live = _tree(wanted), _tree(there)
        same = _same_amount if path.rpartition(".")[2] in _AMOUNTS else None
        for key, value in tree.items():
            if not (same and same(value, live.get(key))):
                yield from _missing(value, live.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(wanted, list | tuple):
        items = cast("Sequence[Any]", wanted)
        yield from _missing_items(items, cast("list[Any]", there or []), path)
    elif wanted != there:
        yield path


def _missing_items(wanted: Sequence[Any], there: Sequence[Any], path: str) -> Iterator[str]:
    identity = _identity(wanted)
    if not identity:
        if len(wanted) != len(there):
            yield path
        for at, (one, other) in enumerate(zip(wanted, there, strict=False)):
            yield from _missing(one, other, f"{path}[{at}]")
        return
    names = [item[identity] for item in wanted]
    live = {_tree(item).get(identity): item for item in there}
    # The order counts: a variable may refer to those before it.
    if [name for name in live if name in names] != names:
        yield path
    for item in wanted:
        name = item[identity]
        yield from _missing(item, live.get(name), f"{path}[{identity}={name}]")


def _identity(items: Sequence[Any]) -> str:
    """The field that tells them apart; empty where none does."""
    trees = [_tree(item) for item in items]
    for field in _IDENTITIES:
        names = {tree[field] for tree in trees if field in tree}
        if items and len(names) == len(items):
            return field
    return ""


def _surplus(owned: _Tree, wanted: Any, path: str) -> Iterator[str]:
    """Paths of what is kept as ours, and is not wanted."""
    for key, below in owned.items():
        if key == ".":
            continue
        kind, _, name = key.partition(":")
        where = f"{path}.{name}".lstrip(".") if kind == "f" else f"{path}[{name}]"
        if kind == "f":
            found = name in _tree(wanted)
            item = _tree(wanted).get(name)
        else:
            item = _item(kind, name, wanted)
            found = item is not None
        if not found:
            yield where
        elif below:
            yield from _surplus(below, item, where)


def _item(kind: str, name: str, wanted: Any) -> Any:
    """Of a list: the one with these keys, or of this value."""
    told = msgspec.json.decode(name)
    items = cast("Sequence[Any]", wanted) if isinstance(wanted, list | tuple) else ()
    if kind == "v":
        return next((item for item in items if item == told), None)
    for item in items:
        if all(_tree(item).get(key) == value for key, value in told.items()):
            return item
    return None


def _tree(value: Any) -> _Tree:
    """Its fields; what is no object has none."""
    return cast(_Tree, value) if isinstance(value, Mapping) else {}


def _same_amount(one: Any, other: Any) -> bool:
    """`0.5` and `500m` are the same."""
    return _amount(one) is not None and _amount(one) == _amount(other)


def _amount(text: Any) -> Decimal | None:
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        return None
    number, exponent, suffix = found.groups()
    power = Decimal(10) ** int(exponent) if exponent else _POWERS.get(suffix or "")
    return None if power is None else Decimal(number) * power
