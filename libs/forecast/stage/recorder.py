"""The journal of a stage for audits, and a log for people."""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, cast

import msgspec

from libs.contracts.commands import Command
from libs.contracts.journal import Entry, Revision, Verb
from libs.contracts.paths import segments, set_path
from libs.contracts.records import LostJournal, PoolFacts
from libs.contracts.rollout import FINALIZER, KIND
from libs.forecast.stage.field_paths import PAUSED, TAINT, key_in
from libs.forecast.stage.objects import StageNode, StageRollout


class JournalRecorder:
    def __init__(self) -> None:
        self.revisions: list[Revision] = []
        self.entries: list[Entry] = []
        self.log_lines: list[tuple[float, str]] = []
        self.device_holds: list[tuple[str, str, float, float | None]] = []
        """Node uid, holder, since and until."""
        self.open_device_holds: dict[tuple[str, str], float] = {}
        self.holders: dict[str, tuple[str, ...]] = {}
        """The last recorded holders by node uid."""
        self.lost_journals: list[LostJournal] = []
        self.pool_facts = list[PoolFacts]()
        self.start: list[dict[str, Any]] = []
        """Nodes and Rollouts as they were when the journal began."""
        self.last_pool_facts: dict[str, tuple[object, ...]] = {}
        """The last recorded facts by pool."""
        self._leaves: dict[tuple[str, str], dict[str, Any]] = {}

    def copy(self) -> "JournalRecorder":
        copied = copy(self)
        for name, value in vars(self).items():
            setattr(copied, name, copy(value))
        return copied

    def log(self, at: float, text: str) -> None:
        self.log_lines.append((at, text))

    def request(
        self,
        *,
        at: float,
        revision: int,
        kind: str,
        name: str,
        uid: str,
        verb: Verb,
        code: int,
        user: str,
        manager: str = "",
        namespace: str = "",
        leaves: Mapping[str, Any] | None = None,
    ) -> None:
        """Record a write or an attempt.

        `leaves` is the object after it: None, it did not change; empty, it is gone.
        """
        changed: dict[str, tuple[Any, Any]] = {}
        if leaves is not None:
            key = (kind, uid)
            before = self._leaves.get(key, {})
            for path in {**before, **leaves}:
                old, new = before.get(path), leaves.get(path)
                if old != new:
                    changed[path] = (old, new)
            self._leaves[key] = dict(leaves)
        self.revisions.append(
            Revision(
                revision=revision,
                time=at,
                user=user,
                manager=manager,
                verb=verb,
                code=code,
                kind=kind,
                namespace=namespace,
                name=name,
                uid=uid,
                changed=changed,
            )
        )

    def node_found(self, node: StageNode) -> None:
        self.start.append(node_object(node))
        self._leaves["Node", node.uid] = leaves_of_node(node)

    def rollout_found(self, name: str, rollout: StageRollout) -> None:
        leaves = leaves_of_rollout(name, rollout)
        document: dict[str, Any] = {"kind": KIND}
        for path, value in leaves.items():
            set_path(document, path, value)
        self.start.append(document)
        self._leaves[KIND, rollout.uid] = leaves

    def entry(
        self, at: float, boot_id: str, component: str, command: Command, **details: Any
    ) -> None:
        """Record a line of an agent's journal."""
        self.entries.append(
            Entry(
                node=command.node,
                node_uid=command.node_uid,
                boot_id=boot_id,
                component=component,
                epoch=command.epoch,
                token=command.token,
                op=command.op,
                command=command.kind.value,
                time=at,
                **details,
            )
        )

    def record_holders(self, at: float, node_uid: str, holders: Mapping[str, bool]) -> None:
        """Record which of the named holders have the devices open from now on."""
        for holder, holds in holders.items():
            key = (node_uid, holder)
            if holds:
                self.open_device_holds.setdefault(key, at)
            elif (since := self.open_device_holds.pop(key, None)) is not None:
                self.device_holds.append((node_uid, holder, since, at))


def leaves_of_node(node: StageNode) -> dict[str, Any]:
    """Return a Node by path."""
    found: dict[str, Any] = {
        "metadata.name": node.name,
        "metadata.uid": node.uid,
        "status.nodeInfo.bootID": node.boot_id,
        "status.nodeInfo.kernelVersion": node.kernel,
        "status.conditions[type=Ready].status": "True" if node.ready else "Unknown",
    }
    if node.taint:
        found[f"{TAINT}.effect"] = "NoSchedule"
        found[f"{TAINT}.key"] = "node.kubernetes.io/unschedulable"
    if node.operands_paused:
        found[PAUSED] = "paused-for-driver-upgrade"
    for key, field in node.fields.items():
        value = field.value
        if isinstance(value, msgspec.Struct):
            value = msgspec.json.encode(value).decode()
        found[key] = value
    return found


def node_object(node: StageNode) -> dict[str, Any]:
    """Return a Node as an API server shows it, with its managed fields."""
    document: dict[str, Any] = {"kind": "Node"}
    for path, value in leaves_of_node(node).items():
        if not path.startswith("status.conditions"):
            set_path(document, path, value)
    ready = "True" if node.ready else "Unknown"
    set_path(document, "status.conditions", [{"type": "Ready", "status": ready}])
    owners: dict[str, dict[str, Any]] = {}
    for path, field in node.fields.items():
        for manager in field.managers:
            tree = owners.setdefault(manager, {})
            for part in segments(path):
                tree = tree.setdefault(f"f:{part}", {})
    document["metadata"]["managedFields"] = [
        {"manager": manager, "fieldsV1": fields} for manager, fields in owners.items()
    ]
    return document


def leaves_of_rollout(name: str, rollout: StageRollout) -> dict[str, Any]:
    """Return a Rollout by path."""
    found: dict[str, Any] = {"metadata.name": name, "metadata.uid": rollout.uid}
    if rollout.finalized:
        found["metadata.finalizers"] = [FINALIZER]
    for part in ("spec", "status"):
        found.update(_leaves(part, msgspec.to_builtins(getattr(rollout, part))))
    return found


def _leaves(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(tree, dict) or not tree:
        yield path, tree
        return
    for key, value in cast(dict[str, Any], tree).items():
        yield from _leaves(key_in(path, key), value)
