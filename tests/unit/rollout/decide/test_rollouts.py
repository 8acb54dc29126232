"""Whole rollouts on the stage, each incremental decision compared with one from scratch."""

from collections import Counter
from collections.abc import Callable

from libs.contracts.rollout import Brake, RolloutPhase, RolloutStatus
from libs.contracts.waits import WaitCode
from libs.forecast.world import ProcessEnd, WorldModel
from libs.rollout.decide import Decider, decide
from libs.testing.stage import SimulatedStage, StageFaults, StageNodeSpec, UserActions
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.unit.rollout.builders import NEW, NOW, OLD, POOL, label_of, pool

HOUR = 3600.0
NEVER_LOADS = SteadyWorld(overrides=(WorldOverride(driver=label_of(NEW), load=ProcessEnd(5.0, 1)),))


class RolloutRun:
    def __init__(self, count: int, *, world: WorldModel | None = None, runs: str = OLD) -> None:
        plans = [StageNodeSpec(name=f"n{n:02}", pool=POOL, target=runs) for n in range(count)]
        result = pool(upgrade={"max_parallel_upgrades": 0}, status={"phase": RolloutPhase.COMPLETE})
        self.stage = SimulatedStage(
            [result], plans, world=world or SteadyWorld(), start=NOW, journalled=False
        )
        self.people = UserActions(self.stage.state)
        self.faults = StageFaults(self.stage.state)
        self._seen = self.stage.fleet()
        self.deciding = Decider(self._seen)
        self.decisions = 0

    @property
    def status(self) -> RolloutStatus:
        rollout = self.stage.pool(POOL).rollout
        assert rollout is not None
        return rollout.status

    def play(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Run for so long, or until the condition holds."""
        end = self.stage.now + seconds
        while not until():
            wake_at = self._decide()
            times = [at for at in (self.stage.next_at, wake_at) if at is not None]
            if not times or min(times) > end:
                self.stage.run_until(end)
                return
            self.stage.run_until(max(self.stage.now, min(times)))

    def _decide(self) -> float | None:
        now, fleet = self.stage.instant(), self.stage.fleet()
        self.deciding.update(
            [node for name, node in fleet.nodes.items() if self._seen.nodes.get(name) is not node],
            self._seen.nodes.keys() - fleet.nodes.keys(),
            [view for key, view in fleet.pools.items() if self._seen.pools.get(key) is not view],
        )
        self._seen = fleet
        news, whole = self.deciding.decide(now), decide(fleet, now)
        assert news.steps == whole.steps
        assert dict(self.deciding.waits) == dict(whole.waits)
        assert news.rollouts == whole.rollouts
        assert (news.probes, news.cancelled) == (whole.probes, whole.cancelled)
        assert (news.budgets, news.wake_at) == (whole.budgets, whole.wake_at)
        self.decisions += 1
        self.stage.carry_out(news, no_longer_waiting=news.no_longer_waiting)
        return news.wake_at

    def complete(self) -> bool:
        return self.status.phase is RolloutPhase.COMPLETE and self.status.target == NEW

    def codes(self) -> Counter[WaitCode]:
        return Counter(wait.code for wait in self.deciding.waits.values())


def test_a_rollout_completes_on_all_nodes() -> None:
    story = RolloutRun(8)
    story.play(60.0)
    story.play(HOUR, story.complete)
    assert story.status.counts.done == 8
    assert story.status.targets[NEW].complete
    assert story.status.last_good == NEW
    assert story.codes() == {}


def test_a_fleet_without_drivers_is_brought_up() -> None:
    story = RolloutRun(6, runs="")
    story.play(60.0)
    story.play(HOUR, story.complete)
    assert story.status.counts.done == 6


def test_a_driver_that_never_loads_halts_without_further_wake_ups() -> None:
    story = RolloutRun(30, world=NEVER_LOADS)
    story.play(2 * HOUR)
    assert story.status.phase is RolloutPhase.HALTED
    assert len(story.status.targets[NEW].failed) == 2
    assert story.codes() == {WaitCode.HALTED: 28, WaitCode.FAILED: 2}
    before = story.decisions
    story.play(HOUR)
    assert story.decisions - before < 100
    story.people.set_target(POOL, OLD)
    story.play(HOUR, lambda: story.status.phase is RolloutPhase.COMPLETE)
    assert story.status.counts.done == 30
    assert len(story.status.targets[NEW].failed) == 2


def test_a_freeze_stops_everything_until_it_ends() -> None:
    story = RolloutRun(8)
    story.play(10.0)
    story.people.set_brake(POOL, Brake.FREEZE)
    story.play(HOUR)
    assert set(story.codes()) == {WaitCode.FROZEN}
    story.people.set_brake(POOL, Brake.NONE)
    story.play(HOUR, story.complete)
    assert story.status.counts.done == 8
    assert story.status.frozen_seconds > HOUR - 1


def test_deleted_and_rebooted_nodes_hold_nothing_up() -> None:
    story = RolloutRun(8)
    story.play(12.0)
    (flying,) = story.status.in_flight.values()
    story.people.delete_node(flying.node)
    story.play(60.0)
    story.faults.reboot(next(iter(story.status.in_flight.values())).node)
    story.play(2 * HOUR, story.complete)
    assert story.status.counts.done == 7
