"""Examples of what is no message: what is on a Node, in a Rollout and in the journals."""

import msgspec

from libs.contracts.journal import Entry, EntryPhase, Revision, Verb
from libs.contracts.node import MANAGER, Lease, Operation, Owner, Record
from libs.contracts.reports import Outcome, Result
from libs.contracts.rollout import (
    Brake,
    Counts,
    InFlight,
    Phase,
    Release,
    RolloutSpec,
    RolloutStatus,
    TargetRecord,
)
from tests.contracts import story
from tests.contracts.example import Example
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

RECORD = Record(
    node_uid=story.NODE_UID,
    epoch=story.EPOCH,
    token=story.TOKEN,
    pool=story.POOL,
    operation=Operation.UPGRADE,
    target=story.TARGET,
    label=story.LABEL,
    label_before=story.LABEL_BEFORE,
    state="validation-required",
    started=True,
    old_pod_uid=story.OLD_POD,
    attempt=2,
    cause="retry",
    deadline=story.T0 + 600,
    deadline_renewed=True,
    paused=True,
    frozen_seconds=30.0,
    back_off_until=story.T0 + 1_200,
    back_off_seconds=1_200.0,
    edits=1,
    revalidated=f"{story.NEW_POD}/{story.T0 + 20}",
    restarts=(story.T0 - 60, story.T0 - 30),
    evidence=EVIDENCE,
    seen={"nodes": "884200", "rollout": "884190"},
)

GROWN = msgspec.structs.replace(RECORD, since=story.T0 + 21, boot_id=story.BOOT, outside=True)

ADOPTED = msgspec.structs.replace(RECORD, asked=True, cordon_adopted=True)

UNPROVEN = msgspec.structs.replace(RECORD, unproven=True)

EXAMPLES = {
    "node.record@unproven": Example(UNPROVEN),
    "node.record@outside": Example(GROWN),
    "node.record@adopted": Example(ADOPTED),
    "node.lease": Example(
        Lease(node_uid=story.NODE_UID, owner=Owner.UPGRADE, token=story.TOKEN, since=story.T0)
    ),
    "node.record": Example(RECORD),
    "rollout.spec": Example(
        RolloutSpec(brake=Brake.PAUSE, release=Release(target=story.TARGET, failures=2))
    ),
    "rollout.status": Example(
        RolloutStatus(
            target=story.TARGET,
            phase=Phase.HALTED,
            because="1 of 1 failures: gpu-1.rack-7.example (busy)",
            epoch=story.EPOCH,
            base=20,
            last_good="t-11aa22bb",
            frozen_since=story.T0 + 700,
            frozen_seconds=30.0,
            in_flight={
                story.NODE_UID: InFlight(
                    node=story.NODE, token=story.TOKEN, target=story.TARGET, since=story.T0
                )
            },
            targets={
                story.TARGET: TargetRecord(
                    threshold=1,
                    accepted=1,
                    failed=(story.NODE_UID,),
                    halted_because="2 of 2 failures",
                ),
                "t-11aa22bb": TargetRecord(threshold=1, validated=(story.NODE_UID,), proven=True),
            },
            counts=COUNTS,
            observed_generation=9,
        )
    ),
    "rollout.status@outside": Example(
        RolloutStatus(
            target=story.TARGET,
            in_flight={
                story.NODE_UID: InFlight(
                    node=story.NODE,
                    token=story.TOKEN,
                    target=story.TARGET,
                    since=story.T0,
                    outside=True,
                )
            },
        )
    ),
    "rollout.status@complete": Example(
        RolloutStatus(
            target=story.TARGET,
            phase=Phase.COMPLETE,
            last_good=story.TARGET,
            in_flight={
                story.NODE_UID: InFlight(
                    node=story.NODE,
                    token=story.TOKEN,
                    target=story.TARGET,
                    since=story.T0,
                    outside=True,
                    validates=True,
                )
            },
            targets={
                story.TARGET: TargetRecord(
                    threshold=1,
                    validated=(story.NODE_UID,),
                    proven=True,
                    proven_at=story.T0 + 60,
                    complete=True,
                )
            },
        )
    ),
    "journal.revision": Example(
        Revision(
            revision=884_213,
            time=story.T0,
            user="system:serviceaccount:sluice:sluice-scheduler",
            manager=MANAGER,
            verb=Verb.APPLY,
            code=200,
            kind="Node",
            name=story.NODE,
            uid=story.NODE_UID,
            changed={
                "spec.unschedulable": (None, True),
                "metadata.labels.sluice.dev/driver": (story.LABEL_BEFORE, story.LABEL),
            },
        )
    ),
    "journal.revision@refused": Example(
        Revision(
            revision=884_213,
            time=story.T0 + 1,
            user="system:serviceaccount:sluice:sluice-scheduler",
            verb=Verb.EVICT,
            code=429,
            kind="Pod",
            namespace="ml",
            name="trainer-0",
            uid=story.JOB_POD,
        )
    ),
    "journal.entry": Example(
        Entry(
            node=story.NODE,
            node_uid=story.NODE_UID,
            boot_id=story.BOOT,
            component="driver",
            epoch=story.EPOCH,
            token=story.TOKEN,
            op=story.OP,
            command="swap",
            phase=EntryPhase.FINISHED,
            time=story.T0 + 130,
            detail="unload: EBUSY",
            result=Result(
                epoch=story.EPOCH,
                token=story.TOKEN,
                op=story.OP,
                command="swap",
                outcome=Outcome.FAILED,
                code="busy",
                started=story.T0 + 10,
                finished=story.T0 + 130,
            ),
        )
    ),
}
