"""The outcome of each node: a step, a place in a queue, or a wait; and when to step it again."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from libs.rollout.decision import Candidate, NodeOutcome, Step, Wait
from libs.rollout.pool.pool_decider import PoolDecider
from libs.rollout.step import NodePhase, step_in_pool, withdrawn_entry_wait
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.wait_tracker import WaitTracker, WakeQueue

_NEVER: Final = float("inf")


class NodePools:
    """The pools of one node."""

    __slots__ = ("counting", "governing", "phase", "selected")

    def __init__(self) -> None:
        self.governing: PoolDecider | None = None
        """The pool that sets the rules for the node."""
        self.counting: tuple[PoolDecider, ...] = ()
        """The pools in which it counts."""
        self.selected: PoolDecider | None = None
        """The pool that counts the node's phase in its status."""
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
            self.governing.held_up.discard(name)
            self.governing.dirty = True
        self.count_phase(name, None, self.phase)

    def count_phase(self, name: str, selected: PoolDecider | None, phase: NodePhase) -> None:
        previous = self.selected
        if previous is selected and self.phase is phase:
            return
        if previous is not None:
            previous.drop_phase(name, self.phase)
        if selected is not None:
            selected.put_phase(name, phase)
        self.selected, self.phase = selected, phase


class OutcomeTracker:
    def __init__(self) -> None:
        self.waits = WaitTracker()
        self.wakes = WakeQueue()
        self.steps: dict[str, Step] = {}
        self.evicting: set[str] = set()
        """Nodes with evictions that are no longer wanted."""
        self.probes: dict[str, tuple[str, ...]] = {}
        """By node name: the sources that it waits for to prove that they are current."""
        self._leased: set[str] = set()
        self._unsettled: set[str] = set()
        """Nodes with a wait detail that changes with time."""
        self._tracked: set[str] = set()
        """Nodes in any of the five collections above."""

    def to_step(self, now: Instant) -> tuple[list[str], set[str]]:
        """Return the nodes that are due, and those to step in every decision.

        The last step of the latter is not in effect yet, or their wait changes with time.
        """
        unsettled = self.steps.keys() | self._unsettled
        if now.visibility.bus_down_since is not None:
            unsettled |= self._leased
        return self.wakes.pop_due(now.at), unsettled

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
        outcome, phase, leased, is_stale = step_in_pool(
            node, decider.constrained_view, evaluation, now
        )
        if decider.view.key == node.pool:
            pools.count_phase(name, decider, phase)
        else:
            selected = [counted for counted in pools.counting if counted.view.key == node.pool]
            pools.count_phase(name, selected[0] if selected else None, NodePhase.WAITING)
        due = self._store(node, decider, outcome, now)
        if leased:
            self._track(self._leased, name)
        if node.evictions and (evaluation.constraints.frozen or not leased):
            self._track(self.evicting, name)
        if is_stale:
            self._track(self._unsettled, name)
        for counted in pools.counting:
            ends = counted.tally.contributions[node.uid].due
            due = ends if due is None or (ends is not None and ends < due) else due
        self.wakes.put(name, next_wake(node, None if node.write_pending else outcome, due, now.at))

    def _track(self, names: set[str], name: str) -> None:
        names.add(name)
        self._tracked.add(name)

    def _untrack(self, name: str) -> None:
        self._tracked.discard(name)
        self.steps.pop(name, None)
        self.probes.pop(name, None)
        for names in (self._leased, self.evicting, self._unsettled):
            names.discard(name)

    def _store(
        self, node: NodeView, decider: PoolDecider, outcome: NodeOutcome, now: Instant
    ) -> float | None:
        """Store the outcome; return the time at which it changes by itself."""
        name = node.name
        if isinstance(outcome, Candidate):
            status, queue = decider.queues.enqueue(
                node, outcome, decider.tally, before=self.waits.codes.get(name), now=now.at
            )
            decider.held_up.discard(name)
            block = decider.evaluation.block_of(by_hand=outcome.by_hand)
            is_blocked = status.wait is not None and block is not None
            wait = withdrawn_entry_wait(decider.evaluation, now) if is_blocked else status.wait
            self.waits.put(name, wait, queue)
            return status.due
        if name in decider.queues.candidates:
            decider.queues.drop(name)
        wait = outcome.wait if isinstance(outcome, Step) else outcome
        decider.put_wait(name, wait)
        if isinstance(outcome, Step) and outcome.probes and not node.write_pending:
            self.probes[name] = outcome.probes
            self._tracked.add(name)
        if isinstance(outcome, Step) and outcome.actions and not node.write_pending:
            self.steps[name], wait = outcome, None
            self._tracked.add(name)
        self.waits.put(name, wait, None)
        return None

    def publish(
        self, nodes: Iterable[NodeView], preflight_steps: Mapping[str, Step], at: float
    ) -> tuple[dict[str, Step], dict[str, Wait], list[str]]:
        """Return the steps of these nodes, waits that changed, names without a wait."""
        waits, cleared = self.waits, list[str]()
        steps: dict[str, Step] = {}
        changed_waits: dict[str, Wait] = {}
        for node in nodes:
            name = node.name
            step = self.steps.get(name) or preflight_steps.get(name)
            if node.write_pending:
                waits.hide(name)
            elif step is not None:
                wait = waits.wait_beside_step(name, step.wait, at)
                steps[name] = step if wait is step.wait else replace(step, wait=wait)
            elif (wait := waits.update(name, at)) is not None:
                changed_waits[name] = wait
            elif name not in waits and waits.clear(name):
                cleared.append(name)
        return steps, changed_waits, cleared


def next_wake(node: NodeView, outcome: NodeOutcome, due: float | None, now: float) -> float | None:
    """Return the time to step the node again even if nothing about it changes."""
    earliest = _NEVER if due is None or due <= now else due
    if outcome is None:
        return earliest if earliest < _NEVER else None
    for component in node.components.values():
        if now < component.silent_at < earliest:
            earliest = component.silent_at
    for time in _own_times(outcome):
        if time is not None and now < time < earliest:
            earliest = time
    return earliest if earliest < _NEVER else None


def _own_times(outcome: NodeOutcome) -> tuple[float | None, ...]:
    if isinstance(outcome, Wait):
        return (outcome.until,)
    if isinstance(outcome, Step):
        return (outcome.wake_at, outcome.wait.until if outcome.wait is not None else None)
    return ()
