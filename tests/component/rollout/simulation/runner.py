"""A story told: the engine decides, the stage lives on, acts befall it, until nothing happens any
more; then everything is put right, and every reason to wait is taken away.

Stops at the first thing that is wrong. What is wrong is judged in `judging`.
"""

from collections import Counter
from collections.abc import Callable
from traceback import format_exception

import msgspec

from libs.contracts.waits import WaitCode
from libs.forecast.stage import Latencies, Stage, ViewUpdate
from libs.forecast.world import FleetProfile, SeededWorld, SteadyWorld
from libs.rollout.decide import Decider
from libs.rollout.decide import decide as whole
from libs.rollout.decision import AskPreflight, Decision, Wait
from libs.rollout.views.fleet import Fleet, Instant
from tests.component.rollout.simulation import checks, effect_faults, remedies
from tests.component.rollout.simulation.disturbances import Disturbance, DisturbanceContext, perform
from tests.component.rollout.simulation.scenario import ACTS_UNTIL, START, Scenario, Strike

Decide = Callable[[Fleet, Instant], Decision]
COMPARED = 8
"""Each so-many-th decision on what changed is compared with one on everything."""
HEALED_AT = ACTS_UNTIL + 1800.0
"""When all that was broken is put right."""
PATIENCE = 9 * 3600.0
"""Virtual seconds within which everything must come to rest: the longest back-off is 6 hours."""
STILL = 2 * 3600.0
"""Virtual seconds in which nothing is done but asked, and nobody waits for anything else: then
nothing comes any more, unless somebody waits for a moment that is still ahead."""
SOON = 120.0
"""A moment that comes and comes again, as that of the next question, is no such moment."""
ROUNDS = 8
"""So many times reasons to wait are taken away."""
MOST_DECISIONS = 6000
MOST_STEPS = 400
"""On one node: what does more than that goes round in circles."""
FOR_A_QUESTION = 4
"""So many more decisions for each preflight: they are asked again every minute, for as long as
something stands in the way."""

_ROUGH = FleetProfile(
    crashes=0.05,
    job_endless=0.1,
    unload_busy=0.05,
    load_fails=0.1,
    load_hangs=0.02,
    never_loads=0.05,
    never_validates=0.05,
    validation_fails=0.1,
    validation_hangs=0.03,
    never_boots=0.05,
)


class SimulationResult(msgspec.Struct, kw_only=True):
    """How a story went."""

    scenario: Scenario
    wrong: checks.SimulationFailure | None
    stage: Stage
    strikes: tuple[Strike, ...] = ()
    """The faults of effects that were met."""
    decisions: int = 0
    done: int = 0
    """Nodes in place at the end."""


def run_scenario(scenario: Scenario, decide: Decide | None = None) -> SimulationResult:
    """All of it. With a `decide` that is asked about everything each time; without, the engine
    decides on what changed, as it does in a service, and is compared with itself now and then.
    """
    told = SimulationRun(scenario, decide)
    wrong: checks.SimulationFailure | None = None
    try:
        told.run()
    except checks.SimulationFailure as found:
        wrong = found
    except Exception as error:  # noqa: BLE001 - whatever the engine raises is what was looked for
        last = format_exception(error)[-2:]
        wrong = checks.SimulationFailure(
            "raises", f"{type(error).__name__}: {error}\n{''.join(last)}"
        )
    if wrong is None or wrong.kind in checks.FOUND_AT_END:
        wrong = checks.audit_failure(told.stage, scenario) or wrong
    return SimulationResult(
        scenario=scenario,
        wrong=wrong,
        stage=told.stage,
        strikes=tuple(told.faults.met),
        decisions=told.decisions,
        done=told.done,
    )


class SimulationRun:
    """One story on its way."""

    def __init__(self, scenario: Scenario, decide: Decide | None) -> None:
        self.scenario = scenario
        self._given = decide
        self.decide = decide or whole
        self._mind: Decider | None = None
        world = SeededWorld(
            scenario.seed,
            profile=_ROUGH if scenario.rough else FleetProfile(),
            bad_drivers=scenario.bad,
            unsound_drivers=scenario.unsound,
        )
        self.stage = Stage(
            scenario.pools, scenario.nodes, world=world, start=START, latencies=Latencies()
        )
        self.context = DisturbanceContext.on(self.stage.state)
        self.faults = effect_faults.EffectFaults(scenario)
        self.decisions = 0
        self.done = 0
        self.last = Decision()
        self._steps: Counter[str] = Counter()
        self._asked = 0
        """Preflights."""
        self._zombie: tuple[int, int, Fleet, float] | None = None
        self._leader = self.stage.state.leader
        self._moved = START
        """When anything was done, or waited for, that was not before."""

    def run(self) -> None:
        """The story, and what comes after."""
        for act in self.scenario.acts:
            self._live_until(START + act.at)
            self._act(act)
        self._live_until(START + HEALED_AT if self.scenario.acts else self.stage.now)
        self.faults.stop()
        remedies.repair_everything(self.context)
        self._come_to_rest()
        self.stage.state.world = SteadyWorld()
        for _ in range(ROUNDS):
            waiting = checks.check_at_rest(self.stage, self.last)
            if not waiting:
                break
            remedies.apply_remedies(self.context, waiting)
            self._come_to_rest()
            checks.check_remedied(self.stage, waiting, self.last)
        checks.check_all_in_place(self.stage, self.last)
        self.done = len(self.stage.state.nodes)
        self._lead_again()

    def _act(self, act: Disturbance) -> None:
        self.stage.state.log(f"--- {act.what} {act.node or act.pool} {act.value}".rstrip())
        before = self.stage.state.leader
        seen = self.stage.fleet()
        perform(self.context, act)
        if self.stage.state.leader != before:
            self._mind = None
        if self.stage.state.leader != before and self.scenario.zombie:
            until = self.stage.now + self.scenario.zombie
            self._zombie = (before, self._epoch, seen, until)
        self._epoch = self.stage.epoch
        self._look()

    _epoch = 1

    # Living.

    def _live_until(self, end: float) -> None:
        while True:
            due = self._next()
            if due is None or due > end:
                self.stage.run_until(end)
                return
            self.stage.run_until(due)
            self._look()

    def _come_to_rest(self) -> None:
        """Until nothing is to happen; things that happen for ever are wrong."""
        end = self.stage.now + PATIENCE
        self._moved = self.stage.now
        self._look()
        while (due := self._next()) is not None:
            if due > end or self._is_still(due):
                return
            self.stage.run_until(due)
            self._look()

    def _is_still(self, due: float) -> bool:
        """Whether nothing would come of waiting on."""
        if due < self._moved + STILL:
            return False
        soon = self.stage.now + SOON
        return all(wait.until is None or wait.until < soon for wait in _said(self.last))

    def _next(self) -> float | None:
        """When there is something to decide next, or to see."""
        state, think = self.stage.state, self.scenario.think
        if state.dirty or state.dirty_pools:
            return self.stage.now + think
        times = [time for time in (self.stage.next_at, self.last.wake_at) if time is not None]
        return max(min(times), self.stage.now) if times else None

    def _look(self) -> None:
        """Decide, if there is a reason to."""
        stage = self.stage
        due = self.last.wake_at is not None and self.last.wake_at <= stage.now
        checks.check_machines(stage)
        if not (stage.state.dirty or stage.state.dirty_pools or due):
            return
        news = stage.pop_view_update()
        self.decisions += 1
        if self.decisions > MOST_DECISIONS + FOR_A_QUESTION * self._asked:
            raise checks.SimulationFailure("restless", f"more than {self.decisions - 1} decisions")
        fleet, now = stage.fleet(), stage.instant()
        decision, rested = self._decided(fleet, now, news)
        checks.check_decision(fleet, now, decision)
        self._count(decision)
        if _moves(self.last, decision):
            self._moved = stage.now
        if due and decision.wake_at is not None and decision.wake_at <= stage.now:
            raise checks.SimulationFailure(
                "restless", f"it wants to decide again at {decision.wake_at}"
            )
        self.last = decision
        stage.carry_out(decision, self.faults.fate, no_longer_waiting=rested)
        self._haunt(now)

    def _decided(
        self, fleet: Fleet, now: Instant, news: ViewUpdate
    ) -> tuple[Decision, tuple[str, ...] | None]:
        """And who waits no more, if the decision does not name everybody."""
        if self._given is not None:
            return self._given(fleet, now), None
        if self._mind is None:
            self._mind = Decider(fleet)
        else:
            self._mind.update(*news)
        told = self._mind.decide(now)
        decision = msgspec.structs.replace(told, waits=dict(self._mind.waits))
        if self.decisions % COMPARED == 0:
            checks.check_same(decision, whole(fleet, now))
        return decision, told.no_longer_waiting

    def _count(self, decision: Decision) -> None:
        for name, step in decision.steps.items():
            if any(not isinstance(action, AskPreflight) for action in step.actions):
                self._steps[name] += 1
                if self._steps[name] > MOST_STEPS:
                    said = f"{name}: {step.because}"
                    raise checks.SimulationFailure(
                        "circles", f"more than {MOST_STEPS} steps; {said}"
                    )
            else:
                self._asked += 1

    def _haunt(self, now: Instant) -> None:
        """A deposed leader decides too, on what it saw when it was deposed."""
        if self._zombie is None:
            return
        leader, epoch, seen, until = self._zombie
        if now.at > until:
            self._zombie = None
            return
        decision = self.decide(seen, msgspec.structs.replace(now, epoch=epoch))
        self.stage.carry_out(decision, self.faults.fate, leader=leader)

    def _lead_again(self) -> None:
        """A restart of ours writes nothing to a Node that is in place, and goes on being so."""
        before = self._runs()
        self.stage.elect()
        self._mind = None
        self._come_to_rest()
        now = self._runs()
        for name, (revision, run) in before.items():
            if now[name][1] == run and now[name][0] != revision:
                raise checks.SimulationFailure(
                    "restart", f"{name} was written by a leader who found it done"
                )

    def _runs(self) -> dict[str, tuple[str, object]]:
        """By node: its revision, and what runs on it."""
        seen = ((name, self.stage.node(name)) for name in self.stage.state.nodes)
        return {
            name: (node.revision, (node.boot_id, node.driver_pods, node.loaded))
            for name, node in seen
            if node is not None
        }


def _said(decision: Decision) -> list[Wait]:
    beside = [step.wait for step in decision.steps.values() if step.wait is not None]
    return [*decision.waits.values(), *beside]


def _moves(before: Decision, decision: Decision) -> bool:
    """Whether more comes of it than a question, or another reason to wait."""
    acts = (action for step in decision.steps.values() for action in step.actions)
    if decision.rollouts or any(not isinstance(action, AskPreflight) for action in acts):
        return True
    return _codes(before) != _codes(decision)


def _codes(decision: Decision) -> list[tuple[str, WaitCode]]:
    steps = decision.steps.items()
    beside = [(name, step.wait.code) for name, step in steps if step.wait is not None]
    return sorted([*((name, wait.code) for name, wait in decision.waits.items()), *beside])
