"""Play our engine on a fleet: duration, cost, and the harm done by a bad driver.

The production engine decides, and a stage with the latencies of a cluster
(`libs.forecast.stage.latencies`) carries the decisions out. World, jobs and accounting are those of
the incumbent. All figures are simulated, none is measured on a cluster. As for the incumbent,
requests only fail by conflicts, no process restarts and no person touches a node. Not counted for
either: requests of validators for their own pods, watches of whole kinds and leader leases. Only
ours has commands on the bus; they are counted separately, without their one to six reports each.
"""

from typing import Any, cast

from msgspec.structs import replace

from bench.comparison import ComparedFleet, UpgradeFigures, startup_probe_end
from bench.ours_costs import PAUSES, RequestCounter
from bench.ours_jobs import StageJobs
from bench.ours_node_runs import NodeRuns
from libs.contracts.node import UpgradeState
from libs.forecast.play_recorder import PlayRecorder
from libs.forecast.stage.driver_pods import CONTAINER
from libs.forecast.stage.objects import DriverPodPhase
from libs.forecast.stage.state import StageState
from libs.forecast.stage.views import SOURCES
from libs.forecast.world import RUNS_FOREVER, ProcessEnd, TimeSpan, WorldModel
from libs.policy.kinds.upgrade_policy import PodDeletion, UpgradePolicy, WaitForCompletion
from libs.rollout.decide import Decider, DecisionDelta
from libs.rollout.decision import AskPreflight
from libs.rollout.views.fleet import SourceState
from libs.rollout.views.pool import Build, PoolView, RolloutView
from libs.testing.stage import SimulatedStage, SimulatedState, StageNodeSpec, UserActions
from libs.testing.stage import ViewUpdate as Changes

START = 1e6
HOUR = 3600.0
HORIZON = 90 * 24 * HOUR
"""The longest simulated rollout."""
BOOKMARK = 60.0
"""Seconds between two bookmarks on a quiet watch."""

_POOL = "nvidiadriver-all"
_OLD = "old"
_VARIANT = "ubuntu24.04"


def ours(fleet: ComparedFleet, world: WorldModel, *, target: str = "new") -> UpgradeFigures:
    """Play a rollout until it ends or stops making progress; `target` names the driver."""
    if fleet.podless:
        raise ValueError(f"nodes without a driver pod cannot be played: {[*fleet.podless]}")
    return _Play(fleet, world, target).run()


class _Play:
    def __init__(self, fleet: ComparedFleet, world: WorldModel, target: str) -> None:
        self._fleet = fleet
        self._target = target
        self._stage = _stage(fleet, world, target)
        state = self._stage.state
        self._requests = state.recorder = RequestCounter()
        self._jobs = StageJobs(state, fleet=fleet, world=world)
        self._runs = NodeRuns(state, target)
        self._commands = _commands(state)
        _send_bookmarks(state)
        views = self._stage.fleet()
        self._decider = Decider(views)
        self._watch = PlayRecorder(views, _POOL, START)

    def run(self) -> UpgradeFigures:
        stage, decider, watch = self._stage, self._decider, self._watch
        changed_nodes = stage.pop_view_update().nodes
        while True:
            decision = decider.decide(stage.instant())
            self._note(decision)
            stage.carry_out(decision, decision.no_longer_waiting)
            watch.observe_decision(stage.now, decision, decider.waits, changed_nodes)
            changes = self._next(decision)
            if changes is None:
                return self._figures()
            watch.observe(stage.now, changes.nodes, changes.pools)
            decider.update(changes.nodes, changes.nodes_gone, changes.pools)
            changed_nodes = changes.nodes

    def _next(self, decision: DecisionDelta) -> Changes | None:
        """Advance the time to the next decision; return None at the end of the rollout."""
        stage, state = self._stage, self._stage.state
        while True:
            times = (stage.next_at, decision.wake_at, START + HORIZON)
            time = min(time for time in times if time is not None)
            if time >= START + HORIZON or self._watch.is_over(time, self._decider.waits):
                return None
            stage.run_until(time)
            self._runs.moment(state)
            woken = decision.wake_at is not None and stage.now >= decision.wake_at
            if woken or state.dirty or state.dirty_pools:
                return stage.pop_view_update()

    def _note(self, decision: DecisionDelta) -> None:
        self._requests.prove(decision.probes)
        asks = (act for step in decision.steps.values() for act in step.actions)
        if decision.rollouts or any(isinstance(act, AskPreflight) for act in asks):
            self._runs.asks()
        self._runs.decided(self._stage.state)

    def _figures(self) -> UpgradeFigures:
        state, runs, requests = self._stage.state, self._runs, self._requests
        self._jobs.settle(runs.changed)
        runs.pod_watches.follow((), state.now)
        started = [run for run in runs.of.values() if run.started is not None]
        starts = [run.started or 0.0 for run in started]
        named = [run.failed for run in started if run.failed is not None]
        outcomes = [self._outcome(name) for name in state.nodes]
        accounts = self._jobs.accounts.values()
        nodes = self._fleet.nodes
        return UpgradeFigures(
            nodes=nodes,
            done=outcomes.count("done"),
            failed=outcomes.count("failed"),
            waiting=outcomes.count("waiting"),
            unproven=runs.unproven,
            lasted=runs.changed - START,
            idle=sum(run.idle for run in started) / max(1, len(started)),
            reads=(requests.reads + runs.pod_watches.reads) / nodes,
            writes=(requests.writes + PAUSES * runs.pauses) / nodes,
            events=runs.events / nodes,
            commands=(_commands(state) - self._commands) / nodes,
            evictions=requests.evictions,
            refusals=requests.refusals,
            gpu_hours_idle=sum(account.idle for account in accounts) / HOUR,
            gpu_hours_redone=sum(account.redone for account in accounts) / HOUR,
            harmed=sum(
                run.started is not None and not self._works(name) for name, run in runs.of.items()
            ),
            started_for=max(starts) - min(starts) if starts else None,
            named_after=min(named) - min(starts) if named else None,
        )

    def _outcome(self, name: str) -> str:
        node = self._stage.state.nodes[name]
        view = self._stage.node(name)
        if view is None:
            raise RuntimeError(f"{name} has vanished from the stage, although no node is deleted")
        if view.state == UpgradeState.UPGRADE_FAILED:
            return "failed"
        label = node.view.driver_label
        if view.state == UpgradeState.UPGRADE_DONE and label == self._target and self._works(name):
            return "done"
        return "skipped" if view.skip else "waiting"

    def _works(self, name: str) -> bool:
        """Return whether the new driver runs on a machine."""
        return any(
            pod.label == self._target and pod.phase is DriverPodPhase.RUNNING and pod.status.ready
            for pod in self._stage.state.machines[name].drivers.values()
        )


class ProbedWorld:
    """Another world in which a loaded driver is ready once its startup probe succeeds.

    Drivers that end after they were ready are left out, as in the incumbent's machine.
    """

    def __init__(self, world: WorldModel, *, restart_only: bool) -> None:
        """`restart_only`: the driver stays loaded and only has to become ready."""
        self._world = world
        self._restart_only = restart_only

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def ready(self, *_: object) -> TimeSpan:
        return TimeSpan(0.0)

    def run(self, *_: object) -> ProcessEnd:
        return RUNS_FOREVER

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        if self._restart_only:
            ready = self._world.ready(node, driver, CONTAINER, attempt)
            return startup_probe_end(ProcessEnd(ready.seconds))
        return startup_probe_end(self._world.load(node, driver, attempt))


def _stage(fleet: ComparedFleet, world: WorldModel, target: str) -> SimulatedStage:
    plans = [
        StageNodeSpec(
            name=name,
            pool=_POOL,
            variant=_VARIANT,
            gpus=fleet.gpus,
            target=_OLD,
            cordoned_by="kubectl-cordon" if name in fleet.cordoned else "",
        )
        for name in fleet.names
    ]
    probed = cast("WorldModel", ProbedWorld(world, restart_only=fleet.restart_only))
    stage = SimulatedStage(
        [_pool(fleet, target)], plans, world=probed, start=START, journalled=False
    )
    stage.state.latencies = replace(stage.state.latencies, grace_period=fleet.grace)
    actions = UserActions(stage.state)
    for name in sorted(fleet.skipped):
        actions.set_skip(name, skip=True)
    for name in sorted(fleet.not_ready):
        stage.state.machines[name].kubelet_connected = False
        stage.state.nodes[name].show(ready=False)
    return stage


def _pool(fleet: ComparedFleet, target: str) -> PoolView:
    builds = {
        driver: {
            _VARIANT: Build(
                label=driver, install_digest="one" if fleet.restart_only else f"of {driver}"
            )
        }
        for driver in (_OLD, target)
    }
    upgrade = UpgradePolicy(
        auto_upgrade=True,
        max_parallel_upgrades=fleet.max_parallel,
        max_unavailable="100%" if fleet.max_unavailable is None else fleet.max_unavailable,
        pod_deletion=PodDeletion(timeout_seconds=int(fleet.eviction_timeout)),
        wait_for_completion=WaitForCompletion(
            pod_selector="job" if fleet.wait_for_jobs else "",
            timeout_seconds=int(fleet.job_timeout),
        ),
    )
    return PoolView(
        key=_POOL,
        uid="uid",
        target=target,
        builds=builds,
        upgrade=upgrade,
        rollout=RolloutView(uid="rollout", revision="1"),
    )


def _send_bookmarks(state: SimulatedState) -> None:
    """Prove the views to be fresh only by bookmarks, and by probes before a start."""
    for source in SOURCES:
        state.mute(source)
    state.call_after(BOOKMARK, _bookmark)


def _bookmark(state: SimulatedState) -> None:
    for source in SOURCES:
        state.sources[source] = SourceState(proved=state.now, revision=str(state.revision))
    state.call_after(BOOKMARK, _bookmark)


def _commands(state: StageState) -> int:
    return sum(slot.sequence for slot in state.slots.values())
