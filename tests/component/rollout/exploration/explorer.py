"""Try every order of events on a small stage, with a bounded number of swaps, a fault and an act.

In the usual order the scheduler decides whenever there is something to decide; otherwise the next
pending event happens. From each state the explorer also lets another pending event happen first, or
the scheduler decide late: each of these is a swap, and a path has only so many. One fault and one
act of a user may happen at any state, or, with a stride, some of them at each. States with equal
hashes are followed once. Machines are checked in every state; where a path comes to rest, the audit
judges its journal and each node must be in place or have a wait that is true.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from libs.audit import judge
from libs.forecast.stage.state import Timer
from libs.rollout.decide import decide
from libs.rollout.decision import Decision
from libs.testing.stage import SimulatedStage
from tests.component.rollout.exploration.state_hash import state_hash
from tests.component.rollout.simulation import checks
from tests.component.rollout.simulation.disturbances import Disturbance, DisturbanceContext, perform

FAR = 7 * 86400.0
"""Seconds after which the explorer does not wait for a wake-up of the scheduler."""
SWAP_WITHIN = 60.0
"""Pending events may swap if they are due within so many seconds of the first."""


class ExplorationStart(msgspec.Struct, frozen=True, kw_only=True):
    """Where an exploration begins, and what may happen once on the way."""

    name: str
    new_stage: Callable[[], SimulatedStage]
    faults: tuple[Disturbance, ...] = ()
    acts: tuple[Disturbance, ...] = ()
    stride: int = 1
    """At each state only every so many-th fault and act may happen, in turn along a path.

    Neighbouring moments lead to the same states more often than not.
    """


class Exploration(msgspec.Struct, frozen=True, kw_only=True):
    states: int
    ends: int
    """Paths that came to rest."""
    complete: bool
    """Every reachable state was explored."""
    failure: str = ""
    """The first failure, and the events that lead to it."""


class Trace(msgspec.Struct, frozen=True):
    """The events that lead to a state, the last one first."""

    event: str
    before: "Trace | None" = None

    def as_text(self) -> str:
        events: list[str] = []
        trace: Trace | None = self
        while trace is not None:
            events.append(trace.event)
            trace = trace.before
        return "\n".join(reversed(events))


class _State(msgspec.Struct, frozen=True, kw_only=True):
    stage: SimulatedStage
    swaps: int
    """Swaps that are left."""
    faults: tuple[Disturbance, ...]
    acts: tuple[Disturbance, ...]
    trace: Trace
    stride: int
    depth: int = 0
    """Events that led here."""
    decided: bool = False
    """The scheduler has decided, and nothing has happened since."""

    def after(self, stage: SimulatedStage, event: str, **changes: Any) -> "_State":
        trace = Trace(f"{stage.now:10.2f} {event}", self.trace)
        return msgspec.structs.replace(
            self, stage=stage, trace=trace, depth=self.depth + 1, **{"decided": False, **changes}
        )

    def in_turn(self, disturbances: tuple[Disturbance, ...]) -> tuple[Disturbance, ...]:
        """Return those that may happen at this state."""
        return disturbances[-self.depth % self.stride :: self.stride]

    def key(self) -> tuple[int, ...]:
        remaining = (self.swaps, len(self.faults), len(self.acts), int(self.decided))
        return (state_hash(self.stage), *remaining)


def explore(start: ExplorationStart, *, swaps: int, most: int) -> Exploration:
    """Explore all paths with at most so many swaps, up to `most` states."""
    first = _State(
        stage=start.new_stage(),
        swaps=swaps,
        faults=start.faults,
        acts=start.acts,
        trace=Trace(start.name),
        stride=start.stride,
    )
    queue = deque([first])
    known = {first.key()}
    ends = 0
    while queue and len(known) < most:
        state = queue.popleft()
        successors = list(_successors(state))
        for successor in successors:
            wrong = _machine_failure(successor.stage)
            if wrong:
                return _failed(len(known), ends, wrong, successor)
            key = successor.key()
            if key not in known:
                known.add(key)
                queue.append(successor)
        if not any(each.faults == state.faults and each.acts == state.acts for each in successors):
            ends += 1
            wrong = _failure_at_rest(state.stage)
            if wrong:
                return _failed(len(known), ends, wrong, state)
    return Exploration(states=len(known), ends=ends, complete=not queue)


def _failed(states: int, ends: int, wrong: str, state: _State) -> Exploration:
    text = f"{wrong}\n{state.trace.as_text()}"
    return Exploration(states=states, ends=ends, complete=False, failure=text)


def _successors(state: _State) -> Iterator[_State]:
    stage = state.stage
    decision = decide(stage.fleet(), stage.instant())
    decides = not state.decided and _has_effects(decision)
    if decides:
        after = stage.copy()
        after.carry_out(decision)
        yield state.after(after, "the scheduler decides", decided=True)
    pending = stage.pending()
    wake = decision.wake_at
    next_event = pending[0].at if pending else stage.now + FAR
    if not decides and wake is not None and stage.now < wake < next_event:
        after = stage.copy()
        after.run_until(wake)
        yield state.after(after, "time passes")
    for number, due in enumerate(pending):
        swaps = state.swaps - (1 if decides or number else 0)
        if swaps < 0 or due.at > pending[0].at + SWAP_WITHIN:
            break
        after = stage.copy()
        after.fire(next(timer for timer in after.pending() if timer.entry == due.entry))
        yield state.after(after, _due_text(due), swaps=swaps)
    for fault in state.in_turn(state.faults):
        yield state.after(_disturbed(stage, fault), _text(fault), faults=())
    for act in state.in_turn(state.acts):
        yield state.after(_disturbed(stage, act), _text(act), acts=())


def _due_text(due: Timer) -> str:
    values = (getattr(value, "__name__", value) for value in due.values)
    return f"{due.callback.__name__}({', '.join(map(str, values))})"


def _text(disturbance: Disturbance) -> str:
    return f"--- {disturbance.what} {disturbance.value}"


def _has_effects(decision: Decision) -> bool:
    return bool(
        decision.rollouts
        or decision.cancelled
        or decision.probes
        or any(step.actions for step in decision.steps.values())
    )


def _disturbed(stage: SimulatedStage, disturbance: Disturbance) -> SimulatedStage:
    after = stage.copy()
    perform(DisturbanceContext.of(after.state), disturbance)
    return after


def _machine_failure(stage: SimulatedStage) -> str:
    try:
        checks.check_machines(stage)
    except checks.SimulationFailure as failure:
        return str(failure)
    return ""


def _failure_at_rest(stage: SimulatedStage) -> str:
    last = decide(stage.fleet(), stage.instant())
    if not _has_effects(last):
        stage = stage.copy()
        stage.carry_out(last)  # which reports the waits
    violations = judge(stage.journal(), faults=True).violations
    if violations:
        return f"{violations[0].invariant}: {violations[0].message}"
    try:
        checks.check_decision(stage.fleet(), stage.instant(), last)
        checks.check_at_rest(stage, last)
    except checks.SimulationFailure as failure:
        return str(failure)
    return ""
