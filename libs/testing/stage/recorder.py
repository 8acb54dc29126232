"""The journal of a stage for audits, and a log for people.

A simulated cluster also records the holders of devices and the members of pools.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any

import msgspec

from libs.contracts.commands import Command
from libs.contracts.journal import Entry, Revision
from libs.contracts.paths import (
    BOOT,
    KERNEL,
    READY,
    TAINTS,
    UID,
    label_path,
    leaves,
    segments,
    set_path,
    taint_path,
)
from libs.contracts.records import AuditJournal, DeviceHold, LostJournal, PoolFacts
from libs.contracts.reports import Evidence
from libs.contracts.rollout import FINALIZER, KIND
from libs.forecast.stage import driver_agent, driver_pods
from libs.forecast.stage.objects import StageDriverPod, StageMachine, StageNode
from libs.forecast.stage.state import ObjectRef, Requester, StageState
from libs.rollout.decision import NodeTaint
from libs.rollout.views.pool import RolloutView
from libs.testing.stage.events import EventRecorder

PAUSED = label_path("nvidia.com/gpu.deploy.dcgm")
After = StageNode | RolloutView | Mapping[str, Any] | None


class JournalRecorder:
    def __init__(self) -> None:
        self.revisions: list[Revision] = []
        self.entries: list[Entry] = []
        self.events = EventRecorder()
        self.log_lines: list[tuple[float, str]] = []
        self.device_holds: list[DeviceHold] = []
        """Device holds that have ended."""
        self.open_device_holds: dict[str, dict[str, float]] = {}
        """The start of each open hold, by node uid and holder."""
        self.lost_journals: list[LostJournal] = []
        self.pool_facts = list[PoolFacts]()
        self.start: list[dict[str, Any]] = []
        """Nodes and Rollouts as they were when the journal began."""
        self._last_pool_facts: dict[str, PoolFacts] = {}
        self._leaves: dict[tuple[str, str], dict[str, Any]] = {}

    def copy(self) -> "JournalRecorder":
        copied = copy(self)
        for name, value in vars(self).items():
            setattr(copied, name, copy(value))
        copied.events = self.events.copy()
        return copied

    def as_audit_journal(self) -> AuditJournal:
        still_open = (
            DeviceHold(node_uid=uid, since=since, holder=holder)
            for uid, holders in self.open_device_holds.items()
            for holder, since in holders.items()
        )
        return AuditJournal(
            revisions=tuple(self.revisions),
            entries=tuple(self.entries),
            events=tuple(self.events.events),
            start=tuple(self.start),
            pools=tuple(self.pool_facts),
            device_holds=(*self.device_holds, *still_open),
            lost_journals=tuple(self.lost_journals),
        )

    def log(self, at: float, text: str) -> None:
        self.log_lines.append((at, text))

    def request(
        self,
        at: float,
        ref: ObjectRef,
        by: Requester,
        code: int,
        *,
        revision: int,
        after: After,
    ) -> None:
        """Record a write or an attempt; `after` is None if unchanged, empty after a deletion."""
        changed: dict[str, tuple[Any, Any]] = {}
        if after is not None:
            key = ref.kind, ref.uid
            before, now = self._leaves.get(key, {}), _leaves_of(ref.name, after)
            changed = {
                path: (before.get(path), now.get(path))
                for path in {**before, **now}
                if before.get(path) != now.get(path)
            }
            self._leaves[key] = now
        self.revisions.append(
            Revision(
                revision=revision,
                time=at,
                user=by.user,
                manager=by.manager,
                verb=by.verb,
                code=code,
                kind=ref.kind,
                namespace=ref.namespace,
                name=ref.name,
                uid=ref.uid,
                changed=changed,
            )
        )

    def node_found(self, node: StageNode) -> None:
        self.start.append(node_object(node))
        self._leaves["Node", node.view.uid] = leaves_of_node(node)

    def pod_found(self, machine: StageMachine, pod: StageDriverPod) -> None:
        leaves_by_path = self._leaves["Pod", pod.uid] = driver_pods.pod_leaves(machine, pod)
        document: dict[str, Any] = {"kind": "Pod"}
        for path, value in leaves_by_path.items():
            set_path(document, path, value)
        self.start.append(document)

    def rollout_found(self, name: str, rollout: RolloutView) -> None:
        leaves_by_path = self._leaves[KIND, rollout.uid] = leaves_of_rollout(name, rollout)
        document: dict[str, Any] = {"kind": KIND}
        for path, value in leaves_by_path.items():
            set_path(document, path, value)
        self.start.append(document)

    def entry(
        self,
        at: float,
        boot_id: str,
        component: str,
        command: Command,
        *,
        evidence: Evidence | None,
        **details: Any,
    ) -> None:
        """Record a line of an agent's journal, and its event."""
        entry = Entry(
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
        self.entries.append(entry)
        self.events.entry(entry, evidence)

    def observe_holders(self, state: StageState, machine: StageMachine) -> None:
        """Record the holders of the devices of a machine from now on."""
        uid, holders = state.nodes[machine.name].view.uid, driver_agent.holders(machine)
        before = self.open_device_holds.get(uid, {})
        self.device_holds += [
            DeviceHold(node_uid=uid, since=since, until=state.now, holder=holder)
            for holder, since in before.items()
            if holder not in holders
        ]
        now = {holder: before.get(holder, state.now) for holder in holders}
        self.open_device_holds = {**self.open_device_holds, uid: now}

    def observe_pools(self, state: StageState) -> None:
        """Record changed facts of each pool; the last facts of one instant count."""
        driverless = frozenset(
            node.view.uid for node in state.nodes.values() if _is_driverless(state, node)
        )
        for key, pool in state.pools.items():
            members = [node.view.uid for node in state.nodes.values() if node.view.pool == key]
            facts = PoolFacts(
                key=key,
                since=state.now,
                members=frozenset(members),
                max_unavailable=pool.upgrade.max_unavailable,
                failure_threshold=pool.strategy.failure_threshold,
                startup_taint=pool.strategy.startup_taint,
                driverless=driverless,
            )
            last = self._last_pool_facts.get(key)
            if last is not None and facts == msgspec.structs.replace(last, since=state.now):
                continue
            self._last_pool_facts[key] = facts
            self.pool_facts = [
                recorded
                for recorded in self.pool_facts
                if (recorded.key, recorded.since) != (key, state.now)
            ]
            self.pool_facts.append(facts)


def _is_driverless(state: StageState, node: StageNode) -> bool:
    reported = state.driver_facts.get(node.view.name)
    return reported is not None and reported.loaded is None


def _leaves_of(name: str, after: StageNode | RolloutView | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(after, StageNode):
        return leaves_of_node(after)
    return leaves_of_rollout(name, after) if isinstance(after, RolloutView) else dict(after)


def leaves_of_node(node: StageNode) -> dict[str, Any]:
    """Return a Node by path."""
    leaves_by_path: dict[str, Any] = {
        "metadata.name": node.view.name,
        UID: node.view.uid,
        BOOT: node.view.boot_id,
        KERNEL: node.view.kernel,
        READY: "True" if node.view.ready else "Unknown",
    }
    if node.operands_paused:
        leaves_by_path[PAUSED] = "paused-for-driver-upgrade"
    for path, field in node.fields.items():
        value = field.value
        if path == TAINTS:
            leaves_by_path |= _leaves_of_taints(value)
            continue
        if isinstance(value, msgspec.Struct):
            value = msgspec.json.encode(value).decode()
        leaves_by_path[path] = value
    return leaves_by_path


def _leaves_of_taints(taints: Iterable[NodeTaint]) -> Iterator[tuple[str, str]]:
    for taint in taints:
        path = taint_path(taint.key, taint.effect)
        yield f"{path}.effect", taint.effect
        yield f"{path}.key", taint.key
        if taint.value:
            yield f"{path}.value", taint.value


def node_object(node: StageNode) -> dict[str, Any]:
    """Return a Node as an API server shows it, with its managed fields."""
    document: dict[str, Any] = {"kind": "Node"}
    for path, value in leaves_of_node(node).items():
        set_path(document, path, value)
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


def leaves_of_rollout(name: str, rollout: RolloutView) -> dict[str, Any]:
    """Return a Rollout by path."""
    document: dict[str, Any] = {
        "metadata": {"name": name, "uid": rollout.uid},
        "spec": msgspec.to_builtins(rollout.spec),
        "status": msgspec.to_builtins(rollout.status),
    }
    if rollout.has_finalizer:
        document["metadata"]["finalizers"] = [FINALIZER]
    return dict(leaves(document))
