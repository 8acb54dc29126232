"""The repeated validation of a node whose proof does not cover the driver that runs.

The node was rebooted, or its driver restarted (docs/states.md#people). The `idle` in the slot names
what is proven, so the driver comes back by itself and is then validated again, without a cordon.
"""

from msgspec.structs import replace

from libs.contracts.node import NodeRecord
from libs.contracts.waits import AGENT_LATE, DRIVER_ADMINISTRATOR, GATE_BLOCKED, WaitCode
from libs.policy.mig.geometry import NO_DIGEST
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import NodeOutcome, Wait
from libs.rollout.eligibility import (
    validation_candidate,
)
from libs.rollout.limits import DRIVER_START, RESTARTS
from libs.rollout.mig_at_rest import divide_at_rest, is_refused
from libs.rollout.node_case import NodeCase
from libs.rollout.node_driver import (
    DriverRun,
    Goal,
    covers_run,
    current_run,
    driver_pod_of,
)
from libs.rollout.node_writes import NodeChange, write_step
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView
from libs.rollout.wait_reasons import wait

RESTART_WINDOW = 3600.0


def revalidate(case: NodeCase, record: NodeRecord, goal: Goal) -> NodeOutcome:
    """Validate a node that has the right label, as soon as its driver runs."""
    run = current_run(case)
    if run is not None and _restarted(case.node, record, run):
        recent = tuple(
            restart for restart in record.restarts if restart > case.now.at - RESTART_WINDOW
        )
        if run.started > case.now.at - RESTART_WINDOW and run.started not in recent:
            return _count_restart(case, record, (*recent, run.started))
        if len(recent) >= RESTARTS:
            return _restarting_wait(case, recent)
    if run is None or not run.ready:
        return driver_absent_wait(case)
    return _divide_first(case, record) or validation_candidate(case, goal)


def _divide_first(case: NodeCase, record: NodeRecord) -> NodeOutcome:
    """Divide the GPUs where a reboot or reload dropped their geometry, which also validates."""
    wanted = case.node.mig
    if wanted is None or wanted.error or wanted.applied or is_refused(case.node, record):
        return None
    if wanted.applied is None and wanted.digest == NO_DIGEST:
        return None  # a reboot divides no GPU: the validator finds out at once
    return divide_at_rest(case, record, proven=False)


def _restarted(node: NodeView, record: NodeRecord, run: DriverRun) -> bool:
    """Whether this is another run than the proven one, without a boot in between."""
    evidence = record.evidence
    return (
        evidence is not None and evidence.boot_id == node.boot_id and not covers_run(evidence, run)
    )


def _count_restart(case: NodeCase, record: NodeRecord, restarts: tuple[float, ...]) -> NodeOutcome:
    return write_step(
        case,
        NodeChange(
            because=f"the driver restarted ({len(restarts)} within an hour)",
            record=replace(record, restarts=restarts[-RESTARTS:], epoch=case.now.epoch),
        ),
    )


def _restarting_wait(case: NodeCase, recent: tuple[float, ...]) -> Wait:
    pod = driver_pod_of(case.node)
    problem = "" if pod is None else pod.problem("it")
    times = f"the driver restarted {len(recent)} times within an hour"
    return wait(
        WaitCode.DRIVER_RESTARTING,
        f"{times}: {problem}" if problem else times,
        case.now,
        sorted(recent)[-RESTARTS] + RESTART_WINDOW,
    )


def driver_absent_wait(case: NodeCase) -> Wait:
    """Return the wait for a driver that does not run."""
    if case.pool.method is not InstallMethod.CONTAINER:
        if not case.node.modules_reported:
            return wait(
                WaitCode.AGENT_SILENT,
                "the driver agent has not reported which driver is loaded",
                case.now,
                who=AGENT_LATE,
            )
        return wait(
            WaitCode.DRIVER_START, "no driver is loaded", case.now, who=DRIVER_ADMINISTRATOR
        )
    pod, gate = driver_pod_of(case.node), case.node.gate
    if pod is None:
        return wait(WaitCode.GATE, "waiting for the driver pod to be created", case.now)
    if pod.started is not None or pod.trouble:
        return _starting_wait(pod, case.now)
    if gate is not None and gate.why:
        return wait(WaitCode.GATE, gate.why, case.now, who=GATE_BLOCKED)
    return wait(WaitCode.GATE, "the driver pod waits at the gate", case.now)


def _starting_wait(pod: DriverPod, now: Instant) -> Wait:
    """Return the wait for a driver that starts; at rest only a person ends a start that hangs."""
    due = None if pod.started is None else pod.started + DRIVER_START
    if pod.trouble or due is None:
        return wait(
            WaitCode.DRIVER_START,
            f"the driver does not start: {pod.problem('it')}",
            now,
            who=DRIVER_ADMINISTRATOR,
        )
    if now.at < due:
        return wait(WaitCode.DRIVER_START, "waiting for the driver to become ready", now, due)
    detail = f"the driver has been starting for more than {DRIVER_START / 60:.0f} minutes"
    return wait(WaitCode.DRIVER_START, detail, now, who=DRIVER_ADMINISTRATOR)
