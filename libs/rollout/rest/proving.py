"""A done node whose proof is not about what runs now: it was booted, or its driver restarted.

docs/states.md#people. Its slot says what is proven, so the driver comes back by itself; then it is
validated again, without a cordon.
"""

from msgspec.structs import replace

from libs.contracts.node import Record
from libs.contracts.waits import WaitCode
from libs.policy.wanted import Method
from libs.rollout.decision import Outcome, Wait
from libs.rollout.limits import DRIVER_START, RESTARTS
from libs.rollout.rest.driver import Run, is_about, pod_of, running
from libs.rollout.rest.stamping import kept_label
from libs.rollout.rest.starting import validate
from libs.rollout.rest.targets import Goal
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.waiting import wait
from libs.rollout.writes import cordon_kept, written

HOUR = 3600.0


def again(node: NodeView, record: Record, pool: PoolView, goal: Goal, now: Instant) -> Outcome:
    """It has the right label, and is to be validated as soon as its driver runs."""
    run = running(node, pool)
    if run is not None and _restarted(node, record, run):
        recent = tuple(moment for moment in record.restarts if moment > now.at - HOUR)
        if run.started > now.at - HOUR and run.started not in recent:
            return _counted(node, record, (*recent, run.started), now)
        if len(recent) >= RESTARTS:
            return _restarting(node, recent, now)
    if run is None or not run.ready:
        return absent(node, pool, now)
    return validate(node, pool, goal, now)


def _restarted(node: NodeView, record: Record, run: Run) -> bool:
    """Whether it is another run than the proven one, and no boot explains that."""
    evidence = record.evidence
    return evidence is not None and evidence.boot_id == node.boot_id and not is_about(evidence, run)


def _counted(node: NodeView, record: Record, restarts: tuple[float, ...], now: Instant) -> Outcome:
    return written(
        node,
        replace(record, restarts=restarts[-RESTARTS:], epoch=now.epoch),
        now,
        because=f"its driver restarted: {len(restarts)} within an hour",
        lease=None,
        cordon=cordon_kept(node),
        driver_label=kept_label(node, record),
    )


def _restarting(node: NodeView, recent: tuple[float, ...], now: Instant) -> Wait:
    pod = pod_of(node)
    trouble = f": {pod.trouble}" if pod is not None and pod.trouble else ""
    return wait(
        WaitCode.DRIVER_RESTARTING,
        f"its driver restarted {len(recent)} times within an hour{trouble}",
        now,
        sorted(recent)[-RESTARTS] + HOUR,
    )


def absent(node: NodeView, pool: PoolView, now: Instant) -> Wait:
    """Its driver does not run: what it is waiting for, in the words of whoever keeps it."""
    if pool.method is not Method.CONTAINER:
        if not node.seen_by_agent:
            return wait(WaitCode.AGENT_SILENT, "its driver agent has not said what is loaded", now)
        return wait(WaitCode.DRIVER_START, "no driver is loaded", now, who=_MACHINE)
    pod, gate = pod_of(node), node.gate
    if pod is None:
        return wait(WaitCode.GATE, "its driver pod is not there", now)
    if pod.started is not None or pod.trouble:
        return _starting(pod, now)
    said = gate.why if gate is not None and gate.why else "its driver pod waits at the gate"
    return wait(WaitCode.GATE, said, now)


def _starting(pod: DriverPod, now: Instant) -> Wait:
    """Nothing ends the start of a driver at rest but somebody who looks after it."""
    due = None if pod.started is None else pod.started + DRIVER_START
    if pod.trouble or due is None:
        return wait(WaitCode.DRIVER_START, pod.trouble, now, who=_MACHINE)
    if now.at < due:
        return wait(WaitCode.DRIVER_START, "its driver is not ready yet", now, due)
    said = f"its driver has been starting for more than {DRIVER_START / 60:.0f} minutes"
    return wait(WaitCode.DRIVER_START, said, now, who=_MACHINE)


_MACHINE = "whoever looks after that machine, or the driver's image"
