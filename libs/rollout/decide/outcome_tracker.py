"""The outcome of each node: a step, a place in a queue, or a wait."""

from libs.contracts.waits import WaitCode
from libs.rollout.decide.constrain import constrain, withdrawn_entry_wait
from libs.rollout.decide.node_phase import NodePhase, phase_of
from libs.rollout.decide.pool_decider import PoolDecider
from libs.rollout.decide.wait_tracker import WaitTracker
from libs.rollout.decide.wake_queue import WakeQueue, next_wake
from libs.rollout.decision import Candidate, NodeOutcome, Step, Wait
from libs.rollout.node_writes import upgrade_lease
from libs.rollout.step import step
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView


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

    def assign(self, name: str, book: PoolDecider | None, homes: tuple[PoolDecider, ...]) -> None:
        self.governing, self.counting = book, homes
        if book is not None:
            book.names.add(name)

    def unassign(self, name: str) -> None:
        if self.governing is not None:
            self.governing.queues.drop(name)
            self.governing.names.discard(name)
            self.governing.dirty = True
        self.count_phase(None, self.phase)

    def count_phase(self, selected: PoolDecider | None, place: NodePhase) -> None:
        had = self.selected
        if had is selected and self.phase is place:
            return
        if had is not None:
            had.phase_counts[self.phase] -= 1
            had.dirty = True
        if selected is not None:
            selected.phase_counts[place] += 1
            selected.dirty = True
        self.selected, self.phase = selected, place


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
        self._odd: set[str] = set()
        """Nodes in any of the four sets above."""

    def to_revisit(self, now: Instant) -> set[str]:
        """Return nodes to step at every decision: their last step is not in effect yet."""
        names = self.steps.keys() | self._unsettled
        return names | self._leased if now.visibility.bus_down_since is not None else names

    def forget(self, name: str) -> None:
        self.waits.forget(name)
        self.wakes.put(name, None)
        self._forget_oddities(name)

    def update(self, node: NodeView, row: NodePools, now: Instant) -> None:
        """Step the node and store its outcome."""
        name, book = node.name, row.governing
        if name in self._odd:
            self._forget_oddities(name)
        if book is None:
            self.waits.put(name, None, None)
            self.wakes.put(name, None)
            if node.evictions:
                self._note(self.evicting, name)
            return
        book.dirty = True
        made = book.evaluation
        outcome = step(node, book.constrained_view, now)
        self._count(node, row, outcome)
        here = outcome if outcome is None else constrain(node, outcome, made, now)
        due = self._keep(node, book, here, now)
        leased = node.lease is not None and upgrade_lease(node) is not None
        if leased:
            self._note(self._leased, name)
        if node.evictions and (made.constraints.frozen or not leased):
            self._note(self.evicting, name)
        if outcome is not None and _is_stale(outcome):
            self._note(self._unsettled, name)
        for home in row.counting:
            ends = home.tally.contribution(node.uid).due
            due = ends if due is None or (ends is not None and ends < due) else due
        self.wakes.put(name, next_wake(node, None if node.write_pending else here, due, now.at))

    def _note(self, names: set[str], name: str) -> None:
        names.add(name)
        self._odd.add(name)

    def _forget_oddities(self, name: str) -> None:
        self._odd.discard(name)
        self.steps.pop(name, None)
        for names in (self._leased, self.evicting, self._unsettled):
            names.discard(name)

    def _keep(
        self, node: NodeView, book: PoolDecider, outcome: NodeOutcome, now: Instant
    ) -> float | None:
        """Store the outcome; return when time alone changes it."""
        name = node.name
        if isinstance(outcome, Candidate):
            before, borne = self.waits.codes.get(name), book.tally.contribution(node.uid)
            asked, line = book.queues.put(
                node, outcome, borne, book.tally, before=before, now=now.at
            )
            stopped = asked.wait is not None and book.evaluation.blocked_by is not None
            own = withdrawn_entry_wait(book.evaluation, now) if stopped else asked.wait
            self.waits.put(name, own, line)
            return asked.due
        book.queues.drop(name)
        own = outcome.wait if isinstance(outcome, Step) else outcome
        if isinstance(outcome, Step) and outcome.actions and not node.write_pending:
            self.steps[name], own = outcome, None
            self._odd.add(name)
        self.waits.put(name, own, None)
        return None

    @staticmethod
    def _count(node: NodeView, row: NodePools, outcome: NodeOutcome) -> None:
        book = row.governing
        if book is not None and book.view.key == node.pool:
            row.count_phase(book, phase_of(node, book.view, outcome))
            return
        selected = [home for home in row.counting if home.view.key == node.pool]
        row.count_phase(selected[0] if selected else None, NodePhase.WAITING)


def _is_stale(outcome: NodeOutcome) -> bool:
    wait = outcome.wait if isinstance(outcome, Step) else outcome
    return isinstance(wait, Wait) and wait.code is WaitCode.STALE
