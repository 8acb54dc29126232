"""Failures of a simulation: on machines, in a decision, at rest, and in the journal."""

from collections.abc import Mapping

from libs.audit import judge, unaccounted
from libs.contracts.events import WaitEvent
from libs.contracts.node import MigState, NodeRecord, UpgradeState
from libs.contracts.waits import ITSELF, WaitCode
from libs.rollout.decision import Decision, Wait
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView
from libs.testing.stage import SimulatedStage
from tests.component.rollout.simulation.effect_faults import EffectFaultRates
from tests.component.rollout.simulation.policies import FROM_TEMPLATE
from tests.component.rollout.simulation.scenario import Scenario

FOUND_AT_END = frozenset({"stuck", "not cured", "untrue", "restart", "busy", "loop"})
"""Kinds that show only at the end: a violation in the journal explains more."""

TRANSIENT_CODES = frozenset(
    {
        WaitCode.BUDGET, WaitCode.PROOF, WaitCode.TARGET_UNSETTLED,
        WaitCode.QUIESCE, WaitCode.OLD_DRIVER, WaitCode.UNLOAD, WaitCode.GATE,
        WaitCode.DRIVER_START, WaitCode.VALIDATION, WaitCode.DRIVER_RESTARTING, WaitCode.STALE,
        WaitCode.BUS, WaitCode.OPERANDS,
    }
)  # fmt: skip
"""Waits that end without a user: none is left at rest, except for a budget that is used up for
good."""

_ENDED_BY_TIME = TRANSIENT_CODES | {WaitCode.BACK_OFF}


class SimulationFailure(Exception):
    def __init__(self, kind: str, message: str, at: float | None = None) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.at = at
        """Time of the failure; None: the time at which the run stopped."""


def check_machines(stage: SimulatedStage) -> None:
    for _, name, text in stage.violations:
        raise SimulationFailure("machine", f"{name}: {text}")


def check_decision(fleet: Fleet, now: Instant, decision: Decision) -> None:
    """Check that each node is in place, has a wait, or is acted on."""
    if decision.deposed:
        return
    lagging = [name for name, node in fleet.nodes.items() if not is_in_place(node, fleet)]
    acting = {name for name, step in decision.steps.items() if step.actions}
    acting |= {name for name, node in fleet.nodes.items() if node.write_pending}
    waits = dict(decision.waits)
    waits |= {name: step.wait for name, step in decision.steps.items() if step.wait is not None}
    events = {name: _event(wait) for name, wait in waits.items()}
    for violation in unaccounted(lagging, events, acting, at=now.at):
        raise SimulationFailure("silence", violation.message)
    for name, wait in waits.items():
        if not wait.code.is_known:
            raise SimulationFailure("silence", f"{name} waits with the unknown code {wait.code}")
        if wait.since > now.at:
            raise SimulationFailure(
                "silence", f"{name} waits since {wait.since - now.at} s in the future"
            )


def check_incremental(incremental: Decision, full: Decision) -> None:
    """Check that a decision on what changed is the decision on the whole fleet."""
    if incremental.deposed or full.deposed:
        return
    for part in ("steps", "waits", "rollouts", "cancelled", "probes"):
        actual, expected = getattr(incremental, part), getattr(full, part)
        if actual == expected:
            continue
        if isinstance(actual, Mapping):
            names = [
                name for name in {**actual, **expected} if actual.get(name) != expected.get(name)
            ]
            actual = {name: actual.get(name) for name in names}
            expected = {name: expected.get(name) for name in names}
        raise SimulationFailure(
            "incremental", f"{part}: {actual}, but on the whole fleet {expected}"
        )


def _event(wait: Wait) -> WaitEvent:
    return WaitEvent(
        pool="", code=wait.code, detail=wait.detail, since=wait.since, until=wait.until,
        who=wait.who,
    )  # fmt: skip


def is_in_place(node: NodeView, fleet: Fleet) -> bool:
    """Whether the Node is as its policy wants it, judged by the Node alone."""
    if node.upgrade_lease:
        return False
    pool = fleet.pools.get(node.pool)
    if pool is None or node.excluded:
        # An unreadable record on a node that was never ours is somebody else's note.
        return not (
            isinstance(node.record, NodeRecord)
            or node.has_damaged_record
            or any(map(node.has_our_value, (NodeField.STATE, NodeField.DRIVER, NodeField.RECORD)))
        )
    never_upgraded = not pool.upgrade.auto_upgrade and not node.state and node.record is None
    if never_upgraded or (pool.gone and not node.state):
        return True
    if node.mig is not None and node.mig_state != MigState.SUCCESS:
        return False
    return node.state == UpgradeState.UPGRADE_DONE and _is_proven(node, pool)


def _is_proven(node: NodeView, pool: PoolView) -> bool:
    build = pool.build(pool.target, node.variant)
    return (
        build is not None
        and node.driver_label == build.label
        and isinstance(node.record, NodeRecord)
        and node.record.evidence is not None
        and node.record.evidence.passed
        and node.record.evidence.label == build.label
        and node.loaded is not None
    )


def check_at_rest(stage: SimulatedStage, last: Decision) -> Mapping[str, Wait]:
    """Return the waits of nodes that are not in place; check that each can last for ever."""
    fleet = stage.fleet()
    waits: dict[str, Wait] = {}
    for name, node in fleet.nodes.items():
        wait = last.waits.get(name) or (last.steps[name].wait if name in last.steps else None)
        if wait is not None:
            waits[name] = wait
            problem = _contradiction(node, fleet, wait, stage.now)
            machine = stage.state.machines[name]
            if wait.code is WaitCode.GPU_FAILED and machine.loaded and not machine.failed_gpus:
                problem = "while all its GPUs work"
            if problem:
                raise SimulationFailure(
                    "untrue", f"{name} waits for {wait.code} ({wait.detail}) for ever, {problem}"
                )
        elif not is_in_place(node, fleet):
            raise SimulationFailure("stuck", f"{name} is in state {node.state!r} without a wait")
        if _was_done(node) and set(FROM_TEMPLATE) & set(node.taints):
            raise SimulationFailure("stuck", f"{name} was done, and has its startup taint")
    return waits


def _was_done(node: NodeView) -> bool:
    record = node.current_record
    return record is not None and record.was_done


def _contradiction(node: NodeView, fleet: Fleet, wait: Wait, time: float) -> str:
    """Return why the wait cannot last for ever; empty: it can."""
    if wait.code is WaitCode.BUDGET:
        pools = counted_pools(node)
        closed = any(fleet.pools[key].upgrade.max_unavailable in {0, "0", "0%"}
                     for key in pools if key in fleet.pools)  # fmt: skip
        unavailable = any(view.cordoned or not view.ready or _has_failed(view)
                          or view.lease is not None or view.loaded is None
                          for view in fleet.nodes.values() if view.pool in pools)  # fmt: skip
        return "" if closed or unavailable else "while all nodes are available"
    if wait.code is WaitCode.PROOF:
        leased = any(view.lease is not None for view in fleet.nodes.values())
        return "" if leased else "while no node is in flight"
    if wait.code is WaitCode.BACK_OFF:
        return "" if wait.until is not None and wait.until > time else f"until {wait.until}"
    if wait.code is WaitCode.DRIVER_START and wait.who != ITSELF:
        return "while its driver is ready" if any(pod.ready for pod in node.driver_pods) else ""
    if wait.code in TRANSIENT_CODES:
        return "which ends without a user"
    if wait.code is WaitCode.NOT_READY and node.ready:
        return "while it is ready"
    if wait.code is WaitCode.FAILED and node.state != UpgradeState.UPGRADE_FAILED:
        return f"while its state is {node.state}"
    return ""


def _has_failed(node: NodeView) -> bool:
    """Whether state label or record says that the node failed: people may edit the label."""
    record = node.current_record
    states = (node.state, "" if record is None else record.state)
    return UpgradeState.UPGRADE_FAILED in states


def counted_pools(node: NodeView) -> set[str]:
    """Return the pools whose budgets count the node: its own, and the one it is leaving."""
    record = node.current_record
    return {node.pool, record.pool if record is not None else ""}


def check_remedied(stage: SimulatedStage, before: Mapping[str, Wait], last: Decision) -> None:
    """Check that the remedies ended the waits."""
    for name, wait in before.items():
        now = last.waits.get(name)
        same = now is not None and (now.code, now.since) == (wait.code, wait.since)
        if same and wait.code not in _ENDED_BY_TIME and name in stage.state.nodes:
            text = f"{wait.code} ({wait.detail}), until {wait.until}, {wait.who}"
            raise SimulationFailure("not cured", f"after the remedy {name} still waits for {text}")


def check_all_in_place(stage: SimulatedStage, last: Decision) -> None:
    """Check the end of the run, with every reason to wait removed."""
    fleet = stage.fleet()
    for name, node in fleet.nodes.items():
        if not is_in_place(node, fleet):
            wait = last.waits.get(name)
            reason = f"{wait.code} ({wait.detail})" if wait is not None else "no wait"
            raise SimulationFailure("stuck", f"{name} never gets in place: {reason}")


def audit_failure(stage: SimulatedStage, scenario: Scenario) -> SimulationFailure | None:
    """Return the first violation in the journal."""
    faults = (
        bool(scenario.disturbances)
        or scenario.fault_rates != EffectFaultRates()
        or scenario.failure_prone
    )
    for violation in judge(stage.journal(), faults=faults).violations:
        return SimulationFailure(violation.invariant, violation.message, violation.time)
    return None
