"""Builds journals for tests from a story: steps that write to a small cluster.

A story is text, each step the name of a method with its arguments: `lease n1; start n1; !fail n1`.
The node is `n1` unless a step names one. `!` plants a violation: the write of that step, once for
each `!`. The steps are those of docs/states.md#upgrade; a test changes or omits one of them.
"""

import copy
from ast import literal_eval
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self

import pytest
from msgspec.structs import replace

from libs.audit import AuditJournal, DeviceHold, LostJournal, PoolFacts, judge
from libs.contracts.events import Event, EventBody, StepEvent, WaitEvent
from libs.contracts.journal import Entry, EntryPhase, Revision, Verb
from libs.contracts.message import encode
from libs.contracts.node import (
    DRIVER_LABEL,
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    MANAGER,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    STATE_LABEL,
    LeaseOwner,
    NodeLease,
    NodeRecord,
    Operation,
    UpgradeState,
)
from libs.contracts.reports import Evidence, Outcome, Result
from libs.contracts.waits import WaitCode
from libs.kube.changes import Changes, changed_paths
from libs.policy.shapes import IntOrString

POOL = "clusterpolicy-main"
TARGET = "t2"
LABEL = "main-t2-ubuntu"
OLD_LABEL = "main-t1-ubuntu"
FLEET = tuple(f"n{number}" for number in range(10))

Change = Callable[[dict[str, Any]], None]


def cases(names: str, **table: Any) -> pytest.MarkDecorator:
    """Parametrize a test by the rows of a table, whose names become the ids."""
    rows = (
        pytest.param(*(row if isinstance(row, tuple) else (row,)), id=name.replace("_", " "))
        for name, row in table.items()
    )
    return pytest.mark.parametrize(names.split(), list(rows))


class JournalBuilder:
    """Each write is one revision; only `advance` moves the time."""

    def __init__(self, *nodes: str, time: float = 1_000_000.0) -> None:
        self.time = time
        self.revision = 100
        self.revisions: list[Revision] = []
        self.entries: list[Entry] = []
        self.events: list[Event] = []
        self.device_holds: list[DeviceHold] = []
        self.lost_journals: list[LostJournal] = []
        self.epoch = 1
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.records: dict[str, NodeRecord] = {}
        self.planted: list[int] = []
        """The revisions that violate an invariant."""
        self._saved_evidence: Evidence | None = None
        self._snapshot = 0
        self._start: tuple[dict[str, Any], ...] = ()
        self._first = 0
        for name in nodes:
            self.node(name)

    def play(self, story: str, /, **values: object) -> Self:
        """Play a story; an argument `$name` is one of the values."""
        for step in filter(None, map(str.strip, story.split(";"))):
            method, *words = step.lstrip("!").split()
            options = dict(word.split("=", 1) for word in words if "=" in word)
            arguments = [_value(word, values) for word in words if "=" not in word]
            keywords = {name: _value(word, values) for name, word in options.items()}
            getattr(self, method)(*arguments, **keywords)
            self.planted += [self.revisions[-1].revision] * step.count("!")
        return self

    def advance(self, seconds: float) -> None:
        self.time += seconds

    def snapshot(self) -> None:
        """Keep the present revision for a later decision."""
        self._snapshot = self.revision

    def begin(self) -> None:
        """Begin the journal with the present objects."""
        self._start = self.present_objects()
        self._first = len(self.revisions)

    def present_objects(self) -> tuple[dict[str, Any], ...]:
        return tuple(
            {"kind": kind, **copy.deepcopy(manifest)}
            for (kind, _), manifest in self.objects.items()
        )

    def write(
        self,
        kind: str,
        name: str,
        change: Change | None,
        *,
        manager: str = "kubectl",
        verb: Verb = Verb.PATCH,
        namespace: str = "",
        code: int = 200,
        shows: bool = True,
    ) -> Revision:
        """Change an object, or delete it (`change` is None); codes from 300 on refuse the write."""
        before, granted = self.objects.get((kind, name)), code < 300
        after = copy.deepcopy(before)
        if change is None:
            after = None
        elif granted:
            after = after or {"metadata": {"name": name, "uid": f"uid-{name}"}}
            change(after)
        if granted:
            self.revision += 1
            self.objects.pop((kind, name), None)
            if after is not None:
                self.objects[kind, name] = after
        present = after or before or {"metadata": {}}
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
            uid=present["metadata"].get("uid", ""),
            changed=changed_paths(before, after) if granted else {},
        )
        self.revisions.append(revision)
        return revision

    def edit_last(self, **fields: Any) -> None:
        """Change fields of the last revision in the journal only."""
        self.revisions[-1] = replace(self.revisions[-1], **fields)

    # Writes by other managers.

    def node(
        self,
        name: str = "n1",
        *,
        uid: str = "",
        labels: dict[str, str] | None = None,
        driver: str = OLD_LABEL,
    ) -> None:
        """Register a node that is ready."""
        all_labels = {"nvidia.com/gpu.present": "true", DRIVER_LABEL: driver, **(labels or {})}

        def create(node: dict[str, Any]) -> None:
            node["metadata"]["uid"] = uid or f"uid-{name}"
            node["metadata"]["labels"] = {key: value for key, value in all_labels.items() if value}
            node["status"] = {
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"bootID": f"boot-{name}", "kernelVersion": "6.8.0"},
            }

        self.records.pop(name, None)
        self.write("Node", name, create, manager="kubelet", verb=Verb.CREATE, code=201)

    def ready(self, name: str = "n1", status: object = "True") -> None:
        def change(node: dict[str, Any]) -> None:
            node["status"]["conditions"][0]["status"] = str(status)

        self.write("Node", name, change, manager="kubelet")

    def reboot(self, name: str = "n1", boot: str = "second") -> None:
        def change(node: dict[str, Any]) -> None:
            node["status"]["nodeInfo"]["bootID"] = boot

        self.write("Node", name, change, manager="kubelet")

    def cordon(self, name: str = "n1", *, by: str = "kubectl") -> None:
        self.write("Node", name, cordoned(True), manager=by)

    def uncordon(self, name: str = "n1") -> None:
        self.write("Node", name, cordoned(False))

    def label(self, name: str, key: str, value: str | None, *, by: str = "kubectl") -> Revision:
        return self.write("Node", name, labelled(key, value), manager=by)

    def label_state(self, value: str | None, name: str = "n1", *, by: str = "kubectl") -> None:
        self.label(name, STATE_LABEL, value, by=by)

    def label_driver(self, value: str | None, name: str = "n1") -> None:
        self.label(name, DRIVER_LABEL, value)

    def annotate(self, name: str, key: str, value: str | None, *, by: str = "kubectl") -> None:
        self.write("Node", name, annotated(key, value), manager=by)

    def ask(self, request: str, name: str = "n1") -> None:
        """Write a request for Sluice."""
        self.annotate(name, REQUEST_ANNOTATION, request)

    def lose_record(self, name: str = "n1", value: str | None = "garbled") -> None:
        self.annotate(name, RECORD_ANNOTATION, value)

    def lose_lease(self, name: str = "n1", *, by: str = "kubectl") -> None:
        self.annotate(name, LEASE_ANNOTATION, None, by=by)

    def give_lease(self, name: str = "n1", *, token: int, owner: str = "upgrade") -> None:
        """Write a lease as a person."""
        lease = encode(self.lease_of(name, token, LeaseOwner(owner))).decode()
        self.annotate(name, LEASE_ANNOTATION, lease)

    def claim(self, name: str = "n1") -> None:
        """Claim the lease as a person."""
        claim = encode(self.lease_of(name, 1, LeaseOwner.HUMAN)).decode()
        self.annotate(name, LEASE_CLAIM_ANNOTATION, claim)

    def drop_claim(self, name: str = "n1", *, by: str = "kubectl") -> None:
        self.annotate(name, LEASE_CLAIM_ANNOTATION, None, by=by)

    def delete(self, kind: str, name: str = "n1", *, by: str = "kubectl") -> Revision:
        return self.write(kind, name, None, manager=by, verb=Verb.DELETE, shows=False)

    def pod(self, name: str, *, namespace: str = "gpu") -> None:
        self.write(
            "Pod", name, lambda _: None, manager="kube-controller-manager", verb=Verb.CREATE,
            code=201, namespace=namespace,
        )  # fmt: skip

    def driver_pod(
        self,
        node: str = "n1",
        *,
        uid: str = "pod-n1-new",
        label: str | None = None,
        ago: float | None = 30,
        ready: object = True,
        terminating: object = False,
        on: str = "",
    ) -> None:
        """Show a driver pod on a node, whose container began that many seconds ago."""
        running = {} if ago is None else {"running": {"startedAt": _timestamp(self.time - ago)}}
        metadata: dict[str, Any] = {"name": uid, "uid": uid}
        metadata["labels"] = {DRIVER_LABEL: self.label_of(node) if label is None else label}
        if terminating:
            metadata["deletionGracePeriodSeconds"] = 30
        pod = {
            "metadata": metadata,
            "spec": {"nodeName": on or node},
            "status": {
                "conditions": [{"type": "Ready", "status": str(ready)}],
                "containerStatuses": [{"name": "nvidia-driver-ctr", "state": running}],
            },
        }
        before = self.objects.get(("Pod", uid))
        if changed := changed_paths(before, pod):
            self.objects["Pod", uid] = pod
            self._unnumbered("Pod", uid, changed, manager="kubelet", verb=Verb.PATCH, uid=uid)

    def rollout(self, change: Change, *, pool: str = POOL, by: str = MANAGER) -> Revision:
        verb = Verb.UPDATE if ("Rollout", pool) in self.objects else Verb.CREATE
        return self.write("Rollout", pool, change, manager=by, verb=verb)

    def base(self, nodes: int) -> None:
        """Show the base in the status of the Rollout."""
        self.rollout(shown(base=nodes))

    def targets(self, *, threshold: int = 2, **failed: list[str]) -> None:
        """Show targets with the names of their failed nodes in the status of the Rollout."""
        status = {
            target: {"threshold": threshold, "failed": [f"uid-{name}" for name in names]}
            for target, names in failed.items()
        }
        self.rollout(shown(base=10, targets=status))

    def accept(self, failures: int, *, target: str = TARGET, pool: str = POOL) -> None:
        """Accept that many failures of a target as a person."""
        release = {"target": target, "failures": failures}
        self.rollout(
            lambda rollout: rollout.update(spec={"release": release}), pool=pool, by="kubectl"
        )

    def grant(
        self,
        name: str = "n1",
        *,
        token: int | None = None,
        target: str = TARGET,
        pool: str = POOL,
        code: int = 200,
    ) -> None:
        """Step 2: add an entry in flight to the Rollout, without a revision number of its own."""
        token = self._record(name).token + 1 if token is None else token
        self._write_in_flight(pool, self.uid(name), {"token": token, "target": target}, code)

    def withdraw(self, name: str = "n1") -> None:
        """Remove the entry in flight from the Rollout."""
        self._write_in_flight(POOL, self.uid(name), None)

    def _write_in_flight(
        self, pool: str, uid: str, entry: dict[str, Any] | None, code: int = 200
    ) -> None:
        before = self.objects.get(("Rollout", pool))
        after: dict[str, Any] = copy.deepcopy(
            before or {"metadata": {"name": pool, "uid": f"uid-{pool}"}}
        )
        in_flight = after.setdefault("status", {}).setdefault("inFlight", {})
        in_flight.pop(uid, None)
        if entry is not None:
            in_flight[uid] = entry
        if code < 300:
            self.objects["Rollout", pool] = after
        changed = changed_paths(before, after) if code < 300 else {}
        self._unnumbered("Rollout", pool, changed, manager=MANAGER, verb=Verb.UPDATE, code=code)

    def _unnumbered(self, kind: str, name: str, changed: Changes, **fields: Any) -> None:
        """Add a write without a revision number: the numbers of a story stay as they are."""
        blank = Revision(
            revision=0, time=self.time, user=fields["manager"], verb=fields["verb"], code=200,
            kind=kind, name=name, changed=changed,
        )  # fmt: skip
        self.revisions.append(replace(blank, **fields))

    # Writes by Sluice, each with the whole record.

    def apply(
        self,
        name: str,
        *changes: Change,
        record: NodeRecord | None = None,
        verb: Verb = Verb.APPLY,
        code: int = 200,
    ) -> Revision:
        if record is not None:
            self.records[name] = record
            changes = (*changes, annotated(RECORD_ANNOTATION, encode(record).decode()))

        def change(node: dict[str, Any]) -> None:
            for apply_change in changes:
                apply_change(node)

        return self.write("Node", name, change, manager=MANAGER, verb=verb, code=code)

    def rewrite(
        self,
        name: str = "n1",
        *,
        cordon: bool | None = None,
        state: str | None = "",
        driver: str | None = "",
        lease: int = -1,
        clears: bool = False,
        drops_record: bool = False,
        **fields: Any,
    ) -> None:
        """Apply these values, with the record as it is except for `fields`.

        `state` is the label alone. `lease` is a token; 0 drops the lease. `clears` clears the
        request.
        """
        changes: list[Change] = []
        if cordon is not None:
            changes.append(cordoned(cordon))
        if state != "":
            changes.append(labelled(STATE_LABEL, state))
        if driver != "":
            changes.append(labelled(DRIVER_LABEL, driver))
        if lease >= 0:
            changes.append(leased(self.lease_of(name, lease) if lease else None))
        if clears:
            changes.append(annotated(REQUEST_ANNOTATION, ""))
        if drops_record:
            changes.append(annotated(RECORD_ANNOTATION, None))
        record = self.records.get(name)
        self.apply(name, *changes, record=record and replace(record, **fields))

    def drop_record(self, name: str = "n1", **options: Any) -> None:
        """Apply without a record, and with the options of `rewrite`."""
        del self.records[name]
        self.rewrite(name, drops_record=True, **options)

    def _apply_state(
        self, name: str, state: UpgradeState, *changes: Change, **fields: Any
    ) -> Revision:
        record = replace(self._record(name), state=state.value, **fields)
        return self.apply(name, labelled(STATE_LABEL, state), *changes, record=record)

    def require(self, name: str = "n1", **fields: Any) -> Revision:
        """Step 1: mark the node `upgrade-required`."""
        return self._apply_state(name, UpgradeState.UPGRADE_REQUIRED, **fields)

    def lease(
        self,
        name: str = "n1",
        *,
        token: int | None = None,
        operation: str = "upgrade",
        target: str = TARGET,
        label: str = LABEL,
        cordon: bool = True,
        seen: str | dict[str, str] = "",
        granted: bool = True,
        **fields: Any,
    ) -> Revision:
        """Steps 2 and 3: grant and take the lease; with `started`, step 6 too.

        The decision has `seen` everything, or the Nodes up to the `snapshot`.
        """
        nodes = self._snapshot if seen == "snapshot" else self.revision
        token = self._record(name).token + 1 if token is None else token
        if granted:
            self.grant(name, token=token, target=target, pool=fields.get("pool", POOL))
        needs_cordon = operation not in (Operation.BRING_UP, Operation.VALIDATE)
        changes = [cordoned(True)] if cordon and needs_cordon else []
        return self._apply_state(
            name,
            UpgradeState.POD_DELETION_REQUIRED,
            leased(self.lease_of(name, token)),
            *changes,
            epoch=self.epoch,
            token=token,
            operation=Operation(operation),
            target=target,
            label=label,
            label_before=self.label_of(name),
            seen=seen if isinstance(seen, dict) else {"nodes": str(nodes)},
            **{"pool": POOL, "started": False, **fields},
        )

    def start(self, name: str = "n1", *, restart: bool = False) -> Revision:
        """Step 6: move the driver label."""
        label_change = [] if restart else [labelled(DRIVER_LABEL, self.records[name].label or None)]
        return self._apply_state(
            name, UpgradeState.POD_RESTART_REQUIRED, *label_change, started=True, evidence=None,
            old_pod_uid=f"pod-{name}-old",
        )  # fmt: skip

    def begin_upgrade(self, name: str = "n1", **options: Any) -> None:
        """Steps 3 and 6."""
        self.lease(name, **options)
        self.start(name)

    def validate(self, name: str = "n1") -> Revision:
        """Step 8: ask for the validation."""
        return self._apply_state(name, UpgradeState.VALIDATION_REQUIRED, paused=False)

    def prove(self, name: str = "n1") -> None:
        """Step 8, with the entries of the validator."""
        self.validate(name)
        self.op("validator", "validate", name=name)

    def save_evidence(self, name: str = "n1", **overrides: Any) -> None:
        self._saved_evidence = self.evidence(name, **overrides)

    def finish(
        self,
        name: str = "n1",
        *,
        cordon: bool = False,
        saved: bool = False,
        decided: float = 0,
        divided: str = "",
        not_divided: str = "",
        **overrides: Any,
    ) -> Revision:
        """Step 9: return the node on correct evidence, on altered evidence or on the saved one.

        It was `decided` so many seconds before. `divided` is the digest of the geometry that was
        asked, `not_divided` why it is not there.
        """
        evidence = self._saved_evidence if saved else self.evidence(name, **overrides)
        record = self.records[name]
        self.records[name] = NodeRecord(
            node_uid=record.node_uid, epoch=record.epoch, token=record.token, pool=record.pool,
            target=record.target, label=record.label, since=self.time - decided, seen=record.seen,
            evidence=evidence, mig_digest=divided, mig_failed=not_divided,
        )  # fmt: skip
        return self._apply_state(name, UpgradeState.UPGRADE_DONE, leased(None), cordoned(cordon))

    def fail(self, name: str = "n1", *, cordon: bool | None = None, **fields: Any) -> None:
        changes = [] if cordon is None else [cordoned(cordon)]
        fields = {"cause": "driver-start", "paused": False, **fields}
        self._apply_state(name, UpgradeState.UPGRADE_FAILED, leased(None), *changes, **fields)

    def release(self, name: str = "n1", *, cordon: bool = False, clears: bool = False) -> None:
        """Release the node without a result."""
        changes = [annotated(REQUEST_ANNOTATION, None)] if clears else []
        self._apply_state(
            name, UpgradeState.UPGRADE_REQUIRED, leased(None), cordoned(cordon), *changes,
            operation=None,
        )  # fmt: skip

    def upgrade(self, name: str = "n1") -> None:
        """Run a whole upgrade, with the entries of the agents and the events of the steps."""
        self.step_event(name, self.require(name))
        self.advance(1)
        self.step_event(name, self.lease(name))
        self.op("plugin", "quiesce", name=name)
        self.advance(20)
        self.step_event(name, self.start(name))
        self.op("driver", "swap", "unload:ok", "gate:open", name=name)
        self.advance(60)
        self.step_event(name, self.validate(name))
        self.op("validator", "validate", name=name)
        self.step_event(name, self.finish(name))
        self.op("driver", "idle", op=2, name=name)
        self.advance(1)

    def pass_upgrade(self, name: str = "n1", **options: Any) -> None:
        """Run an upgrade from the lease to the end."""
        self.begin_upgrade(name, **options)
        self.advance(10)
        self.prove(name)
        self.finish(name)

    def fail_upgrade(self, name: str = "n1", **options: Any) -> None:
        self.begin_upgrade(name, **options)
        self.advance(10)
        self.fail(name)

    def churn(self, times: int, *, by: str = MANAGER) -> None:
        """Write a field of Sluice a number of times, slowly."""
        verb = Verb.APPLY if by == MANAGER else Verb.PATCH
        for number in range(times):
            self.advance(2)
            change = labelled("sluice.dev/churn", str(number))
            self.write("Node", "n1", change, manager=by, verb=verb)

    # What the present objects show.

    def _record(self, name: str) -> NodeRecord:
        record = self.records.get(name)
        return record or NodeRecord(node_uid=self.uid(name), epoch=self.epoch, token=0)

    def uid(self, name: str) -> str:
        return self.objects["Node", name]["metadata"]["uid"]

    def boot(self, name: str) -> str:
        return self.objects["Node", name]["status"]["nodeInfo"]["bootID"]

    def label_of(self, name: str) -> str:
        return self.objects["Node", name]["metadata"]["labels"].get(DRIVER_LABEL, "")

    def lease_of(self, name: str, token: int, owner: LeaseOwner = LeaseOwner.UPGRADE) -> NodeLease:
        return NodeLease(node_uid=self.uid(name), owner=owner, token=token, since=self.time)

    def evidence(self, name: str, **overrides: Any) -> Evidence:
        """Return correct evidence, except for the overrides; its driver pod began 30 s ago."""
        record, uid = self.records[name], f"pod-{name}-new"
        self.driver_pod(name, uid=uid)
        correct: dict[str, Any] = {
            "epoch": record.epoch,
            "token": record.token,
            "op": 1,
            "passed": True,
            "label": self.label_of(name),
            "node_uid": self.uid(name),
            "boot_id": self.boot(name),
            "kernel": "6.8.0",
            "driver_pod_uid": uid,
            "driver_started": self.time - 30,
            "at": self.time,
        }
        return Evidence(**{**correct, **overrides})

    # The journals of the agents, and the events.

    def entry(
        self,
        phase: str,
        component: str = "driver",
        command: str = "swap",
        *,
        name: str = "n1",
        op: int = 1,
        token: int | None = None,
        epoch: int | None = None,
        detail: str = "",
        outcome: str = "",
    ) -> None:
        token = self.records[name].token if token is None else token
        epoch = self.epoch if epoch is None else epoch
        result = None
        if outcome:
            result = Result(
                epoch=epoch, token=token, op=op, command=command, outcome=Outcome(outcome)
            )
        self.entries.append(
            Entry(
                node=name,
                node_uid=self.uid(name),
                boot_id=self.boot(name),
                component=component,
                epoch=epoch,
                token=token,
                op=op,
                command=command,
                phase=EntryPhase(phase),
                time=self.time,
                detail=detail.replace(":", ": ").replace("_", " "),
                result=result,
            )
        )

    def op(
        self,
        component: str,
        command: str,
        *steps: str,
        name: str = "n1",
        op: int = 1,
        outcome: str = "done",
        token: int | None = None,
    ) -> None:
        """Add the entries of a finished op, whose steps take a second each."""
        options: dict[str, Any] = {"name": name, "op": op, "token": token}
        self.entry("started", component, command, **options)
        for step in steps:
            self.advance(1)
            self.entry("step", component, command, detail=step, **options)
        self.entry("finished", component, command, outcome=outcome, **options)

    def started(self, component: str = "driver", command: str = "swap", **options: Any) -> None:
        self.entry("started", component, command, **options)

    def finished(self, component: str = "driver", command: str = "swap", **options: Any) -> None:
        self.entry("finished", component, command, outcome="done", **options)

    def forget_entries(self) -> None:
        self.entries.clear()

    def lose_journal(self, component: str = "driver", *, name: str = "n1", ago: float = 0) -> None:
        loss = LostJournal(node_uid=f"uid-{name}", component=component, time=self.time - ago)
        self.lost_journals.append(loss)

    def hold_device(
        self, since: float = -10, until: float | None = None, *, node: str = "n1", holder: str = ""
    ) -> None:
        """Hold the device of a node from and until these seconds from now."""
        ended = None if until is None else self.time + until
        hold = DeviceHold(
            node_uid=f"uid-{node}", since=self.time + since, until=ended, holder=holder
        )
        self.device_holds.append(hold)

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

    def step_event(self, name: str, revision: Revision, *, after: str | None = None) -> None:
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
        self.event(step, node=name)

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

    def facts(self, **overrides: Any) -> PoolFacts:
        nodes = frozenset(item.uid for item in self.revisions if item.kind == "Node")
        correct: dict[str, Any] = {
            "key": POOL, "max_unavailable": 1, "failure_threshold": 100, "members": nodes,
        }  # fmt: skip
        return PoolFacts(**{**correct, **overrides})

    def journal(
        self,
        *,
        max_unavailable: IntOrString = 1,
        failure_threshold: IntOrString = 1,
        pools: tuple[PoolFacts, ...] | None = None,
        **overrides: Any,
    ) -> AuditJournal:
        facts = self.facts(max_unavailable=max_unavailable, failure_threshold=failure_threshold)
        sources: dict[str, Any] = {
            "revisions": tuple(self.revisions[self._first :]),
            "start": self._start,
            "entries": tuple(self.entries),
            "events": tuple(self.events),
            "device_holds": tuple(self.device_holds),
            "lost_journals": tuple(self.lost_journals),
        }
        return AuditJournal(pools=(facts,) if pools is None else pools, **{**sources, **overrides})


def _timestamp(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat()


def _value(word: str, values: dict[str, object]) -> Any:
    text = word.partition("=")[2] if "=" in word else word
    if text.startswith("$"):
        return values[text[1:]]
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def violations_of(journal: AuditJournal, *, faults: bool = False) -> list[tuple[str, str, int]]:
    """Return invariant, node and revision of each violation."""
    result = judge(journal, faults=faults)
    return [
        (violation.invariant, violation.node, violation.revision) for violation in result.violations
    ]


def revisions_of(journal: AuditJournal, invariant: str, *, faults: bool = False) -> list[int]:
    """Return the revision of each violation of an invariant."""
    found = violations_of(journal, faults=faults)
    return [revision for violated, _, revision in found if violated == invariant]


def messages(journal: AuditJournal, invariant: str = "", *, faults: bool = False) -> list[str]:
    """Return the messages of the violations of one invariant or of all."""
    result = judge(journal, faults=faults)
    return [
        violation.message
        for violation in result.violations
        if invariant in ("", violation.invariant)
    ]


def labelled(key: str, value: str | None) -> Change:
    return _put("labels", key, value)


def annotated(key: str, value: str | None) -> Change:
    return _put("annotations", key, value)


def leased(lease: NodeLease | None) -> Change:
    return annotated(LEASE_ANNOTATION, encode(lease).decode() if lease else None)


def _put(section: str, key: str, value: str | None) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        entries = manifest["metadata"].setdefault(section, {})
        entries.pop(key, None)
        if value is not None:
            entries[key] = str(value)

    return change


def shown(**status: Any) -> Change:
    """Show these fields in the status."""
    return lambda manifest: manifest.setdefault("status", {}).update(status)


def cordoned(value: bool) -> Change:
    def change(node: dict[str, Any]) -> None:
        spec = node.setdefault("spec", {})
        spec.pop("unschedulable", None)
        if value:
            spec["unschedulable"] = True

    return change
