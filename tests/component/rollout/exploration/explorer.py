"""Every order of events on a small stage, up to so many swaps, with a fault and an act in between.

The usual order is: the scheduler decides whenever there is something to decide, else what is due
first happens. From each state it is also tried that something else which is pending happens before,
or that the scheduler looks late: each is a swap, and a path has only so many. One fault may strike
and one person may act, anywhere. A state is taken up once for each likeness. Checked is in each:
nothing on a machine that must never be; where a path comes to rest: every promise, by the audit,
and that nobody waits in silence.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from libs.audit import judge
from libs.forecast.stage import Stage
from libs.rollout.decide import decide
from libs.rollout.decision import Decision
from tests.component.rollout.exploration.state_hash import state_hash
from tests.component.rollout.simulation import checks
from tests.component.rollout.simulation.disturbances import Disturbance, DisturbanceContext, perform

Key = tuple[int, ...]

FAR = 7 * 86400.0
"""Seconds after which nothing that merely comes due is waited for."""

REACH = 60.0
"""Seconds within which two pending things may swap places: beyond it the later one is later."""


class ExplorationStart(msgspec.Struct, frozen=True, kw_only=True):
    """Where an exploration begins, and what may come between, once each."""

    name: str
    opened: Callable[[], Stage]
    faults: tuple[Disturbance, ...] = ()
    acts: tuple[Disturbance, ...] = ()


class Trace(msgspec.Struct, frozen=True):
    """How a state was reached, the last move first."""

    move: str
    before: "Trace | None" = None

    def as_text(self) -> str:
        """The moves in their order."""
        moves: list[str] = []
        here: Trace | None = self
        while here is not None:
            moves.append(here.move)
            here = here.before
        return "\n".join(reversed(moves))


class ExplorationState(msgspec.Struct, frozen=True, kw_only=True):
    """A state, and what may still strike on the way from it."""

    stage: Stage
    swaps: int
    faults: tuple[Disturbance, ...]
    acts: tuple[Disturbance, ...]
    trace: Trace
    decided: bool = False
    """The scheduler has looked, and nothing has happened since."""

    def then(self, stage: Stage, move: str, **changes: Any) -> "ExplorationState":
        """The state after a move."""
        trace = Trace(f"{stage.now:10.2f} {move}", self.trace)
        after = {"decided": False, **changes}
        return msgspec.structs.replace(self, stage=stage, trace=trace, **after)


class Exploration(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    states: int
    ends: int
    """Paths that came to rest."""
    whole: bool
    """Nothing was left to be explored."""
    wrong: str = ""
    """The first thing that is wrong, and how it came about."""


def explore(scene: ExplorationStart, *, swaps: int, most: int) -> Exploration:
    """All paths with at most so many swaps, up to so many states."""
    first = ExplorationState(
        stage=scene.opened(),
        swaps=swaps,
        faults=scene.faults,
        acts=scene.acts,
        trace=Trace(scene.name),
    )
    waiting = deque([first])
    known = {_key(first)}
    ends = 0
    while waiting and len(known) < most:
        point = waiting.popleft()
        after = list(_moves(point))
        for each in after:
            wrong = _on_machines(each.stage)
            if wrong:
                return _ended(known, ends, wrong, each)
            key = _key(each)
            if key not in known:
                known.add(key)
                waiting.append(each)
        if not any(each.faults == point.faults and each.acts == point.acts for each in after):
            ends += 1
            wrong = _at_rest(point.stage)
            if wrong:
                return _ended(known, ends, wrong, point)
    return Exploration(states=len(known), ends=ends, whole=not waiting)


def _ended(known: set[Key], ends: int, wrong: str, point: ExplorationState) -> Exploration:
    said = f"{wrong}\n{point.trace.as_text()}"
    return Exploration(states=len(known), ends=ends, whole=False, wrong=said)


def _key(point: ExplorationState) -> Key:
    left = (point.swaps, len(point.faults), len(point.acts), int(point.decided))
    return (state_hash(point.stage), *left)


def _moves(point: ExplorationState) -> Iterator[ExplorationState]:
    stage = point.stage
    decision = decide(stage.fleet(), stage.instant())
    decides = not point.decided and _does(decision)
    if decides:
        mine = stage.copy()
        mine.carry_out(decision)
        yield point.then(mine, "the scheduler decides", decided=True)
    pending = stage.pending()
    wake = decision.wake_at
    before = pending[0].at if pending else stage.now + FAR
    if not decides and wake is not None and stage.now < wake < before:
        later = stage.copy()
        later.run_until(wake)
        yield point.then(later, "time passes")
    for number, due in enumerate(pending):
        swaps = point.swaps - (1 if decides or number else 0)
        if swaps < 0 or due.at > pending[0].at + REACH:
            break
        theirs = stage.copy()
        theirs.fire(next(each for each in theirs.pending() if each.entry == due.entry))
        yield point.then(theirs, due.text, swaps=swaps)
    for act in point.faults:
        yield point.then(_struck(stage, act), f"--- {act.what} {act.value}", faults=())
    for act in point.acts:
        yield point.then(_struck(stage, act), f"--- {act.what} {act.value}", acts=())


def _does(decision: Decision) -> bool:
    return bool(
        decision.rollouts
        or decision.cancelled
        or decision.probes
        or any(step.actions for step in decision.steps.values())
    )


def _struck(stage: Stage, act: Disturbance) -> Stage:
    struck = stage.copy()
    perform(DisturbanceContext.on(struck.state), act)
    return struck


def _on_machines(stage: Stage) -> str:
    try:
        checks.check_machines(stage)
    except checks.SimulationFailure as wrong:
        return str(wrong)
    return ""


def _at_rest(stage: Stage) -> str:
    """What is wrong with a path that came to rest; empty: nothing."""
    found = judge(stage.journal(), faults=True).violations
    if found:
        return f"{found[0].invariant}: {found[0].message}"
    last = decide(stage.fleet(), stage.instant())
    try:
        checks.check_decision(stage.fleet(), stage.instant(), last)
        checks.check_at_rest(stage, last)
    except checks.SimulationFailure as wrong:
        return str(wrong)
    return ""
