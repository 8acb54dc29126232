"""Run a scenario: the engine decides, the stage carries out, disturbances occur, until all rests.

Then every fault is repaired and every reason to wait is removed. A run stops at the first failure;
`checks` defines the failures.
"""

from collections import Counter
from collections.abc import Callable
from traceback import format_exception

import msgspec

from libs.contracts.waits import WaitCode
from libs.forecast.seeded_world import FleetProfile
from libs.rollout.decide import Decider, decide
from libs.rollout.decision import AskPreflight, Decision, Wait
from libs.rollout.views.fleet import Fleet, Instant
from libs.testing.stage import Latencies, SimulatedStage, ViewUpdate
from libs.testing.stage.worlds import SeededFleet, SteadyWorld
from tests.component.rollout.simulation import checks, remedies
from tests.component.rollout.simulation.disturbances import Disturbance, DisturbanceContext, perform
from tests.component.rollout.simulation.effect_faults import EffectFaults, NumberedFault
from tests.component.rollout.simulation.scenario import DISTURBED_SECONDS, START, Scenario

Decide = Callable[[Fleet, Instant], Decision]
COMPARE_EVERY = 8
"""Each n-th incremental decision is compared with a decision on the whole fleet."""
REPAIR_AFTER = DISTURBED_SECONDS + 1800.0
"""Seconds from the start at which every fault is repaired."""
REST_WITHIN = 9 * 3600.0
"""Virtual seconds within which the fleet must come to rest: the longest back-off is 6 hours.

A fleet that still moves then is left to come to rest, so that nothing is judged in mid-step.
"""
QUIET_SECONDS = 2 * 3600.0
"""The fleet is at rest when for so long only preflights were asked and no wait code changed,
unless a wait names a moment that is further ahead than `SOON`."""
SOON = 120.0
"""Preflights repeat within this time: their moments say nothing about rest."""
REMEDY_ROUNDS = 8
MAX_DECISIONS = 6000
DECISIONS_PER_PREFLIGHT = 4
"""Further decisions allowed for each preflight: it repeats every minute while it is blocked."""
DEPOSED_PAUSE = 1.0
"""Seconds between two decisions of a deposed leader: its writes fail, and it pauses after each."""
MAX_STEPS = 400
"""Steps on one node after which it counts as a loop."""

_FAILURE_PRONE = FleetProfile(
    crashes=0.05,
    job_endless=0.1,
    unload_busy=0.05,
    load_fails=0.1,
    load_hangs=0.02,
    never_loads=0.05,
    never_validates=0.05,
    validation_fails=0.1,
    validation_hangs=0.03,
)


class SimulationResult(msgspec.Struct, kw_only=True):
    scenario: Scenario
    failure: checks.SimulationFailure | None
    stage: SimulatedStage
    effect_faults: tuple[NumberedFault, ...] = ()
    """The faults of effects that were applied."""
    decisions: int = 0
    nodes_in_place: int = 0
    """Nodes in place at the end."""


def run_scenario(scenario: Scenario, decide_all: Decide | None = None) -> SimulationResult:
    """Run the scenario to its end or to its first failure.

    Without `decide_all`, the engine decides incrementally as in the scheduler, and is compared with
    decisions on the whole fleet at intervals. With it, that function decides on the whole fleet.
    """
    run = _Run(scenario, decide_all)
    wrong: checks.SimulationFailure | None = None
    try:
        run.play()
    except checks.SimulationFailure as failure:
        wrong = failure
    except Exception as error:  # noqa: BLE001 - an exception of the engine is a finding
        last = format_exception(error)[-2:]
        wrong = checks.SimulationFailure(
            "exception", f"{type(error).__name__}: {error}\n{''.join(last)}"
        )
    if wrong is None or wrong.kind in checks.FOUND_AT_END:
        wrong = checks.audit_failure(run.stage, scenario) or wrong
    return SimulationResult(
        scenario=scenario,
        failure=wrong,
        stage=run.stage,
        effect_faults=tuple(run.effect_faults.applied),
        decisions=run.decisions,
        nodes_in_place=run.done,
    )


class _DeposedLeader(msgspec.Struct):
    """A former leader that still decides, on the fleet that it saw last."""

    leader: int
    epoch: int
    fleet: Fleet
    until: float
    paused_until: float = 0.0


class _Run:
    def __init__(self, scenario: Scenario, decide_all: Decide | None) -> None:
        self.scenario = scenario
        self._decide_all = decide_all
        self._decider: Decider | None = None
        world = SeededFleet(
            scenario.seed,
            profile=_FAILURE_PRONE if scenario.failure_prone else FleetProfile(),
            never_boots=0.05 if scenario.failure_prone else 0.002,
            bad_drivers=scenario.never_loads,
            unsound_drivers=scenario.never_validates,
            missing_images=scenario.missing_images,
        )
        self.stage = SimulatedStage(
            scenario.pools, scenario.nodes, world=world, start=START, latencies=Latencies()
        )
        self.context = DisturbanceContext.of(self.stage.state)
        self.effect_faults = EffectFaults(
            scenario.seed, scenario.fault_rates, scenario.effect_faults
        )
        self.decisions = 0
        self.done = 0
        self.last = Decision()
        self._epoch = 1
        self._deposed: _DeposedLeader | None = None
        self._steps: Counter[str] = Counter()
        self._preflights = 0
        self._moved_at = START
        """Time of the last decision that did more than ask for preflights, or changed a wait."""

    def play(self) -> None:
        for disturbance in self.scenario.disturbances:
            self._run_until(START + disturbance.at)
            self._disturb(disturbance)
        if self.scenario.disturbances:
            self._run_until(START + REPAIR_AFTER)
        else:
            self._run_until(self.stage.now)
        self.effect_faults.stop()
        remedies.repair_everything(self.context)
        self._run_to_rest()
        self.stage.state.world = SteadyWorld()
        for _ in range(REMEDY_ROUNDS):
            waits = checks.check_at_rest(self.stage, self.last)
            if not waits:
                break
            remedies.apply_remedies(self.context, waits)
            self._run_to_rest()
            checks.check_remedied(self.stage, waits, self.last)
        checks.check_all_in_place(self.stage, self.last)
        self.done = len(self.stage.state.nodes)
        self._check_restart()

    def _disturb(self, disturbance: Disturbance) -> None:
        affected = disturbance.node or disturbance.pool
        self.stage.state.log(f"--- {disturbance.what} {affected} {disturbance.value}".rstrip())
        leader, fleet = self.stage.state.leader, self.stage.fleet()
        perform(self.context, disturbance)
        if self.stage.state.leader != leader:
            self._decider = None
            if self.scenario.deposed_seconds:
                until = self.stage.now + self.scenario.deposed_seconds
                self._deposed = _DeposedLeader(leader, self._epoch, fleet, until)
        self._epoch = self.stage.epoch
        self._decide_if_due()

    def _run_until(self, end: float) -> None:
        while True:
            due = self._next_at()
            if due is None or due > end:
                self.stage.run_until(end)
                return
            self.stage.run_until(due)
            self._decide_if_due()

    def _run_to_rest(self) -> None:
        end = self.stage.now + REST_WITHIN
        self._moved_at = self.stage.now
        self._decide_if_due()
        while (due := self._next_at()) is not None:
            if self._is_at_rest(due) or due > max(end, self._moved_at + QUIET_SECONDS):
                return
            self.stage.run_until(due)
            self._decide_if_due()

    def _is_at_rest(self, due: float) -> bool:
        if due < self._moved_at + QUIET_SECONDS:
            return False
        soon = self.stage.now + SOON
        return all(wait.until is None or wait.until < soon for _, wait in _all_waits(self.last))

    def _next_at(self) -> float | None:
        """Return when a decision is due or the stage changes next; None: never."""
        state = self.stage.state
        if state.dirty or state.dirty_pools:
            return max(self.stage.now + self.scenario.decision_delay, state.paused_until)
        times = [time for time in (self.stage.next_at, self._wake_at()) if time is not None]
        return max(min(times), self.stage.now) if times else None

    def _wake_at(self) -> float | None:
        """Return when the leader, by its own clock, wants to decide again."""
        wake_at = self.last.wake_at
        return None if wake_at is None else wake_at - self.stage.state.leader_ahead

    def _decide_if_due(self) -> None:
        stage = self.stage
        wake_at = self._wake_at()
        woken = wake_at is not None and wake_at <= stage.now
        checks.check_machines(stage)
        if not (stage.state.dirty or stage.state.dirty_pools or woken):
            return
        if stage.now < stage.state.paused_until:
            return
        update = stage.pop_view_update()
        self.decisions += 1
        if self.decisions > MAX_DECISIONS + DECISIONS_PER_PREFLIGHT * self._preflights:
            raise checks.SimulationFailure("busy", f"more than {self.decisions - 1} decisions")
        fleet, now = stage.fleet(), stage.instant()
        decision, no_longer_waiting = self._decision(fleet, now, update)
        checks.check_decision(fleet, now, decision)
        self._count_steps(decision)
        if _makes_progress(self.last, decision):
            self._moved_at = stage.now
        if woken and decision.wake_at is not None and decision.wake_at <= now.at:
            raise checks.SimulationFailure(
                "busy", f"the next decision is due at once, at {decision.wake_at}"
            )
        self.last = decision
        stage.carry_out(decision, no_longer_waiting, faults_of=self.effect_faults.next_fault)
        self._decide_as_deposed(now)

    def _decision(
        self, fleet: Fleet, now: Instant, update: ViewUpdate
    ) -> tuple[Decision, tuple[str, ...] | None]:
        """Return the decision, and the nodes that no longer wait if it was made incrementally."""
        if self._decide_all is not None:
            return self._decide_all(fleet, now), None
        if self._decider is None:
            self._decider = Decider(fleet)
        else:
            self._decider.update(*update)
        remembered = self._decider.remembered
        delta = self._decider.decide(now)
        decision = msgspec.structs.replace(delta, waits=dict(self._decider.waits))
        if self.decisions % COMPARE_EVERY == 0:
            checks.check_incremental(decision, decide(fleet, now, remembered))
        return decision, delta.no_longer_waiting

    def _count_steps(self, decision: Decision) -> None:
        for name, step in decision.steps.items():
            if all(isinstance(action, AskPreflight) for action in step.actions):
                self._preflights += 1
                continue
            self._steps[name] += 1
            if self._steps[name] > MAX_STEPS:
                raise checks.SimulationFailure(
                    "loop", f"more than {MAX_STEPS} steps; {name}: {step.because}"
                )

    def _decide_as_deposed(self, now: Instant) -> None:
        if self._deposed is None:
            return
        if now.at > self._deposed.until:
            self._deposed = None
            return
        if now.at < self._deposed.paused_until:
            return
        self._deposed.paused_until = now.at + DEPOSED_PAUSE
        earlier_epoch = msgspec.structs.replace(now, epoch=self._deposed.epoch)
        decision = (self._decide_all or decide)(self._deposed.fleet, earlier_epoch)
        self.stage.carry_out(
            decision, faults_of=self.effect_faults.next_fault, leader=self._deposed.leader
        )

    def _check_restart(self) -> None:
        """Check that a new leader writes nothing to a Node that is in place."""
        before = self._revisions()
        self.stage.elect()
        self._decider = None
        self._run_to_rest()
        after = self._revisions()
        for name, (revision, running) in before.items():
            if after[name][1] == running and after[name][0] != revision:
                raise checks.SimulationFailure(
                    "restart", f"a new leader wrote to {name}, which was in place"
                )

    def _revisions(self) -> dict[str, tuple[str, object]]:
        """Return, by node, its revision and what runs on it."""
        nodes = ((name, self.stage.node(name)) for name in self.stage.state.nodes)
        return {
            name: (node.revision, (node.boot_id, node.driver_pods, node.loaded))
            for name, node in nodes
            if node is not None
        }


def _makes_progress(before: Decision, decision: Decision) -> bool:
    """Whether the decision does more than ask for preflights, or changes a wait code."""
    actions = (action for step in decision.steps.values() for action in step.actions)
    if decision.rollouts or any(not isinstance(action, AskPreflight) for action in actions):
        return True
    return _wait_codes(before) != _wait_codes(decision)


def _wait_codes(decision: Decision) -> list[tuple[str, WaitCode]]:
    return sorted((name, wait.code) for name, wait in _all_waits(decision))


def _all_waits(decision: Decision) -> list[tuple[str, Wait]]:
    steps = decision.steps.items()
    step_waits = [(name, step.wait) for name, step in steps if step.wait is not None]
    return [*decision.waits.items(), *step_waits]
