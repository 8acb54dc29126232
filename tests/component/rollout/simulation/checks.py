"""What is wrong with a story: on machines, in a decision, at rest, and in the journal."""

from collections.abc import Mapping

from libs.audit import judge, unaccounted
from libs.contracts.events import WaitEvent as Told
from libs.contracts.node import NodeRecord, UpgradeState
from libs.contracts.waits import WaitCode
from libs.forecast.stage import Stage
from libs.rollout.decision import Decision, Wait
from libs.rollout.node_writes import current_record, upgrade_lease
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import NO_ACTION_NEEDED
from tests.component.rollout.simulation.scenario import Scenario

FOUND_AT_END = frozenset({"stuck", "not cured", "untrue", "restart", "restless", "circles"})
"""What shows only at the end: a broken promise in the journal says more."""

TRANSIENT_CODES = frozenset(
    {
        WaitCode.BUDGET, WaitCode.PROOF, WaitCode.TARGET_UNSETTLED,
        WaitCode.QUIESCE, WaitCode.OLD_DRIVER, WaitCode.UNLOAD, WaitCode.GATE,
        WaitCode.DRIVER_START, WaitCode.VALIDATION, WaitCode.DRIVER_RESTARTING, WaitCode.STALE,
        WaitCode.BUS, WaitCode.OPERANDS,
    }
)  # fmt: skip
"""Nobody has to do anything about them: at rest, with all in order, there is none; but for the
budget, where something else takes it up for good."""


_UNCURED = TRANSIENT_CODES | {WaitCode.BACK_OFF}
"""Time alone ends them."""


class SimulationFailure(Exception):
    """The story is not as it should be; of what kind, and what."""

    def __init__(self, kind: str, message: str, at: float | None = None) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message
        self.at = at
        """When; None: when the story stopped."""


def check_machines(stage: Stage) -> None:
    """Nothing that must never happen on a machine did."""
    for _, name, text in stage.violations:
        raise SimulationFailure("machine", f"{name}: {text}")


def check_decision(fleet: Fleet, now: Instant, decision: Decision) -> None:
    """Each node that is not in place has a reason, or something is done about it."""
    if decision.deposed:
        return
    lagging = [name for name, node in fleet.nodes.items() if not is_in_place(node, fleet)]
    busy = {name for name, node in fleet.nodes.items() if node.write_pending}
    waits = dict(decision.waits)
    waits |= {name: step.wait for name, step in decision.steps.items() if step.wait is not None}
    told = {name: _told(wait) for name, wait in waits.items()}
    acting = {name for name, step in decision.steps.items() if step.actions} | busy
    for found in unaccounted(lagging, told, acting, at=now.at):
        raise SimulationFailure("silence", found.message)
    for name, wait in waits.items():
        if not wait.code.is_known:
            raise SimulationFailure("silence", f"{name} waits for {wait.code}, which nobody knows")
        if wait.since > now.at:
            raise SimulationFailure(
                "silence", f"{name} waits since {wait.since - now.at} s from now"
            )


def check_same(by_changes: Decision, whole: Decision) -> None:
    """What was decided on what changed is what would be decided on everything."""
    if by_changes.deposed or whole.deposed:
        return
    for part in ("steps", "waits", "rollouts", "cancelled", "probes"):
        one, other = getattr(by_changes, part), getattr(whole, part)
        if one == other:
            continue
        if isinstance(one, Mapping):
            names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
            one = {name: one.get(name) for name in names}
            other = {name: other.get(name) for name in names}
        raise SimulationFailure("incremental", f"{part}: {one}, and of everything {other}")


def _told(wait: Wait) -> Told:
    return Told(
        pool="", code=wait.code, detail=wait.detail, since=wait.since, until=wait.until,
        who=wait.who,
    )  # fmt: skip


def is_in_place(node: NodeView, fleet: Fleet) -> bool:
    """Whether it is where its policy wants it: said of the Node alone."""
    if upgrade_lease(node):
        return False
    pool = fleet.pools.get(node.pool)
    if pool is None or node.excluded:
        return node.record is None and not any(
            map(node.has_our_value, (NodeField.STATE, NodeField.DRIVER))
        )
    if not _takes_part(node, pool):
        return True
    if pool.gone and not node.state:
        return True
    build = pool.build(pool.target, node.variant)
    return (
        node.state == UpgradeState.UPGRADE_DONE
        and build is not None
        and node.driver_label == build.label
        and isinstance(node.record, NodeRecord)
        and node.record.evidence is not None
        and node.record.evidence.passed
        and node.record.evidence.label == build.label
    )


def _takes_part(node: NodeView, pool: PoolView) -> bool:
    """A policy that was never on stamps nothing."""
    return pool.upgrade.auto_upgrade or bool(node.state) or node.record is not None


# At rest.


def check_at_rest(stage: Stage, last: Decision) -> Mapping[str, Wait]:
    """Who is not in place, and why; the reason can be true although nothing happens any more."""
    fleet = stage.fleet()
    found: dict[str, Wait] = {}
    for name, node in fleet.nodes.items():
        wait = last.waits.get(name) or (last.steps[name].wait if name in last.steps else None)
        if wait is None:
            if not is_in_place(node, fleet):
                raise SimulationFailure(
                    "stuck", f"{name} is {node.state or 'nothing'}, and nothing happens"
                )
            continue
        found[name] = wait
        _is_true(node, fleet, wait, stage.now)
    return found


def _is_true(node: NodeView, fleet: Fleet, wait: Wait, at: float) -> None:
    said = f"{node.name} waits for {wait.code} ({wait.detail}) for ever"
    if wait.code is WaitCode.BUDGET:
        home = counted_pools(node)
        none = any(fleet.pools[key].upgrade.max_unavailable in {0, "0", "0%"}
                   for key in home if key in fleet.pools)  # fmt: skip
        others = [each for each in fleet.nodes.values() if each.pool in home]
        away = [each for each in others if each.cordoned or not each.ready
                or each.state == UpgradeState.UPGRADE_FAILED or each.lease is not None
                or each.loaded is None]  # fmt: skip
        if not away and not none:
            raise SimulationFailure("untrue", f"{said}, while all nodes are available")
    elif wait.code is WaitCode.PROOF:
        if not any(each.lease is not None for each in fleet.nodes.values()):
            raise SimulationFailure("untrue", f"{said}, and nobody takes a place")
    elif wait.code is WaitCode.BACK_OFF:
        if wait.until is None or wait.until <= at:
            raise SimulationFailure("untrue", f"{said}, until {wait.until}")
    elif wait.code is WaitCode.DRIVER_START and wait.who != NO_ACTION_NEEDED:
        if any(pod.ready for pod in node.driver_pods):
            raise SimulationFailure("untrue", f"{said}, and its driver is ready")
    elif wait.code in TRANSIENT_CODES:
        raise SimulationFailure("untrue", said)
    elif wait.code is WaitCode.NOT_READY and node.ready:
        raise SimulationFailure("untrue", f"{said}, and is ready")
    elif wait.code is WaitCode.FAILED and node.state != UpgradeState.UPGRADE_FAILED:
        raise SimulationFailure("untrue", f"{said}, and is {node.state}")


def counted_pools(node: NodeView) -> set[str]:
    """The pools whose budgets can hold it up: who is leaving pays where he was."""
    record = current_record(node)
    return {node.pool, record.pool if record is not None else ""}


def check_remedied(stage: Stage, before: Mapping[str, Wait], last: Decision) -> None:
    """Doing what a wait says ends it."""
    for name, wait in before.items():
        now = last.waits.get(name)
        same = now is not None and (now.code, now.since) == (wait.code, wait.since)
        if same and wait.code not in _UNCURED and name in stage.state.nodes:
            said = f"{wait.code} ({wait.detail}), until {wait.until}, {wait.who}"
            raise SimulationFailure(
                "not cured", f"{name} still waits for {said}, after that was done"
            )


def check_all_in_place(stage: Stage, last: Decision) -> None:
    """At the very end, with every reason taken away."""
    fleet = stage.fleet()
    for name, node in fleet.nodes.items():
        if not is_in_place(node, fleet):
            wait = last.waits.get(name)
            why = f"{wait.code} ({wait.detail})" if wait is not None else "no reason"
            raise SimulationFailure("stuck", f"{name} never gets where it belongs: {why}")


# The journal.


def audit_failure(stage: Stage, scenario: Scenario) -> SimulationFailure | None:
    """The first promise that was not kept."""
    faults = bool(scenario.acts) or scenario.rates != type(scenario.rates)() or scenario.rough
    for found in judge(stage.journal(), faults=faults).violations:
        return SimulationFailure(found.invariant, found.message, found.time)
    return None
