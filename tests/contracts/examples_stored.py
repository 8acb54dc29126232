"""Examples of stored records: on Nodes, in Rollouts and in journals."""

import msgspec

from libs.contracts.journal import Entry, EntryPhase, Revision, Verb
from libs.contracts.node import MANAGER, LeaseOwner, NodeLease, NodeRecord, Operation
from libs.contracts.reports import Outcome, Result
from libs.contracts.rollout import (
    Brake,
    Counts,
    InFlight,
    Release,
    RolloutPhase,
    RolloutSpec,
    RolloutStatus,
    TargetRecord,
)
from tests.contracts import examples
from tests.contracts.examples import Example
from tests.contracts.examples_reports import EVIDENCE

COUNTS = Counts(
    total=20,
    done=4,
    in_flight=1,
    failed=1,
    skipped=1,
    excluded=1,
    waiting=12,
    unavailable=2,
    limit=3,
)

RECORD = NodeRecord(
    node_uid=examples.NODE_UID,
    epoch=examples.EPOCH,
    token=examples.TOKEN,
    pool=examples.POOL,
    operation=Operation.UPGRADE,
    target=examples.TARGET,
    label=examples.LABEL,
    label_before=examples.LABEL_BEFORE,
    state="validation-required",
    started=True,
    old_pod_uid=examples.OLD_POD,
    attempt=2,
    cause="retry",
    deadline=examples.T0 + 600,
    deadline_renewed=True,
    paused=True,
    frozen_seconds=30.0,
    back_off_until=examples.T0 + 1_200,
    back_off_seconds=1_200.0,
    edits=1,
    revalidated=f"{examples.NEW_POD}/{examples.T0 + 20}",
    restarts=(examples.T0 - 60, examples.T0 - 30),
    evidence=EVIDENCE,
    seen={"nodes": "884200", "rollout": "884190"},
)

GROWN = msgspec.structs.replace(RECORD, since=examples.T0 + 21, boot_id=examples.BOOT, outside=True)

ADOPTED = msgspec.structs.replace(RECORD, asked=True, cordon_adopted=True)

UNPROVEN = msgspec.structs.replace(RECORD, unproven=True)

EXAMPLES = {
    "node.record@unproven": Example(UNPROVEN),
    "node.record@outside": Example(GROWN),
    "node.record@adopted": Example(ADOPTED),
    "node.lease": Example(
        NodeLease(
            node_uid=examples.NODE_UID,
            owner=LeaseOwner.UPGRADE,
            token=examples.TOKEN,
            since=examples.T0,
        )
    ),
    "node.record": Example(RECORD),
    "rollout.spec": Example(
        RolloutSpec(brake=Brake.PAUSE, release=Release(target=examples.TARGET, failures=2))
    ),
    "rollout.status": Example(
        RolloutStatus(
            target=examples.TARGET,
            phase=RolloutPhase.HALTED,
            because="1 of 1 failures: gpu-1.rack-7.example (busy)",
            epoch=examples.EPOCH,
            base=20,
            last_good="t-11aa22bb",
            frozen_since=examples.T0 + 700,
            frozen_seconds=30.0,
            in_flight={
                examples.NODE_UID: InFlight(
                    node=examples.NODE,
                    token=examples.TOKEN,
                    target=examples.TARGET,
                    since=examples.T0,
                )
            },
            targets={
                examples.TARGET: TargetRecord(
                    threshold=1,
                    accepted=1,
                    failed=(examples.NODE_UID,),
                    halted_because="2 of 2 failures",
                ),
                "t-11aa22bb": TargetRecord(
                    threshold=1, validated=(examples.NODE_UID,), proven=True
                ),
            },
            counts=COUNTS,
            observed_generation=9,
        )
    ),
    "rollout.status@outside": Example(
        RolloutStatus(
            target=examples.TARGET,
            in_flight={
                examples.NODE_UID: InFlight(
                    node=examples.NODE,
                    token=examples.TOKEN,
                    target=examples.TARGET,
                    since=examples.T0,
                    outside=True,
                )
            },
        )
    ),
    "rollout.status@complete": Example(
        RolloutStatus(
            target=examples.TARGET,
            phase=RolloutPhase.COMPLETE,
            last_good=examples.TARGET,
            in_flight={
                examples.NODE_UID: InFlight(
                    node=examples.NODE,
                    token=examples.TOKEN,
                    target=examples.TARGET,
                    since=examples.T0,
                    outside=True,
                    validates=True,
                )
            },
            targets={
                examples.TARGET: TargetRecord(
                    threshold=1,
                    validated=(examples.NODE_UID,),
                    proven=True,
                    proven_at=examples.T0 + 60,
                    complete=True,
                )
            },
        )
    ),
    "journal.revision": Example(
        Revision(
            revision=884_213,
            time=examples.T0,
            user="system:serviceaccount:sluice:sluice-scheduler",
            manager=MANAGER,
            verb=Verb.APPLY,
            code=200,
            kind="Node",
            name=examples.NODE,
            uid=examples.NODE_UID,
            changed={
                "spec.unschedulable": (None, True),
                "metadata.labels.sluice.dev/driver": (examples.LABEL_BEFORE, examples.LABEL),
            },
        )
    ),
    "journal.revision@refused": Example(
        Revision(
            revision=884_213,
            time=examples.T0 + 1,
            user="system:serviceaccount:sluice:sluice-scheduler",
            verb=Verb.EVICT,
            code=429,
            kind="Pod",
            namespace="ml",
            name="trainer-0",
            uid=examples.JOB_POD,
        )
    ),
    "journal.entry": Example(
        Entry(
            node=examples.NODE,
            node_uid=examples.NODE_UID,
            boot_id=examples.BOOT,
            component="driver",
            epoch=examples.EPOCH,
            token=examples.TOKEN,
            op=examples.OP,
            command="swap",
            phase=EntryPhase.FINISHED,
            time=examples.T0 + 130,
            detail="unload: EBUSY",
            result=Result(
                epoch=examples.EPOCH,
                token=examples.TOKEN,
                op=examples.OP,
                command="swap",
                outcome=Outcome.FAILED,
                code="busy",
                started=examples.T0 + 10,
                finished=examples.T0 + 130,
            ),
        )
    ),
}
