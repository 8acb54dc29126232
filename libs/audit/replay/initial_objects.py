"""Objects as they were before a journal begins, read from what an API server shows of them.

Who owns which field of a Node is in its managedFields; without them the audit knows of no owner,
and holds nothing against anybody.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from libs.audit.replay.nodes import (
    READY,
    TRACKED_PATHS,
    UNSCHEDULABLE,
    NodeHistory,
    ReplayedNode,
    state_after,
)
from libs.contracts.node import MANAGER
from libs.contracts.paths import leaves, metadata_key
from libs.policy.kinds import KINDS

_SECTIONS: Final = ("metadata", "spec", "status")


class InitialObjects:
    """What is there at first, by what the audit does with it."""

    def __init__(self, objects: Sequence[Mapping[str, Any]]) -> None:
        self.nodes: list[NodeHistory] = []
        self.pods: dict[str, str] = {}
        """Names by uid."""
        self.others: dict[tuple[str, str], dict[str, Any]] = {}
        """Rollouts, policies and strategies by kind and name."""
        for whole in objects:
            kind, metadata = whole.get("kind", ""), _map(whole.get("metadata"))
            name, uid = metadata.get("name", ""), metadata.get("uid", "")
            if kind == "Node":
                self.nodes.append(_life(whole, uid, name))
            elif kind == "Pod":
                self.pods[uid] = name
            elif kind in KINDS:
                self.others[kind, name] = msgspec.json.decode(msgspec.json.encode(whole))


def _life(whole: Mapping[str, Any], uid: str, name: str) -> NodeHistory:
    life = NodeHistory(uid, name, whole=True)
    values = dict(leaves({key: _map(whole.get(key)) for key in _SECTIONS}))
    for condition in _map(whole.get("status")).get("conditions") or ():
        if condition.get("type") == "Ready":
            values[READY] = condition.get("status")
    told = {path: value for path, value in values.items() if path in TRACKED_PATHS}
    life.append(-1, state_after(ReplayedNode(), uid, told))
    for path, value in values.items():
        if (found := metadata_key(path)) and found[0] == "labels":
            life.labels[found[1]] = value
    owners = _owners(_map(whole.get("metadata")).get("managedFields") or ())
    for path, managers in owners.items():
        # Where others own it too, it is theirs as well: the server would keep it for them.
        life.writers[path] = next((one for one in managers if one != MANAGER), MANAGER)
    life.was_ours = any(MANAGER in managers for managers in owners.values())
    if owners:
        cordon = life.writers.get(UNSCHEDULABLE)
        life.cordoned_by_others = bool(values.get(UNSCHEDULABLE)) and cordon != MANAGER
    return life


def _owners(fields: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    owners: dict[str, list[str]] = {}
    for entry in fields:
        tree = _plain(_map(entry.get("fieldsV1")))
        for path, _ in leaves(tree):
            owners.setdefault(path, []).append(entry.get("manager", ""))
    return owners


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of maps alone: items of lists are owned in other words."""
    return dict(_keys(fields))


def _keys(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, below in fields.items():
        if key.startswith("f:"):
            yield key.removeprefix("f:"), _plain(_map(below))


def _map(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
