"""The driver that runs on a node now, and whether evidence covers it."""

import msgspec

from libs.contracts.facts import Gate
from libs.contracts.node import NodeRecord
from libs.contracts.reports import Evidence
from libs.policy.wanted import InstallMethod
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView

_CONTAINER = InstallMethod.CONTAINER

START_TOLERANCE = 1.0
"""Seconds by which two reports of one start may differ: Kubernetes keeps whole seconds, and no
driver is validated and restarted within one."""


class DriverRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a driver: of a container in its pod, or of modules loaded by an agent."""

    instance: str
    started: float
    pod_uid: str = ""
    ready: bool = True


def driver_pod_of(node: NodeView) -> DriverPod | None:
    """Return the driver pod for the node's label that is not terminating; of several, the one that
    is up.
    """
    label = node.driver_label
    pods = [pod for pod in node.driver_pods if pod.label == label and not pod.deleting]
    if len(pods) > 1:
        return max(pods, key=lambda pod: (pod.ready, pod.started or 0.0, pod.uid))
    return pods[0] if pods else None


def is_shut_out(node: NodeView) -> bool:
    """Whether the driver pod waits at a gate that is closed to it."""
    return waits_at_gate(driver_pod_of(node), node.gate)


def waits_at_gate(pod: DriverPod | None, gate: Gate | None) -> bool:
    """Whether this pod has requested entry at the gate and was not admitted."""
    return (
        pod is not None
        and gate is not None
        and not pod.ready
        and gate.waiting_pod_uid == pod.uid != gate.admitted_pod_uid
    )


def is_unloaded(node: NodeView) -> bool:
    """Whether the agent has reported, in this boot, that no driver is loaded."""
    return node.modules_reported and node.loaded is None


def current_run(node: NodeView, pool: PoolView) -> DriverRun | None:
    """Return the run of the driver of the node's label; without a container, the loaded modules."""
    if pool.method is not _CONTAINER:
        loaded = node.loaded
        if loaded is None:
            return None
        return DriverRun(instance=f"load/{loaded.loaded_at}", started=loaded.loaded_at)
    pod = driver_pod_of(node)
    if pod is None or pod.started is None:
        return None
    return DriverRun(instance=pod.instance, started=pod.started, pod_uid=pod.uid, ready=pod.ready)


def covers_run(evidence: Evidence, run: DriverRun) -> bool:
    """Whether the evidence validates this run."""
    return (
        evidence.driver_pod_uid == run.pod_uid
        and abs(evidence.driver_started - run.started) < START_TOLERANCE
    )


def passed_evidence(node: NodeView, record: NodeRecord | None) -> Evidence | None:
    """Return the passed evidence for the node's label, of any boot and run."""
    evidence = None if record is None else record.evidence
    if evidence is None or not evidence.passed or evidence.node_uid != node.uid:
        return None
    return evidence if evidence.label == node.driver_label else None


def is_in_place(node: NodeView, record: NodeRecord, label: str, method: InstallMethod) -> bool:
    """Whether the driver of this label runs, and the record proves exactly this run (I3).

    docs/invariants.md#i3. Tested for every node at every look, hence without helpers.
    """
    evidence = record.evidence
    if (
        evidence is None
        or not evidence.passed
        or evidence.label != label
        or node.driver_label != label
        or evidence.boot_id != node.boot_id
        or evidence.kernel != node.kernel
        or evidence.node_uid != node.uid
    ):
        return False
    if method is _CONTAINER:
        for pod in node.driver_pods:
            if pod.uid == evidence.driver_pod_uid:
                started = pod.started
                return (
                    pod.ready
                    and not pod.deleting
                    and pod.label == label
                    and started is not None
                    and abs(evidence.driver_started - started) < START_TOLERANCE
                )
        return False
    loaded = node.loaded
    return loaded is not None and abs(evidence.driver_started - loaded.loaded_at) < START_TOLERANCE
