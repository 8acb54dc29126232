"""The driver of a node: the running one, whether evidence covers it, and the wanted one.

docs/states.md#harm
"""

import msgspec

from libs.contracts.facts import Gate
from libs.contracts.node import NodeRecord
from libs.contracts.reports import Evidence
from libs.contracts.waits import DRIVER_SERVICE_LATE, WaitCode
from libs.policy.mig.geometry import NO_DIGEST
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import Wait
from libs.rollout.node_case import NodeCase
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build, Readiness
from libs.rollout.wait_reasons import wait

_CONTAINER = InstallMethod.CONTAINER
START_TOLERANCE = 1.0
"""Seconds by which two reports of one start may differ: Kubernetes keeps whole seconds, and no
driver is validated and restarted within one."""

_MISSING, _UNSETTLED = Readiness.MISSING, Readiness.UNSETTLED


class DriverRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a driver: of a container in its pod, or of modules loaded by an agent."""

    instance: str
    started: float
    pod_uid: str = ""
    container_id: str = ""
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


def starts_by_hand(node: NodeView, record: NodeRecord | None) -> bool:
    """Whether the node may start although `autoUpgrade` is off.

    Nothing takes a driver away that runs. A node without one gets one; and who deletes the driver
    pod of a validated node wants what the policy wants now.
    """
    if is_unloaded(node):
        return not is_joining(node, record) or is_occupied(node) is False
    evidence = passed_evidence(node, record)
    return (
        evidence is not None
        and bool(evidence.driver_pod_uid)
        and not any(
            pod.uid == evidence.driver_pod_uid and not pod.deleting for pod in node.driver_pods
        )
    )


def current_run(case: NodeCase) -> DriverRun | None:
    """Return the run of the driver of the node's label; without a container, the loaded modules."""
    if case.pool.method is not _CONTAINER:
        loaded = case.node.loaded
        if loaded is None:
            return None
        return DriverRun(instance=f"load/{loaded.loaded_at}", started=loaded.loaded_at)
    pod = driver_pod_of(case.node)
    if pod is None or pod.started is None:
        return None
    return DriverRun(instance=pod.instance, started=pod.started, pod_uid=pod.uid, ready=pod.ready)


def covers_run(evidence: Evidence, run: DriverRun) -> bool:
    """Whether the evidence validates this run."""
    return (
        evidence.driver_pod_uid == run.pod_uid
        and abs(evidence.driver_started - run.started) < START_TOLERANCE
    )


def fits_runtime(evidence: Evidence, node: NodeView) -> bool:
    """Whether containers with a GPU get what they got when the evidence was made.

    Evidence without a digest is of a node on which that is not proven.
    """
    proven, found = evidence.runtime_digest, node.runtime_digest
    return not found or proven in ("", NO_DIGEST, found)


def passed_evidence(node: NodeView, record: NodeRecord | None) -> Evidence | None:
    """Return the passed evidence for the node's label, of any boot and run."""
    evidence = None if record is None else record.evidence
    if evidence is None or not evidence.passed or evidence.node_uid != node.uid:
        return None
    return evidence if evidence.label == node.driver_label else None


def is_in_place(node: NodeView, record: NodeRecord, label: str, method: InstallMethod) -> bool:
    """Whether the driver of this label runs, and the record proves exactly this run (I3).

    docs/invariants.md#i3. Called for every node in every decision, hence without helpers.
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
        or (node.runtime_digest and not fits_runtime(evidence, node))
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


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """The target that a node gets, and its build."""

    target: str
    build: Build

    @property
    def label(self) -> str:
        return self.build.label


def is_joining(node: NodeView, record: NodeRecord | None) -> bool:
    """Whether the node has yet to get its first driver of ours."""
    if record is None:
        return True
    return record.evidence is None and not record.started and not node.driver_label


def target_of(case: NodeCase) -> str:
    """Return the wanted target; for a joining node the last-good one while it is unproven.

    Before any target was proven, a joining node takes part in the rollout like any other.
    """
    last_good = case.pool.constraints.last_good
    if case.pool.target in case.pool.constraints.proven or not is_joining(case.node, case.record):
        return case.pool.target
    if case.pool.method is InstallMethod.PRE_INSTALLED:
        return case.pool.target  # the driver came with the machine
    build = case.pool.build(last_good, case.node.variant)
    exists = build is not None and build.readiness is not _MISSING
    return last_good if exists else case.pool.target


def goal_of(case: NodeCase, target: str) -> Goal | Wait:
    """Return the build of this target for the node; a wait while the build is not certain."""
    if not target:
        detail = (
            "; ".join(case.pool.errors) or "the policy describes no driver that can be deployed"
        )
        return wait(WaitCode.TARGET_MISSING, detail, case.now)
    if not case.node.variant:
        detail = (
            "operating system and kernel of the node are not known yet, and thus its driver build"
        )
        return wait(
            WaitCode.TARGET_UNSETTLED,
            detail,
            case.now,
            who="an administrator of the discovery agent on that node",
        )
    build = case.pool.build(target, case.node.variant)
    if build is None or build.readiness is _MISSING:
        detail = build.detail if build is not None else ""
        detail = detail or f"target {target} has no driver build for {case.node.variant}"
        is_late = build is not None and case.pool.method is InstallMethod.CONTAINER
        who = DRIVER_SERVICE_LATE if is_late else None
        return wait(WaitCode.TARGET_MISSING, detail, case.now, who=who)
    if build.readiness is _UNSETTLED:
        detail = (
            build.detail
            or f"the driver build of target {target} for {case.node.variant} is being updated"
        )
        return wait(WaitCode.TARGET_UNSETTLED, detail, case.now)
    return Goal(target=target, build=build)


def is_occupied(node: NodeView) -> bool | None:
    """Whether modules are loaded or pods have GPUs; None: not reported."""
    if node.loaded is not None:
        return True
    if node.pods is not None and any(pod.gpu or pod.claims_unknown for pod in node.pods):
        return True
    if node.usage is not None and any(use.gpus for use in node.usage.pods):
        return True
    known = node.modules_reported and (node.pods is not None or node.usage is not None)
    return False if known else None
