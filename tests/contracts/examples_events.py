"""Examples of events."""

from libs.contracts.events import (
    CommandTaken,
    Edit,
    Event,
    EventBody,
    Eviction,
    EvidenceFound,
    FactsChanged,
    Grant,
    Health,
    Leader,
    Operand,
    RolloutChange,
    Step,
    Wait,
)
from libs.contracts.waits import WaitCode
from tests.contracts import story
from tests.contracts.example import Example


def _event(writer: str, message: str, body: EventBody, *, of_node: bool = True) -> Example:
    event = Event.of(
        body,
        id="e-0c41d2",
        at=story.T0 + 15,
        writer=writer,
        message=message,
        node=story.NODE if of_node else "",
        node_uid=story.NODE_UID if of_node else "",
    )
    return Example(event, body)


EXAMPLES = {
    "event.step": _event(
        "scheduler",
        "its driver label moved",
        Step(
            pool=story.POOL,
            token=story.TOKEN,
            before="pod-deletion-required",
            after="pod-restart-required",
            target=story.TARGET,
            cause="target",
            revision="884213",
        ),
    ),
    "event.wait": _event(
        "scheduler",
        "a pod disruption budget allows no eviction",
        Wait(
            pool=story.POOL,
            code=WaitCode.PDB,
            detail="ml/trainer allows 0 disruptions",
            since=story.T0,
            until=story.T0 + 300,
            who="who owns ml/trainer",
        ),
    ),
    "event.wait@over": _event("scheduler", "it waits no more", Wait(pool=story.POOL)),
    "event.grant": _event(
        "scheduler",
        "2 nodes may start",
        Grant(
            pool=story.POOL,
            target=story.TARGET,
            epoch=story.EPOCH,
            nodes=(story.NODE, "gpu-2.rack-7.example"),
            limit=3,
            unavailable=1,
        ),
        of_node=False,
    ),
    "event.rollout": _event(
        "scheduler",
        "the rollout halted",
        RolloutChange(
            pool=story.POOL,
            target=story.TARGET,
            before="Proving",
            after="Halted",
            because="1 of 1 failures: gpu-1.rack-7.example (busy)",
            failed=1,
            done=4,
            total=20,
        ),
        of_node=False,
    ),
    "event.eviction": _event(
        "scheduler",
        "ml/trainer-0 was asked to leave",
        Eviction(
            namespace="ml",
            pod="trainer-0",
            pod_uid=story.JOB_POD,
            answer="429",
            detail="it would violate the pod's disruption budget",
        ),
    ),
    "event.edit": _event(
        "scheduler",
        "kubectl-edit removed the driver label; it was stamped again",
        Edit(
            field="metadata.labels.sluice.dev/driver",
            manager="kubectl-edit",
            before=story.LABEL,
            after="removed",
            done="stamped again",
        ),
    ),
    "event.leader": _event(
        "scheduler",
        "sluice-scheduler-0 leads",
        Leader(holder="sluice-scheduler-0", epoch=story.EPOCH),
        of_node=False,
    ),
    "event.command": _event(
        "driver",
        "swap ended",
        CommandTaken(
            epoch=story.EPOCH,
            token=story.TOKEN,
            op=story.OP,
            command="swap",
            phase="finished",
            outcome="failed",
            code="busy",
        ),
    ),
    "event.facts": _event(
        "discovery-cluster", "it booted another kernel", FactsChanged(changed=("kernel",))
    ),
    "event.health": _event(
        "telemetry-cluster",
        "the GPU answers again",
        Health(rule="gpu-lost", gpu=story.GPU, firing=False, value="79"),
    ),
    "event.operand": _event(
        "driver-cluster",
        "a DaemonSet was applied",
        Operand(
            kind="DaemonSet",
            name="nvidia-driver-daemonset-8e21b7c4",
            action="applied",
            pool=story.POOL,
        ),
        of_node=False,
    ),
    "event.evidence": _event(
        "validator-cluster",
        "the validation failed",
        EvidenceFound(
            token=story.TOKEN,
            op=story.OP,
            label=story.LABEL,
            passed=False,
            failed_step="cuda",
        ),
    ),
}
