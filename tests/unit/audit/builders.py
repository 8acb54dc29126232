"""Builds journals for tests from writes to a small cluster.

`JournalBuilder` keeps whole objects and records each write as a `Revision`. Its steps are those of
docs/states.md#upgrade; a test plants a violation by changing one of them.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from libs.audit import AuditJournal, DeviceHold, PoolFacts, judge
from libs.contracts.events import Event, EventBody, StepEvent, WaitEvent
from libs.contracts.journal import Entry, EntryPhase, Revision, Verb
from libs.contracts.message import encode
from libs.contracts.node import (
    DRIVER_LABEL,
    LEASE_ANNOTATION,
    MANAGER,
    RECORD_ANNOTATION,
    STATE_LABEL,
    LeaseOwner,
    NodeLease,
    NodeRecord,
    Operation,
    UpgradeState,
    WaitCode,
)
from libs.contracts.reports import Evidence, Outcome, Result
from libs.policy.shapes import IntOrString
from libs.testing.changes import changed_paths

POOL = "clusterpolicy-main"
TARGET = "t2"
LABEL = "main-t2-ubuntu"
OLD_LABEL = "main-t1-ubuntu"

Change = Callable[[dict[str, Any]], None]


class JournalBuilder:
    """Each write is one revision; only `advance` moves the time."""

    def __init__(self, *nodes: str, time: float = 1_000_000.0) -> None:
        self.time = time
        self.revision = 100
        self.revisions: list[Revision] = []
        self.entries: list[Entry] = []
        self.events: list[Event] = []
        self.device_holds: list[DeviceHold] = []
        self.epoch = 1
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.records: dict[str, NodeRecord] = {}
        for name in nodes:
            self.node(name)

    def advance(self, seconds: float) -> None:
        self.time += seconds

    def write(
        self,
        kind: str,
        name: str,
        change: Change | None,
        *,
        manager: str,
        verb: Verb = Verb.PATCH,
        namespace: str = "",
        code: int = 200,
        shows: bool = True,
    ) -> Revision:
        """Change an object, or delete it (`change` is None); codes from 300 on refuse the write."""
        before = self.objects.get((kind, name))
        after = copy.deepcopy(before)
        if change is None:
            after = None
        elif code < 300:
            after = after or {"metadata": {"name": name, "uid": f"uid-{name}"}}
            change(after)
        granted = code < 300
        if granted:
            self.revision += 1
            self.objects.pop((kind, name), None)
            if after is not None:
                self.objects[kind, name] = after
        whole = after or before or {"metadata": {}}
        revision = Revision(
            revision=self.revision if granted and shows else 0,
            time=self.time,
            user=manager,
            manager=manager,
            verb=verb,
            code=code,
            kind=kind,
            namespace=namespace,
            name=name,
            uid=whole["metadata"].get("uid", ""),
            changed=changed_paths(before, after) if granted else {},
        )
        self.revisions.append(revision)
        return revision

    def node(
        self,
        name: str,
        *,
        uid: str = "",
        labels: dict[str, str] | None = None,
        driver: str = OLD_LABEL,
    ) -> None:
        """Register a node that is ready."""
        known = {"nvidia.com/gpu.present": "true", DRIVER_LABEL: driver, **(labels or {})}

        def create(node: dict[str, Any]) -> None:
            node["metadata"]["uid"] = uid or f"uid-{name}"
            node["metadata"]["labels"] = {key: value for key, value in known.items() if value}
            node["status"] = {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"bootID": f"boot-{name}"},
            }

        self.records.pop(name, None)
        self.write("Node", name, create, manager="kubelet", verb=Verb.CREATE, code=201)

    def ready(self, name: str, status: str) -> Revision:
        def change(node: dict[str, Any]) -> None:
            node["status"]["conditions"][0]["status"] = status

        return self.write("Node", name, change, manager="kubelet")

    def reboot(self, name: str, boot: str) -> None:
        def change(node: dict[str, Any]) -> None:
            node["status"]["nodeInfo"]["bootID"] = boot

        self.write("Node", name, change, manager="kubelet")

    def cordon(self, name: str, value: bool = True, *, by: str = "kubectl") -> Revision:
        return self.write("Node", name, cordoned(value), manager=by)

    def label(self, name: str, key: str, value: str | None, *, by: str = "kubectl") -> Revision:
        return self.write("Node", name, _put("labels", key, value), manager=by)

    def annotate(self, name: str, key: str, value: str | None, *, by: str = "kubectl") -> Revision:
        return self.write("Node", name, _put("annotations", key, value), manager=by)

    def delete(self, kind: str, name: str, *, by: str = "kubectl") -> Revision:
        return self.write(kind, name, None, manager=by, verb=Verb.DELETE, shows=False)

    def pod(self, name: str, *, namespace: str = "gpu") -> Revision:
        return self.write(
            "Pod", name, lambda _: None, manager="kube-controller-manager", verb=Verb.CREATE,
            code=201, namespace=namespace,
        )  # fmt: skip

    def rollout(self, change: Change, *, pool: str = POOL, by: str = MANAGER) -> Revision:
        verb = Verb.UPDATE if ("Rollout", pool) in self.objects else Verb.CREATE
        return self.write("Rollout", pool, change, manager=by, verb=verb)

    def release(self, failures: int, *, target: str = TARGET) -> None:
        def change(rollout: dict[str, Any]) -> None:
            rollout["spec"] = {"release": {"target": target, "failures": failures}}

        self.rollout(change, by="kubectl")

    def apply(
        self,
        name: str,
        *changes: Change,
        record: NodeRecord | None = None,
        verb: Verb = Verb.APPLY,
        code: int = 200,
    ) -> Revision:
        """Apply changes as the scheduler, with a new record."""
        if record is not None:
            self.records[name] = record
            changes = (*changes, annotated(RECORD_ANNOTATION, encode(record).decode()))

        def change(node: dict[str, Any]) -> None:
            for apply_change in changes:
                apply_change(node)

        return self.write("Node", name, change, manager=MANAGER, verb=verb, code=code)

    def mark_required(self, name: str, *, cordon_adopted: bool = False) -> Revision:
        """Step 1: mark the node `upgrade-required`."""
        required = UpgradeState.UPGRADE_REQUIRED
        record = msgspec.structs.replace(
            self._record(name), state=required.value, cordon_adopted=cordon_adopted
        )
        return self.apply(name, state(required), record=record)

    def take_lease(
        self,
        name: str,
        *,
        token: int | None = None,
        operation: Operation = Operation.UPGRADE,
        target: str = TARGET,
        pool: str = POOL,
        label: str = LABEL,
        cordon: bool = True,
        started: bool = False,
        seen: dict[str, str] | None = None,
    ) -> Revision:
        """Step 3: take the lease; with `started`, step 6 too."""
        known = self._record(name)
        token = known.token + 1 if token is None else token
        record = msgspec.structs.replace(
            known,
            epoch=self.epoch,
            token=token,
            pool=pool,
            operation=operation,
            target=target,
            label=label,
            label_before=self.label_of(name),
            state=UpgradeState.POD_DELETION_REQUIRED,
            started=started,
            seen={"nodes": str(self.revision)} if seen is None else seen,
        )
        changes = [state(record.state), leased(self.lease(name, token))]
        if cordon:
            changes.append(cordoned(True))
        return self.apply(name, *changes, record=record)

    def start(self, name: str, *, restart: bool = False) -> Revision:
        """Step 6: move the driver label."""
        record = msgspec.structs.replace(
            self.records[name], state=UpgradeState.POD_RESTART_REQUIRED, started=True,
            old_pod_uid=f"pod-{name}-old", evidence=None,
        )  # fmt: skip
        changes = [state(record.state)]
        if not restart:
            changes.append(labelled(DRIVER_LABEL, record.label or None))
        return self.apply(name, *changes, record=record)

    def lease_and_start(self, name: str, **options: Any) -> None:
        self.take_lease(name, **options)
        self.start(name)

    def validate(self, name: str) -> Revision:
        """Step 8: ask for the validation."""
        record = msgspec.structs.replace(
            self.records[name], state=UpgradeState.VALIDATION_REQUIRED, paused=False
        )
        return self.apply(name, state(record.state), record=record)

    def pass_validation(self, name: str) -> None:
        """Step 8, with the entries of the validator."""
        self.validate(name)
        self.op(name, "validator", "validate", op=1)

    def finish(self, name: str, *changes: Change, evidence: Evidence | None = None) -> Revision:
        """Step 9: return the node on this evidence, or on correct evidence."""
        known = self.records[name]
        record = NodeRecord(
            node_uid=known.node_uid,
            epoch=known.epoch,
            token=known.token,
            pool=known.pool,
            target=known.target,
            label=known.label,
            state=UpgradeState.UPGRADE_DONE,
            evidence=evidence or self.evidence(name),
            seen=known.seen,
        )
        return self.apply(
            name, state(record.state), leased(None), cordoned(None), *changes, record=record
        )

    def fail(self, name: str, *changes: Change, cause: str = "driver-start") -> Revision:
        record = msgspec.structs.replace(
            self.records[name], state=UpgradeState.UPGRADE_FAILED, cause=cause, paused=False
        )
        return self.apply(name, state(record.state), leased(None), *changes, record=record)

    def release_unchanged(self, name: str, *changes: Change) -> Revision:
        record = msgspec.structs.replace(
            self.records[name], state=UpgradeState.UPGRADE_REQUIRED, operation=None
        )
        return self.apply(
            name, state(record.state), leased(None), cordoned(None), *changes, record=record
        )

    def upgrade(self, name: str) -> None:
        """Run a whole upgrade, with the entries of the agents and the events of the steps."""
        self.step_event(name, self.mark_required(name))
        self.advance(1)
        self.step_event(name, self.take_lease(name))
        self.op(name, "plugin", "quiesce", op=1)
        self.advance(20)
        self.step_event(name, self.start(name))
        self.op(name, "driver", "swap", op=1, steps=("unload: ok", "gate: open"))
        self.advance(60)
        self.step_event(name, self.validate(name))
        self.op(name, "validator", "validate", op=1)
        self.step_event(name, self.finish(name))
        self.op(name, "driver", "idle", op=2)
        self.advance(1)

    def _record(self, name: str) -> NodeRecord:
        return self.records.get(name) or NodeRecord(
            node_uid=self.uid(name), epoch=self.epoch, token=0
        )

    def uid(self, name: str) -> str:
        return self.objects["Node", name]["metadata"]["uid"]

    def boot(self, name: str) -> str:
        return self.objects["Node", name]["status"]["nodeInfo"]["bootID"]

    def label_of(self, name: str) -> str:
        return self.objects["Node", name]["metadata"]["labels"].get(DRIVER_LABEL, "")

    def lease(self, name: str, token: int, owner: LeaseOwner = LeaseOwner.UPGRADE) -> NodeLease:
        return NodeLease(node_uid=self.uid(name), owner=owner, token=token, since=self.time)

    def evidence(self, name: str, **overrides: Any) -> Evidence:
        """Return correct evidence, except for the overrides."""
        record = self.records[name]
        correct: dict[str, Any] = {
            "epoch": record.epoch,
            "token": record.token,
            "op": 1,
            "passed": True,
            "label": self.label_of(name),
            "node_uid": self.uid(name),
            "boot_id": self.boot(name),
            "kernel": "6.8.0",
            "driver_pod_uid": f"pod-{name}-new",
            "driver_started": self.time - 30,
            "at": self.time,
        }
        return Evidence(**{**correct, **overrides})

    def entry(
        self,
        name: str,
        component: str,
        command: str,
        phase: EntryPhase,
        *,
        op: int,
        token: int | None = None,
        epoch: int | None = None,
        detail: str = "",
        outcome: Outcome | None = None,
    ) -> Entry:
        token = self.records[name].token if token is None else token
        epoch = self.epoch if epoch is None else epoch
        result = (
            Result(epoch=epoch, token=token, op=op, command=command, outcome=outcome)
            if outcome
            else None
        )
        entry = Entry(
            node=name,
            node_uid=self.uid(name),
            boot_id=self.boot(name),
            component=component,
            epoch=epoch,
            token=token,
            op=op,
            command=command,
            phase=phase,
            time=self.time,
            detail=detail,
            result=result,
        )
        self.entries.append(entry)
        return entry

    def op(
        self,
        name: str,
        component: str,
        command: str,
        *,
        op: int,
        steps: Iterable[str] = (),
        outcome: Outcome = Outcome.DONE,
        token: int | None = None,
    ) -> None:
        """Add the entries of a finished op, whose steps take a second each."""
        self.entry(name, component, command, EntryPhase.STARTED, op=op, token=token)
        for step in steps:
            self.advance(1)
            self.entry(name, component, command, EntryPhase.STEP, op=op, token=token, detail=step)
        self.entry(
            name, component, command, EntryPhase.FINISHED, op=op, token=token, outcome=outcome
        )

    def event(
        self, body: EventBody, *, node: str = "", id: str = "", by: str = "scheduler"
    ) -> Event:
        event = Event.of(
            body,
            id=id or f"event-{len(self.events)}",
            at=self.time,
            writer=by,
            message=f"{type(body).__name__} of {node}",
            node=node,
            node_uid=self.uid(node) if ("Node", node) in self.objects else "",
        )
        self.events.append(event)
        return event

    def step_event(self, name: str, revision: Revision, *, after: str | None = None) -> Event:
        """Add the event of a step, with the state of the revision unless `after` is given."""
        record = self.records[name]
        shown_state = self.objects["Node", name]["metadata"]["labels"].get(STATE_LABEL, "")
        step = StepEvent(
            pool=POOL,
            token=record.token,
            before="",
            after=shown_state if after is None else after,
            target=record.target,
            revision=str(revision.revision),
        )
        return self.event(step, node=name)

    def wait_event(
        self, name: str, code: WaitCode | None = WaitCode.BUDGET, **overrides: Any
    ) -> Event:
        correct: dict[str, Any] = {
            "pool": POOL,
            "code": code,
            "detail": "1 of 1 unavailable: n1",
            "since": self.time,
            "who": "nobody has to",
        }
        return self.event(WaitEvent(**{**correct, **overrides}), node=name)

    def journal(
        self,
        *,
        max_unavailable: IntOrString = 1,
        failure_threshold: IntOrString = 1,
        pools: tuple[PoolFacts, ...] | None = None,
        **overrides: Any,
    ) -> AuditJournal:
        facts = PoolFacts(
            key=POOL, max_unavailable=max_unavailable, failure_threshold=failure_threshold,
            members=frozenset(self._uids()),
        )  # fmt: skip
        known: dict[str, Any] = {
            "revisions": tuple(self.revisions),
            "entries": tuple(self.entries),
            "events": tuple(self.events),
            "device_holds": tuple(self.device_holds),
        }
        return AuditJournal(pools=(facts,) if pools is None else pools, **{**known, **overrides})

    def _uids(self) -> Iterable[str]:
        return (revision.uid for revision in self.revisions if revision.kind == "Node")


def violations_of(journal: AuditJournal, *, faults: bool = False) -> list[tuple[str, str, int]]:
    """Return invariant, node and revision of each violation."""
    verdict = judge(journal, faults=faults)
    return [(found.invariant, found.node, found.revision) for found in verdict.violations]


def messages(journal: AuditJournal, invariant: str = "", *, faults: bool = False) -> list[str]:
    """Return the messages of the violations of one invariant or of all."""
    verdict = judge(journal, faults=faults)
    return [found.message for found in verdict.violations if invariant in ("", found.invariant)]


def state(value: str | None) -> Change:
    return labelled(STATE_LABEL, value)


def labelled(key: str, value: str | None) -> Change:
    return _put("labels", key, value)


def annotated(key: str, value: str | None) -> Change:
    return _put("annotations", key, value)


def leased(lease: NodeLease | None) -> Change:
    return annotated(LEASE_ANNOTATION, encode(lease).decode() if lease else None)


def _put(where: str, key: str, value: str | None) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        entries = manifest["metadata"].setdefault(where, {})
        entries.pop(key, None)
        if value is not None:
            entries[key] = str(value)

    return change


def cordoned(value: bool | None) -> Change:
    def change(node: dict[str, Any]) -> None:
        spec = node.setdefault("spec", {})
        spec.pop("unschedulable", None)
        if value:
            spec["unschedulable"] = True

    return change
