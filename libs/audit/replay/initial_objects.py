"""The objects that existed before a journal begins.

The managedFields of a Node name the owners of its fields. A Node without them has no known owners,
so none of its fields counts as foreign.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from libs.audit.replay.changes import as_map
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
    def __init__(self, objects: Sequence[Mapping[str, Any]]) -> None:
        self.nodes: list[NodeHistory] = []
        self.pods: dict[str, str] = {}
        """Names by uid."""
        self.manifests: dict[tuple[str, str], dict[str, Any]] = {}
        """Rollouts, policies and strategies by kind and name."""
        for manifest in objects:
            kind, metadata = manifest.get("kind", ""), as_map(manifest.get("metadata"))
            name, uid = metadata.get("name", ""), metadata.get("uid", "")
            if kind == "Node":
                self.nodes.append(_node_history(manifest, uid, name))
            elif kind == "Pod":
                self.pods[uid] = name
            elif kind in KINDS:
                self.manifests[kind, name] = msgspec.json.decode(msgspec.json.encode(manifest))


def _node_history(manifest: Mapping[str, Any], uid: str, name: str) -> NodeHistory:
    history = NodeHistory(uid, name, is_complete=True)
    values = dict(leaves({key: as_map(manifest.get(key)) for key in _SECTIONS}))
    for condition in as_map(manifest.get("status")).get("conditions") or ():
        if condition.get("type") == "Ready":
            values[READY] = condition.get("status")
    tracked = {path: value for path, value in values.items() if path in TRACKED_PATHS}
    history.append(-1, state_after(ReplayedNode(), uid, tracked))
    for path, value in values.items():
        if (entry := metadata_key(path)) and entry[0] == "labels":
            history.labels[entry[1]] = value
    owners = _owners(as_map(manifest.get("metadata")).get("managedFields") or ())
    for path, managers in owners.items():
        # A field that others co-own is foreign: the server would keep it for them.
        history.last_writers[path] = next((name for name in managers if name != MANAGER), MANAGER)
    history.was_ours = any(MANAGER in managers for managers in owners.values())
    if owners:
        cordon_owner = history.last_writers.get(UNSCHEDULABLE)
        history.cordoned_by_others = bool(values.get(UNSCHEDULABLE)) and cordon_owner != MANAGER
    return history


def _owners(managed_fields: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    owners: dict[str, list[str]] = {}
    for entry in managed_fields:
        for path, _ in leaves(_owned_keys(as_map(entry.get("fieldsV1")))):
            owners.setdefault(path, []).append(entry.get("manager", ""))
    return owners


def _owned_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the owned keys of maps as a tree, without the items of lists."""
    return {
        key.removeprefix("f:"): _owned_keys(as_map(below))
        for key, below in fields.items()
        if key.startswith("f:")
    }
