"""Examples of events."""

from libs.contracts.events import (
    CommandEvent,
    EditEvent,
    Event,
    EventBody,
    EvictionEvent,
    EvidenceEvent,
    FactsEvent,
    GrantEvent,
    HealthEvent,
    LeaderEvent,
    OperandEvent,
    RolloutEvent,
    StepEvent,
    WaitEvent,
)
from libs.contracts.node import WaitCode
from tests.contracts import examples
from tests.contracts.examples import Example


def _event(writer: str, message: str, body: EventBody, *, of_node: bool = True) -> Example:
    event = Event.of(
        body,
        id="e-0c41d2",
        at=examples.T0 + 15,
        writer=writer,
        message=message,
        node=examples.NODE if of_node else "",
        node_uid=examples.NODE_UID if of_node else "",
    )
    return Example(event, body)


EXAMPLES = {
    "event.step": _event(
        "scheduler",
        "its driver label moved",
        StepEvent(
            pool=examples.POOL,
            token=examples.TOKEN,
            before="pod-deletion-required",
            after="pod-restart-required",
            target=examples.TARGET,
            cause="target",
            revision="884213",
        ),
    ),
    "event.wait": _event(
        "scheduler",
        "a pod disruption budget allows no eviction",
        WaitEvent(
            pool=examples.POOL,
            code=WaitCode.PDB,
            detail="ml/trainer allows 0 disruptions",
            since=examples.T0,
            until=examples.T0 + 300,
            who="who owns ml/trainer",
        ),
    ),
    "event.wait@over": _event("scheduler", "it waits no more", WaitEvent(pool=examples.POOL)),
    "event.grant": _event(
        "scheduler",
        "2 nodes may start",
        GrantEvent(
            pool=examples.POOL,
            target=examples.TARGET,
            epoch=examples.EPOCH,
            nodes=(examples.NODE, "gpu-2.rack-7.example"),
            limit=3,
            unavailable=1,
        ),
        of_node=False,
    ),
    "event.rollout": _event(
        "scheduler",
        "the rollout halted",
        RolloutEvent(
            pool=examples.POOL,
            target=examples.TARGET,
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
        EvictionEvent(
            namespace="ml",
            pod="trainer-0",
            pod_uid=examples.JOB_POD,
            answer="429",
            detail="it would violate the pod's disruption budget",
        ),
    ),
    "event.edit": _event(
        "scheduler",
        "kubectl-edit removed the driver label; it was stamped again",
        EditEvent(
            field="metadata.labels.sluice.dev/driver",
            manager="kubectl-edit",
            before=examples.LABEL,
            after="removed",
            done="stamped again",
        ),
    ),
    "event.leader": _event(
        "scheduler",
        "sluice-scheduler-0 leads",
        LeaderEvent(holder="sluice-scheduler-0", epoch=examples.EPOCH),
        of_node=False,
    ),
    "event.command": _event(
        "driver",
        "swap ended",
        CommandEvent(
            epoch=examples.EPOCH,
            token=examples.TOKEN,
            op=examples.OP,
            command="swap",
            phase="finished",
            outcome="failed",
            code="busy",
        ),
    ),
    "event.facts": _event(
        "discovery-cluster", "it booted another kernel", FactsEvent(changed=("kernel",))
    ),
    "event.health": _event(
        "telemetry-cluster",
        "the GPU answers again",
        HealthEvent(rule="gpu-lost", gpu=examples.GPU, firing=False, value="79"),
    ),
    "event.operand": _event(
        "driver-cluster",
        "a DaemonSet was applied",
        OperandEvent(
            kind="DaemonSet",
            name="nvidia-driver-daemonset-8e21b7c4",
            action="applied",
            pool=examples.POOL,
        ),
        of_node=False,
    ),
    "event.evidence": _event(
        "validator-cluster",
        "the validation failed",
        EvidenceEvent(
            token=examples.TOKEN,
            op=examples.OP,
            label=examples.LABEL,
            passed=False,
            failed_step="cuda",
        ),
    ),
}
