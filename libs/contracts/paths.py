"""The paths of `Revision.changed`: parsing them, setting values by path, and those of a Node.

A path joins keys by dots. A key with punctuation is quoted in brackets, and an item of a list is
named by its identifying fields: `status.conditions[type=Ready].status`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from libs.contracts.node import (
    DRIVER_LABEL,
    INITIALLY_CORDONED_ANNOTATION,
    KEEP_CORDONED_LABEL,
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    MIG_STATE_LABEL,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
)

_STRING = r'"(?:[^"\\]|\\.)*"'
_PAIR = rf'[^\s=\[\],"]+=(?:{_STRING}|[^\[\]=,"\s]+)'
_SEGMENT = re.compile(
    rf'\.?(?P<plain>[^.\[\]/=,"\s]+)|\[(?P<quoted>{_STRING})\]|\[(?P<item>{_PAIR}(?:,{_PAIR})*)\]'
)
_PAIRS = re.compile(rf'([^\s=\[\],"]+)=({_STRING}|[^\[\]=,"\s]+)')

Item = tuple[tuple[str, str], ...]
"""The identifying fields of an item of a list, with their values."""
Segment = str | Item


@lru_cache(maxsize=4096)
def segments(path: str) -> tuple[Segment, ...]:
    parts: list[Segment] = []
    for match in _SEGMENT.finditer(path):
        if (plain := match["plain"]) is not None:
            parts.append(plain)
        elif (quoted := match["quoted"]) is not None:
            parts.append(json.loads(quoted))
        else:
            pairs = _PAIRS.findall(match["item"])
            parts.append(tuple((name, _unquoted(value)) for name, value in pairs))
    return tuple(parts)


def _unquoted(value: str) -> str:
    return json.loads(value) if value.startswith('"') else value


def label_path(key: str) -> str:
    """Return the path of a label; its key must contain punctuation, as all of ours do."""
    return f"metadata.labels[{json.dumps(key)}]"


def annotation_path(key: str) -> str:
    """Return the path of an annotation; its key must contain punctuation."""
    return f"metadata.annotations[{json.dumps(key)}]"


_NODE_LABELS: Final = frozenset(
    {STATE_LABEL, DRIVER_LABEL, SKIP_LABEL, KEEP_CORDONED_LABEL, MIG_STATE_LABEL}
)


def node_path(key: str) -> str:
    """Return the path of one of our labels or annotations of a Node."""
    return label_path(key) if key in _NODE_LABELS else annotation_path(key)


def taint_path(key: str, effect: str) -> str:
    """Return the path of a taint of a Node."""
    return f"{TAINTS}[key={key},effect={effect}]"


UID: Final = "metadata.uid"
CORDON: Final = "spec.unschedulable"
READY: Final = "status.conditions[type=Ready].status"
BOOT: Final = "status.nodeInfo.bootID"
KERNEL: Final = "status.nodeInfo.kernelVersion"
POD_NODE: Final = "spec.nodeName"
GRACE: Final = "metadata.deletionGracePeriodSeconds"
"""Set while a Pod terminates."""
DRIVER_CONTAINER: Final = "nvidia-driver-ctr"
DRIVER_STARTED: Final = f"status.containerStatuses[name={DRIVER_CONTAINER}].state.running.startedAt"
TAINTS: Final = "spec.taints"
"""The list of taints: for the API server one field with one owner."""
TAINT: Final = taint_path("node.kubernetes.io/unschedulable", "NoSchedule")
"""The taint of a cordon."""
STATE: Final = node_path(STATE_LABEL)
DRIVER: Final = node_path(DRIVER_LABEL)
SKIP: Final = node_path(SKIP_LABEL)
KEEP_CORDONED: Final = node_path(KEEP_CORDONED_LABEL)
LEASE: Final = node_path(LEASE_ANNOTATION)
LEASE_CLAIM: Final = node_path(LEASE_CLAIM_ANNOTATION)
RECORD: Final = node_path(RECORD_ANNOTATION)
REQUEST: Final = node_path(REQUEST_ANNOTATION)
REQUESTED: Final = node_path(REQUESTED_ANNOTATION)
SAFE_LOAD: Final = node_path(SAFE_LOAD_ANNOTATION)
MIG_STATE: Final = node_path(MIG_STATE_LABEL)
INITIALLY_CORDONED: Final = node_path(INITIALLY_CORDONED_ANNOTATION)


@lru_cache(maxsize=4096)
def metadata_key(path: str) -> tuple[str, str] | None:
    """Return `labels` or `annotations` and the key, for a path of one of them."""
    parts = segments(path)
    if len(parts) != 3 or parts[0] != "metadata" or parts[1] not in ("labels", "annotations"):
        return None
    return cast(str, parts[1]), cast(str, parts[2])


def set_path(manifest: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a path of an object; None removes it, and the maps left empty."""
    _set(manifest, segments(path), value)


def _set(parent: Any, parts: tuple[Segment, ...], value: Any) -> None:
    first, rest = parts[0], parts[1:]
    if isinstance(first, tuple):
        _set_item(cast(list[Any], parent), first, rest, value)
        return
    tree = cast(dict[str, Any], parent)
    if not rest:
        if value is None:
            tree.pop(first, None)
        else:
            tree[first] = value
        return
    kind = list if isinstance(rest[0], tuple) else dict
    if not isinstance(tree.get(first), kind):
        if value is None:
            return
        tree[first] = kind()
    _set(tree[first], rest, value)
    if value is None and not tree[first]:
        del tree[first]


def _set_item(items: list[Any], identity: Item, rest: tuple[Segment, ...], value: Any) -> None:
    for item in items:
        if all(item.get(name) == expected for name, expected in identity):
            break
    else:
        if value is None:
            return
        item = dict(identity)
        items.append(item)
    if rest:
        _set(item, rest, value)
    if value is None and any(name not in item for name, _ in identity):
        items.remove(item)


def leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Return every leaf of an object with its path; a list is one leaf."""
    for key, value in tree.items():
        part = f".{key}" if re.fullmatch(r'[^.\[\]/=,"\s]+', key) else f"[{json.dumps(key)}]"
        leaf_path = (path + part).removeprefix(".")
        if isinstance(value, Mapping) and value:
            yield from leaves(cast("Mapping[str, Any]", value), leaf_path)
        else:
            yield leaf_path, value
