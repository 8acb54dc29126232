"""The outcome of each node: a step, a place in a queue, or a wait."""

from libs.contracts.node import WaitCode
from libs.rollout.decide.node_phase import NodePhase, phase_of
from libs.rollout.decide.pool_decider import PoolDecider
from libs.rollout.decide.wait_tracker import WaitTracker
from libs.rollout.decide.wake_queue import WakeQueue, next_wake
from libs.rollout.decision import Candidate, NodeOutcome, Step, Wait
from libs.rollout.node_writes import upgrade_lease
from libs.rollout.reconcile.evaluation import PoolEvaluation
from libs.rollout.step import step
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.wait_reasons import NO_ACTION_NEEDED, wait


class NodePools:
    """The pools of one node."""

    __slots__ = ("counting", "governing", "phase", "selected")

    def __init__(self) -> None:
        self.governing: PoolDecider | None = None
        """The pool whose rules the node follows."""
        self.counting: tuple[PoolDecider, ...] = ()
        """The pools in which it counts."""
        self.selected: PoolDecider | None = None
        """The pool whose status counts its phase."""
        self.phase = NodePhase.WAITING

    def assign(
        self, name: str, decider: PoolDecider | None, counting: tuple[PoolDecider, ...]
    ) -> None:
        self.governing, self.counting = decider, counting
        if decider is not None:
            decider.names.add(name)

    def unassign(self, name: str) -> None:
        if self.governing is not None:
            self.governing.queues.drop(name)
            self.governing.names.discard(name)
            self.governing.dirty = True
        self.count_phase(None, self.phase)

    def count_phase(self, selected: PoolDecider | None, phase: NodePhase) -> None:
        previous = self.selected
        if previous is selected and self.phase is phase:
            return
        if previous is not None:
            previous.phase_counts[self.phase] -= 1
            previous.dirty = True
        if selected is not None:
            selected.phase_counts[phase] += 1
            selected.dirty = True
        self.selected, self.phase = selected, phase


class OutcomeTracker:
    def __init__(self) -> None:
        self.waits = WaitTracker()
        self.wakes = WakeQueue()
        self.steps: dict[str, Step] = {}
        self.evicting: set[str] = set()
        """Nodes with evictions that are no longer wanted."""
        self._leased: set[str] = set()
        self._unsettled: set[str] = set()
        """Nodes with a wait detail that changes with time."""
        self._tracked: set[str] = set()
        """Nodes in any of the four sets above."""

    def to_revisit(self, now: Instant) -> set[str]:
        """Return nodes to step at every decision: their last step is not in effect yet."""
        names = self.steps.keys() | self._unsettled
        return names | self._leased if now.visibility.bus_down_since is not None else names

    def forget(self, name: str) -> None:
        self.waits.forget(name)
        self.wakes.put(name, None)
        self._untrack(name)

    def update(self, node: NodeView, pools: NodePools, now: Instant) -> None:
        """Step the node and store its outcome."""
        name, decider = node.name, pools.governing
        if name in self._tracked:
            self._untrack(name)
        if decider is None:
            self.waits.put(name, None, None)
            self.wakes.put(name, None)
            if node.evictions:
                self._track(self.evicting, name)
            return
        decider.dirty = True
        evaluation = decider.evaluation
        outcome = step(node, decider.constrained_view, now)
        self._count(node, pools, outcome)
        constrained = outcome if outcome is None else constrain(node, outcome, evaluation, now)
        due = self._keep(node, decider, constrained, now)
        leased = node.lease is not None and upgrade_lease(node) is not None
        if leased:
            self._track(self._leased, name)
        if node.evictions and (evaluation.constraints.frozen or not leased):
            self._track(self.evicting, name)
        if outcome is not None and _is_stale(outcome):
            self._track(self._unsettled, name)
        for counted in pools.counting:
            ends = counted.tally.contribution(node.uid).due
            due = ends if due is None or (ends is not None and ends < due) else due
        self.wakes.put(
            name, next_wake(node, None if node.write_pending else constrained, due, now.at)
        )

    def _track(self, names: set[str], name: str) -> None:
        names.add(name)
        self._tracked.add(name)

    def _untrack(self, name: str) -> None:
        self._tracked.discard(name)
        self.steps.pop(name, None)
        for names in (self._leased, self.evicting, self._unsettled):
            names.discard(name)

    def _keep(
        self, node: NodeView, decider: PoolDecider, outcome: NodeOutcome, now: Instant
    ) -> float | None:
        """Store the outcome; return when time alone changes it."""
        name = node.name
        if isinstance(outcome, Candidate):
            before, contribution = self.waits.codes.get(name), decider.tally.contribution(node.uid)
            status, queue = decider.queues.put(
                node, outcome, contribution, decider.tally, before=before, now=now.at
            )
            is_blocked = status.wait is not None and decider.evaluation.blocked_by is not None
            wait = withdrawn_entry_wait(decider.evaluation, now) if is_blocked else status.wait
            self.waits.put(name, wait, queue)
            return status.due
        decider.queues.drop(name)
        wait = outcome.wait if isinstance(outcome, Step) else outcome
        if isinstance(outcome, Step) and outcome.actions and not node.write_pending:
            self.steps[name], wait = outcome, None
            self._tracked.add(name)
        self.waits.put(name, wait, None)
        return None

    @staticmethod
    def _count(node: NodeView, pools: NodePools, outcome: NodeOutcome) -> None:
        decider = pools.governing
        if decider is not None and decider.view.key == node.pool:
            pools.count_phase(decider, phase_of(node, decider.view, outcome))
            return
        selected = [counted for counted in pools.counting if counted.view.key == node.pool]
        pools.count_phase(selected[0] if selected else None, NodePhase.WAITING)


def _is_stale(outcome: NodeOutcome) -> bool:
    wait = outcome.wait if isinstance(outcome, Step) else outcome
    return isinstance(wait, Wait) and wait.code is WaitCode.STALE


def constrain(
    node: NodeView, outcome: NodeOutcome, evaluation: PoolEvaluation, now: Instant
) -> NodeOutcome:
    if outcome is None:
        return None
    constraints = evaluation.constraints
    if constraints.frozen:
        return wait(
            WaitCode.FROZEN, "the Rollout is frozen (spec.brake: Freeze), or was a moment ago", now
        )
    if node.uid in evaluation.withdrawn:
        return withdrawn_entry_wait(evaluation, now)
    if isinstance(outcome, Wait):
        return outcome
    if not constraints.leading:
        detail = "a new scheduler leads, and its epoch is not yet recorded in the Rollout"
        return wait(WaitCode.STALE, detail, now, who=NO_ACTION_NEEDED)
    if isinstance(outcome, Step):
        return _constrain_step(node, outcome, evaluation, now)
    return _constrain_candidate(node, outcome, evaluation, now)


def _constrain_step(
    node: NodeView, step: Step, evaluation: PoolEvaluation, now: Instant
) -> NodeOutcome:
    if node.uid in evaluation.retargeted:
        detail = "the policy wants another target; the change is being recorded in the Rollout"
        return wait(WaitCode.PROOF, detail, now, who=NO_ACTION_NEEDED)
    return step


def _constrain_candidate(
    node: NodeView, candidate: Candidate, evaluation: PoolEvaluation, now: Instant
) -> NodeOutcome:
    if node.uid in evaluation.stored.in_flight:
        return withdrawn_entry_wait(evaluation, now)
    if not node.ready:
        return wait(WaitCode.NOT_READY, "the Node is not Ready", now)
    return candidate


def withdrawn_entry_wait(evaluation: PoolEvaluation, now: Instant) -> Wait:
    """Return the wait of a node whose entry in flight does not hold any more."""
    if evaluation.blocked_by is not None:
        return wait(
            evaluation.blocked_by.code,
            evaluation.blocked_by.detail,
            now,
            who=evaluation.blocked_by.who,
        )
    return wait(
        WaitCode.BUDGET,
        "the granted start is being withdrawn from the Rollout",
        now,
        who=NO_ACTION_NEEDED,
    )
