import pytest
from msgspec.structs import replace

from libs.contracts.rollout import TargetRecord
from libs.contracts.waits import WaitCode
from libs.forecast.play import play
from libs.forecast.play_result import PlayResult
from libs.forecast.seeded_world import SeededWorld
from libs.forecast.stage.from_fleet import populate_from_fleet
from libs.forecast.world import NEVER, ProcessEnd, TimeSpan, ValidationEnd, WorldModel
from libs.policy.kinds.strategy import OnEvictionTimeout, StrategySpec
from libs.rollout.decide import decide
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView, RolloutView
from libs.testing.not_none import not_none
from libs.testing.stage import SimulatedStage
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.unit.forecast.builders import (
    EVICTED,
    GRANTED,
    IDLE_LIFE,
    awaiting_jobs,
    cordoned_node,
    gpu_pod,
    idle_nodes,
    old_node,
    pool_with_limits,
)
from tests.unit.rollout.builders import NOW, POOL, fleet, instant, label_of

NEARLY = 0.05
"""Seconds by which a fast-forward may differ, for each upgrade."""


def played(
    pool: PoolView, *nodes: NodeView, world: WorldModel | None = None, fast_forward: bool = True
) -> PlayResult:
    return play(
        fleet(pool, *nodes),
        instant(),
        pool=POOL,
        world=world or SteadyWorld(),
        fast_forward=fast_forward,
    )


def test_nodes_one_at_a_time_take_the_calculated_times() -> None:
    result = played(pool_with_limits(parallel=1), *idle_nodes(3))
    first = 0.06
    for number in range(3):
        node_result = result.nodes[f"node-{number + 1}"]
        starts = first + number * (IDLE_LIFE + GRANTED)
        assert node_result.start == pytest.approx(starts, abs=NEARLY * (number + 1))
        assert node_result.end == pytest.approx(starts + IDLE_LIFE, abs=NEARLY * (number + 1))
    assert result.duration == result.nodes["node-3"].end
    assert (result.loss.nodes, result.loss.gpus) == (1, 8)
    assert result.gpu_seconds == pytest.approx(3 * 8 * IDLE_LIFE, rel=0.01)


def test_nodes_in_parallel_take_the_calculated_times() -> None:
    busy = old_node("node-1", gpu_pod("train-0"))
    result = played(pool_with_limits(), busy, *idle_nodes(3)[1:])
    ends = {name: node_result.end for name, node_result in result.nodes.items()}
    assert ends["node-2"] == pytest.approx(0.06 + IDLE_LIFE, abs=NEARLY)
    assert ends["node-3"] == pytest.approx(0.06 + IDLE_LIFE, abs=NEARLY)
    assert ends["node-1"] == pytest.approx(0.06 + IDLE_LIFE + EVICTED, abs=NEARLY)
    assert result.nodes["node-1"].evicted == {"uid-train-0"}
    assert (result.loss.nodes, result.loss.gpus) == (3, 24)


def test_idle_nodes_start_before_busy_nodes() -> None:
    one_pod = old_node("node-0", gpu_pod("a"))
    two_pods = old_node("node-1", gpu_pod("b"), gpu_pod("c"))
    result = played(pool_with_limits(parallel=1), two_pods, one_pod, old_node("node-2"))
    starts = {name: node_result.start or 0.0 for name, node_result in result.nodes.items()}
    assert sorted(starts, key=starts.__getitem__) == ["node-2", "node-0", "node-1"]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("parallel", [1, 3])
def test_fast_forward_gives_the_same_result_as_every_step(seed: int, parallel: int) -> None:
    world = SteadyWorld(seed=seed, jitter=2.0)
    nodes = [old_node(f"node-{pods or 0}", *map(gpu_pod, pods)) for pods in ("", "a", "bc")]
    fast_forward = played(pool_with_limits(parallel=parallel), *nodes, world=world)
    stepping = played(pool_with_limits(parallel=parallel), *nodes, world=world, fast_forward=False)
    assert fast_forward.nodes.keys() == stepping.nodes.keys()
    for name, node_result in fast_forward.nodes.items():
        other = stepping.nodes[name]
        assert node_result.evicted == other.evicted
        assert _upgrade_seconds(fast_forward, name) == pytest.approx(
            _upgrade_seconds(stepping, name), abs=NEARLY
        )
    # A step may send a preflight query before each start: two seconds that a fast-forward skips.
    assert fast_forward.duration == pytest.approx(stepping.duration, abs=2.5 * len(nodes))


def _upgrade_seconds(result: PlayResult, name: str) -> float:
    node_result = result.nodes[name]
    return not_none(node_result.end) - not_none(node_result.start)


TROUBLES = {
    "loads at the third start": WorldOverride(
        node="node-1", load=ProcessEnd(5.0, 1), first_attempts=2
    ),
    "unloads at the third attempt": WorldOverride(
        node="node-1", unload=ProcessEnd(2.0, 1), first_attempts=2
    ),
    "never loads": WorldOverride(node="node-1", load=ProcessEnd(5.0, 1)),
    "hangs while it loads": WorldOverride(node="node-1", load=ProcessEnd(None)),
    "never unloads": WorldOverride(node="node-1", unload=ProcessEnd(2.0, 1)),
    "does not pass": WorldOverride(node="node-1", validation=ValidationEnd(4.0, "cuda")),
    "its image is never pulled": WorldOverride(node="node-1", pull=NEVER),
    "crashes when it is done": WorldOverride(node="node-1", run=ProcessEnd(3600.0, 1)),
    "is guarded for a while": WorldOverride(pod="uid-a", refusal=TimeSpan(42.0)),
    "is guarded for too long": WorldOverride(pod="uid-a", refusal=TimeSpan(1000.0)),
    "is guarded for ever": WorldOverride(pod="uid-a", refusal=NEVER),
    "has a pod that does not go": WorldOverride(pod="uid-a", eviction=NEVER),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_fast_forward_hides_no_failure(trouble: str) -> None:
    world = SteadyWorld(overrides=(TROUBLES[trouble],))
    nodes = (old_node("node-1", gpu_pod("a")), *idle_nodes(3)[1:])
    fast_forward = played(pool_with_limits(threshold="100%"), *nodes, world=world)
    stepping = played(pool_with_limits(threshold="100%"), *nodes, world=world, fast_forward=False)
    for name, node_result in fast_forward.nodes.items():
        other = stepping.nodes[name]
        assert (node_result.end is None, node_result.failed is None) == (
            other.end is None,
            other.failed is None,
        )
        assert node_result.end == (other.end and pytest.approx(other.end, abs=3.0))
        assert node_result.failed == (other.failed and pytest.approx(other.failed, abs=5.0))
        assert (node_result.wait and node_result.wait.code) == (other.wait and other.wait.code)


def test_as_many_nodes_fail_with_fast_forward_as_without() -> None:
    nodes = [old_node(f"node-{number:02}", gpu_pod(f"a-{number}")) for number in range(12)]
    failed: dict[bool, int] = {}
    for fast_forward in (True, False):
        results = [
            played(
                pool_with_limits(parallel=5),
                *nodes,
                world=SeededWorld(seed),
                fast_forward=fast_forward,
            )
            for seed in range(2)
        ]
        failed[fast_forward] = sum(
            node_result.end is None for result in results for node_result in result.nodes.values()
        )
    assert failed[True] > 0
    assert abs(failed[True] - failed[False]) <= 2


def test_a_fast_forwarded_node_stops_when_its_target_is_halted() -> None:
    evicting = old_node("node-1", gpu_pod("a"))
    bad = WorldOverride(node="node-2", load=ProcessEnd(1.0, 1))
    late = WorldOverride(pod="uid-a", eviction=TimeSpan(280.0))
    pool = pool_with_limits(threshold="1")
    result = played(
        replace(pool, rollout=_proven(pool)),
        evicting,
        idle_nodes(2)[1],
        world=SteadyWorld(overrides=(bad, late)),
    )
    assert result.nodes["node-2"].failed is not None
    assert result.nodes["node-1"].end is None
    wait = not_none(result.nodes["node-1"].wait)
    assert wait.code is WaitCode.HALTED
    assert result.halted_because


def _proven(pool: PoolView) -> RolloutView:
    assert pool.rollout is not None
    record = TargetRecord(threshold=1, validated=("uid-other",), proven=True, proven_at=NOW - 60)
    status = replace(pool.rollout.status, base=2, targets={pool.target: record})
    return replace(pool.rollout, status=status)


def test_a_play_without_fast_forward_equals_the_engine_on_a_stage() -> None:
    nodes = [old_node(f"node-{number}", gpu_pod(f"a-{number}")) for number in range(3)]
    given = fleet(pool_with_limits(parallel=2), *nodes)
    for seed in range(2):
        world = SteadyWorld(seed=seed, jitter=1.0)
        result = play(given, instant(), pool=POOL, world=world, fast_forward=False)
        simulated = _simulated(given, world)
        assert {name: node_result.end for name, node_result in result.nodes.items()} == simulated


def _simulated(given: Fleet, world: WorldModel) -> dict[str, float]:
    stage = SimulatedStage(world=world, start=NOW)
    populate_from_fleet(stage.state, given)
    ends: dict[str, float] = {}
    while len(ends) < len(given.nodes):
        decision = decide(stage.fleet(), stage.instant())
        stage.carry_out(decision)
        times = [time for time in (stage.next_at, decision.wake_at) if time is not None]
        stage.run_until(min(times))
        for name, node in stage.fleet().nodes.items():
            done = node.driver_label == label_of("target-new") and node.lease is None
            if done and node.state == "upgrade-done" and not node.write_pending:
                ends.setdefault(name, stage.now - NOW)
    return ends


def test_a_play_ends_although_a_job_never_does() -> None:
    endless = WorldOverride(pod="uid-train", remainder=NEVER)
    busy = old_node("node-1", gpu_pod("train", job=True))
    result = played(
        pool_with_limits(**awaiting_jobs()),
        busy,
        old_node("node-2"),
        world=SteadyWorld(overrides=(endless,)),
    )
    node_result = result.nodes["node-1"]
    assert node_result.start is not None
    assert node_result.end is None
    assert node_result.wait is not None
    assert node_result.wait.code is WaitCode.JOBS
    assert "ml/train" in node_result.wait.detail
    assert result.nodes["node-2"].end is not None


def test_released_nodes_are_retried_until_the_play_gives_up() -> None:
    patient = replace(
        pool_with_limits(),
        strategy=StrategySpec(
            failure_threshold="100%", on_eviction_timeout=OnEvictionTimeout.RELEASE
        ),
    )
    soon = WorldOverride(pod="uid-a", refusal=TimeSpan(1500.0))
    result = played(patient, old_node("node-1", gpu_pod("a")), world=SteadyWorld(overrides=(soon,)))
    assert result.nodes["node-1"].end == pytest.approx(1500 + 900, abs=900)
    never = WorldOverride(pod="uid-a", refusal=NEVER)
    result = played(
        patient, old_node("node-1", gpu_pod("a")), world=SteadyWorld(overrides=(never,))
    )
    node_result = result.nodes["node-1"]
    assert node_result.end is None
    assert node_result.wait is not None


def test_a_play_may_have_little_or_nothing_to_do() -> None:
    result = played(pool_with_limits(), cordoned_node("node-1"), world=SteadyWorld())
    assert result.nodes["node-1"].end is not None
    assert result.loss.nodes == 1
    assert result.gpu_seconds == 0.0
    assert not played(pool_with_limits()).nodes


def test_decisions_are_delayed_with_more_than_two_hundred_nodes() -> None:
    one_node, at_most, above = (
        played(pool_with_limits(), *idle_nodes(count)) for count in (1, 200, 201)
    )
    assert at_most.duration == one_node.duration
    assert above.duration == pytest.approx(one_node.duration + 3 * 0.25, abs=0.3)


def test_a_play_ends_where_no_event_is_pending() -> None:
    node = old_node("node-1")
    silent = {
        part: replace(component, last_beat=NOW - 900, silent_at=NOW - 700)
        for part, component in node.components.items()
    }
    node_result = played(pool_with_limits(), replace(node, components=silent)).nodes["node-1"]
    assert (node_result.start, node_result.end) == (None, None)
    assert not_none(node_result.wait).code is WaitCode.AGENT_SILENT
