"""Play a rollout: the engine decides, and a stage carries the decisions out in virtual time."""

from typing import NamedTuple

from msgspec.structs import replace

from libs.contracts.node import UpgradeState
from libs.forecast.crashes import crashes_of
from libs.forecast.fast_forward import FastForward
from libs.forecast.play_recorder import PlayRecorder
from libs.forecast.play_result import PlayResult
from libs.forecast.stage.objects import DriverPodPhase
from libs.forecast.stage.stage import Stage, ViewUpdate
from libs.forecast.stage.state import StageState
from libs.forecast.world import WorldModel
from libs.rollout.decide import Decider
from libs.rollout.pool.harm import accepted
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView

_PLAYED_UIDS = 10**9
"""Number of the first uid of a play, so that generated uids differ from all observed ones."""
_LARGE = 200
"""Fleets with more nodes than this have a decision to make at nearly every moment."""
_PAUSE = 0.25
"""Seconds between two decisions for large fleets, which delays each of three steps of a node."""


def play(
    fleet: Fleet, now: Instant, *, pool: str, world: WorldModel, fast_forward: bool = True
) -> PlayResult:
    """Play the rollout of a pool in this world from `now` on.

    With `fast_forward`, upgrades in which nothing goes wrong are not decided about step by step.
    They take equally long, up to fractions of a second.
    """
    return _Play(fleet, now, pool, world, fast_forward=fast_forward).run()


class PlayedFleet(NamedTuple):
    """A rollout that was played, and what it left."""

    result: PlayResult
    fleet: Fleet
    instant: Instant


def play_to_end(fleet: Fleet, now: Instant, *, pool: str, world: WorldModel) -> PlayedFleet:
    """Play a rollout step by step and return the fleet as it leaves it too."""
    played = _Play(fleet, now, pool, world, fast_forward=False)
    return PlayedFleet(played.run(), *played.left())


class _Play:
    def __init__(
        self, fleet: Fleet, now: Instant, pool: str, world: WorldModel, *, fast_forward: bool
    ) -> None:
        self._stage = Stage.from_fleet(fleet, world=world, now=now.at)
        self._stage.state.foreign_operator = now.visibility.foreign_operator
        self._stage.state.uids = _PLAYED_UIDS
        keep_obstacles(self._stage.state, fleet)
        self._pause = _PAUSE if len(fleet.nodes) > _LARGE else 0.0
        self._fast_forward = FastForward(self._stage.state) if fast_forward else None
        self._decider = Decider(self._stage.fleet())
        self._recorder = PlayRecorder(fleet, pool, now.at)

    def run(self) -> PlayResult:
        stage, decider, recorder = self._stage, self._decider, self._recorder
        considered = stage.pop_view_update().nodes
        while True:
            decision = decider.decide(stage.instant())
            stage.carry_out(decision, decision.no_longer_waiting)
            recorder.observe_decision(stage.now, decision, decider.waits, considered)
            changes = self._next()
            if changes is None:
                return recorder.result(decider.waits, decision.steps)
            recorder.observe(stage.now, changes.nodes, changes.pools)
            decider.update(changes.nodes, changes.nodes_gone, changes.pools)
            considered = changes.nodes

    def left(self) -> tuple[Fleet, Instant]:
        return self._stage.fleet(), self._stage.instant()

    def _next(self) -> ViewUpdate | None:
        """Advance to the next change to decide about; None: no event is left."""
        stage, state = self._stage, self._stage.state
        while True:
            wake_at = self._decider.wake_at
            due = [time for time in (stage.next_at, wake_at) if time is not None]
            if not due or self._recorder.is_over(min(due), self._decider.waits):
                return None
            stage.run_until(min(due))
            woken = wake_at is not None and stage.now >= wake_at
            if self._fast_forward is not None:
                self._start_fast_forward(self._fast_forward)
                if not woken and self._affects_no_decision(self._fast_forward.changed_nodes):
                    continue
                stage.run_until(stage.now + self._pause)
                self._start_fast_forward(self._fast_forward)
            if woken or state.dirty or state.dirty_pools:
                return stage.pop_view_update()

    def _start_fast_forward(self, fast_forward: FastForward) -> None:
        for name, estimate in fast_forward.start():
            self._recorder.fast_forwarded(self._stage.now, name, estimate.evicted_pods)
            self._decider.cancel_wake(name)

    def _affects_no_decision(self, changed_nodes: set[str]) -> bool:
        if self._stage.state.dirty_pools:
            return False
        # The views of nodes that have not failed are built once they are decided about.
        before, nodes = self._decider.nodes, self._stage.state.nodes
        return all(
            name in nodes
            and nodes[name].view.state == UpgradeState.UPGRADE_FAILED
            and only_crash_changed(before.get(name), self._stage.node(name))
            for name in changed_nodes
        )


_HOLDER = "holder"
"""The code of the finding that a stage derives itself from its pods and processes."""


def keep_obstacles(state: StageState, fleet: Fleet) -> None:
    """Keep refused evictions, preflight findings and crashing drivers for the whole play."""
    for node in fleet.nodes.values():
        machine = state.machines[node.name]
        for pod in node.pods or ():
            tenant_pod = machine.tenant_pods.get(pod.uid)
            if tenant_pod is not None and pod.budget and fleet.budgets is None:
                tenant_pod.tenant = replace(tenant_pod.tenant, eviction_refused_for=None)
        for eviction in node.evictions:
            tenant_pod = machine.tenant_pods.get(eviction.uid)
            if tenant_pod is None or not eviction.refused:
                continue
            if fleet.budgets is None or not tenant_pod.tenant.budget:
                tenant_pod.tenant = replace(tenant_pod.tenant, eviction_refused_for=None)
        answer = node.preflight.answer if node.preflight is not None else None
        if answer is not None:
            findings = (finding for finding in answer.findings if finding.code != _HOLDER)
            machine.obstacles = (*machine.obstacles, *findings)
        if _is_broken(node, fleet):
            for pod in machine.drivers.values():
                pod.never_loads = pod.phase is DriverPodPhase.CRASHED
        crashes = crashes_of(node)
        if crashes is not None and crashes.goes_on:
            machine.drivers[crashes.pod.uid].never_loads = True


def _is_broken(node: NodeView, fleet: Fleet) -> bool:
    """Return whether the node has failed, and nobody has accepted that its driver does."""
    record = node.current_record
    if record is None or record.state != UpgradeState.UPGRADE_FAILED:
        return False
    pool = fleet.pools.get(record.pool)
    return pool is None or not accepted(pool.rollout_spec, record.target)


def only_crash_changed(before: NodeView | None, after: NodeView | None) -> bool:
    """Return whether the node failed and nothing changed but the crashes of its driver."""
    return (
        before is not None
        and after is not None
        and after.state == UpgradeState.UPGRADE_FAILED
        and after.lease is None
        and not any(pod.ready for pod in before.driver_pods + after.driver_pods)
        and replace(after, driver_pods=before.driver_pods) == before
    )
