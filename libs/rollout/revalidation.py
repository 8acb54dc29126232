"""The repeated validation of a node whose proof does not cover the driver that runs.

The node was rebooted, or its driver restarted (docs/states.md#people). The `idle` in the slot names
what is proven, so the driver comes back by itself and is then validated again, without a cordon.
"""

from msgspec.structs import replace

from libs.contracts.node import NodeRecord, WaitCode
from libs.policy.mig.geometry import NO_DIGEST
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import NodeOutcome, Wait
from libs.rollout.eligibility import (
    validation_candidate,
)
from libs.rollout.limits import DRIVER_START, RESTARTS
from libs.rollout.mig_at_rest import divide_at_rest, is_refused
from libs.rollout.node_driver import (
    DriverRun,
    Goal,
    covers_run,
    current_run,
    driver_pod_of,
)
from libs.rollout.node_writes import (
    unchanged_cordon,
    write_step,
)
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import AGENT_LATE, DRIVER_ADMINISTRATOR, GATE_BLOCKED, wait

RESTART_WINDOW = 3600.0


def revalidate(
    node: NodeView, record: NodeRecord, pool: PoolView, goal: Goal, now: Instant
) -> NodeOutcome:
    """Validate a node that has the right label, as soon as its driver runs."""
    run = current_run(node, pool)
    if run is not None and _restarted(node, record, run):
        recent = tuple(restart for restart in record.restarts if restart > now.at - RESTART_WINDOW)
        if run.started > now.at - RESTART_WINDOW and run.started not in recent:
            return _count_restart(node, record, (*recent, run.started), now)
        if len(recent) >= RESTARTS:
            return _restarting_wait(node, recent, now)
    if run is None or not run.ready:
        return driver_absent_wait(node, pool, now)
    return _divide_first(node, record, pool, now) or validation_candidate(node, pool, goal, now)


def _divide_first(node: NodeView, record: NodeRecord, pool: PoolView, now: Instant) -> NodeOutcome:
    """Divide the GPUs where a reboot or reload dropped their geometry, which also validates."""
    wanted = node.mig
    if wanted is None or wanted.error or wanted.applied or is_refused(node, record):
        return None
    if wanted.applied is None and wanted.digest == NO_DIGEST:
        return None  # a reboot divides no GPU: the validator finds out at once
    return divide_at_rest(node, record, pool, now, proven=False)


def _restarted(node: NodeView, record: NodeRecord, run: DriverRun) -> bool:
    """Whether this is another run than the proven one, without a boot in between."""
    evidence = record.evidence
    return (
        evidence is not None and evidence.boot_id == node.boot_id and not covers_run(evidence, run)
    )


def _count_restart(
    node: NodeView, record: NodeRecord, restarts: tuple[float, ...], now: Instant
) -> NodeOutcome:
    return write_step(
        node,
        replace(record, restarts=restarts[-RESTARTS:], epoch=now.epoch),
        now,
        because=f"the driver restarted ({len(restarts)} within an hour)",
        lease=None,
        cordon=unchanged_cordon(node),
    )


def _restarting_wait(node: NodeView, recent: tuple[float, ...], now: Instant) -> Wait:
    pod = driver_pod_of(node)
    problem = "" if pod is None else pod.problem("it")
    times = f"the driver restarted {len(recent)} times within an hour"
    return wait(
        WaitCode.DRIVER_RESTARTING,
        f"{times}: {problem}" if problem else times,
        now,
        sorted(recent)[-RESTARTS] + RESTART_WINDOW,
    )


def driver_absent_wait(node: NodeView, pool: PoolView, now: Instant) -> Wait:
    """Return the wait for a driver that does not run."""
    if pool.method is not InstallMethod.CONTAINER:
        if not node.modules_reported:
            return wait(
                WaitCode.AGENT_SILENT,
                "the driver agent has not reported which driver is loaded",
                now,
                who=AGENT_LATE,
            )
        return wait(WaitCode.DRIVER_START, "no driver is loaded", now, who=DRIVER_ADMINISTRATOR)
    pod, gate = driver_pod_of(node), node.gate
    if pod is None:
        return wait(WaitCode.GATE, "waiting for the driver pod to be created", now)
    if pod.started is not None or pod.trouble:
        return _starting_wait(pod, now)
    if gate is not None and gate.why:
        return wait(WaitCode.GATE, gate.why, now, who=GATE_BLOCKED)
    return wait(WaitCode.GATE, "the driver pod waits at the gate", now)


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
