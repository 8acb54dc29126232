"""One play: the engine decides, a stage lives on in a world, and somebody looks on.

What is decided is decided by the same code that decides in earnest. Must not know what its story
is for.
"""

from msgspec.structs import replace

from libs.contracts.node import UpgradeState
from libs.forecast.fast_forward import FastForward
from libs.forecast.play_recorder import PlayRecorder
from libs.forecast.play_result import PlayResult
from libs.forecast.stage import Stage
from libs.forecast.stage.objects import StageMachine
from libs.forecast.stage.stage import ViewUpdate as Changes
from libs.forecast.stage.state import StageState
from libs.forecast.world import WorldModel
from libs.rollout.decide import Decider
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.node import NodeView

_MADE = 10**9
"""What comes to be in a play is numbered from here, and called as nothing that was seen."""
_LARGE = 200
"""With more nodes than this there is always something to decide."""
_PAUSE = 0.25
"""Seconds between two decisions then: it costs a node as much for each of three steps."""


def play(
    fleet: Fleet, now: Instant, *, pool: str, world: WorldModel, fast_forward: bool = True
) -> PlayResult:
    """What becomes of a pool from now on, if the world is like this.

    Leaping, nodes whose way is plain are decided about less often. It takes them just as long, but
    for fractions of a second.
    """
    return _Play(fleet, now, pool, world, leaping=fast_forward).run()


class _Play:
    def __init__(
        self, fleet: Fleet, now: Instant, pool: str, world: WorldModel, *, leaping: bool
    ) -> None:
        self._stage = Stage.from_fleet(fleet, world=world, now=now.at)
        self._stage.state.foreign_operator = now.visibility.foreign_operator
        self._stage.state.made = _MADE
        keep_obstacles(self._stage.state, fleet)
        self._pause = _PAUSE if len(fleet.nodes) > _LARGE else 0.0
        self._leaps = FastForward(self._stage.state) if leaping else None
        self._deciding = Decider(self._stage.fleet())
        self._watch = PlayRecorder(fleet, pool, now.at)

    def run(self) -> PlayResult:
        """Decide, let time pass, and so on, until nothing more is to come."""
        stage, deciding, watch = self._stage, self._deciding, self._watch
        looked_at = stage.pop_view_update().nodes
        while True:
            news = deciding.decide(stage.instant())
            stage.carry_out(news, no_longer_waiting=news.no_longer_waiting)
            watch.observe_decision(stage.now, news, deciding.waits, looked_at)
            changes = self._next()
            if changes is None:
                return watch.result(deciding.waits, news.steps)
            watch.observe(stage.now, changes.nodes, changes.pools)
            deciding.update(changes.nodes, changes.nodes_gone, changes.pools)
            looked_at = changes.nodes

    def _next(self) -> Changes | None:
        """Let time pass until there is something to decide; None: there never will be."""
        stage, state = self._stage, self._stage.state
        while True:
            wake_at = self._deciding.wake_at
            due = [at for at in (stage.next_at, wake_at) if at is not None]
            if not due or self._watch.is_over(min(due), self._deciding.waits):
                return None
            stage.run_until(min(due))
            woken = wake_at is not None and stage.now >= wake_at
            if self._leaps is not None:
                self._look(self._leaps)
                if not woken and self._unmoved(self._leaps):
                    continue
                stage.run_until(stage.now + self._pause)
                self._look(self._leaps)
            if woken or state.dirty or state.dirty_pools:
                return stage.pop_view_update()

    def _look(self, leaps: FastForward) -> None:
        for name, way in leaps.start():
            self._watch.fast_forwarded(self._stage.now, name, way.evicted_pods)
            self._deciding.cancel_wake(name)

    def _unmoved(self, leaps: FastForward) -> bool:
        """Whether nothing changed that makes a difference to a decision."""
        stage, before = self._stage, self._deciding.nodes
        return not stage.state.dirty_pools and all(
            only_crash_changed(before.get(name), stage.node(name)) for name in leaps.changed_nodes
        )


_HOLDER = "holder"
"""A finding that a stage makes by itself, of the pods and processes that it shows."""


def keep_obstacles(state: StageState, fleet: Fleet) -> None:
    """Whatever of that the fleet shows is so on the stage, for as long as it is played."""
    for node in fleet.nodes.values():
        machine = state.machines[node.name]
        _refused(machine, node)
        _found(machine, node)


def _refused(machine: StageMachine, node: NodeView) -> None:
    for pod in node.pods or ():
        work = machine.tenant_pods.get(pod.uid)
        if work is not None and pod.budget:
            work.tenant = replace(work.tenant, eviction_refused_for=None)


def _found(machine: StageMachine, node: NodeView) -> None:
    answer = node.preflight.answer if node.preflight is not None else None
    if answer is not None:
        findings = (one for one in answer.findings if one.code != _HOLDER)
        machine.obstacles = (*machine.obstacles, *findings)


def only_crash_changed(before: NodeView | None, after: NodeView | None) -> bool:
    """Whether it failed and rests, and nothing but its driver's crashes is other than before."""
    return (
        before is not None
        and after is not None
        and after.state == UpgradeState.UPGRADE_FAILED
        and after.lease is None
        and not any(pod.ready for pod in before.driver_pods + after.driver_pods)
        and replace(after, driver_pods=before.driver_pods) == before
    )
