"""A rollout that is played on from any of its moments ends when it would have ended."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gate
from libs.contracts.node import UpgradeState
from libs.contracts.reports import Resource
from libs.forecast.play import play
from libs.forecast.stage.stage import Stage
from libs.rollout.decide import Decider
from libs.rollout.views.fleet import Fleet, Instant
from libs.rollout.views.pool import PoolView
from libs.testing.stage.worlds import SteadyWorld
from tests.unit.forecast.builders import gpu_pod, idle_nodes, old_node, pool_with_limits
from tests.unit.rollout.builders import POOL, fleet, instant

GPU = "nvidia.com/gpu"
_UIDS = 10**6
"""Number of the first uid, so that generated uids differ from those of the fleet."""
WITHIN = 7.5
"""Seconds: how long a step of a validation, or an eviction, has lasted is not known."""


def moments(start: Fleet, *, seconds: float) -> Iterator[tuple[Fleet, Instant]]:
    """Yield what is seen after each decision."""
    began = instant()
    stage = Stage.from_fleet(start, world=SteadyWorld(), now=began.at)
    stage.state.uids = _UIDS
    decider = Decider(stage.fleet())
    stage.pop_view_update()
    while stage.now < began.at + seconds:
        decision = decider.decide(stage.instant())
        stage.carry_out(decision, decision.no_longer_waiting)
        yield stage.fleet(), stage.instant()
        stage.run_until(min(time for time in (stage.next_at, decider.wake_at) if time is not None))
        changes = stage.pop_view_update()
        decider.update(changes.nodes, changes.nodes_gone, changes.pools)


def with_images(pool: PoolView) -> PoolView:
    """Return the pool with images that are brought to nodes before they are drained."""
    builds = {
        target: {variant: replace(build, image="r.example/driver") for variant, build in of.items()}
        for target, of in pool.builds.items()
    }
    return replace(pool, builds=builds)


def as_before_the_start(seen: Fleet) -> Fleet:
    """Return the fleet with facts of its agents from before the containers of drivers started."""
    nodes = {
        node.name: replace(node, gate=Gate(), loaded=None)
        if node.state == UpgradeState.POD_RESTART_REQUIRED
        and any(pod.started is not None and not pod.deleting for pod in node.driver_pods)
        else node
        for node in seen.nodes.values()
    }
    return replace(seen, nodes=nodes)


def with_listed_gpus(seen: Fleet) -> Fleet:
    """Return the fleet with what validators and kubelets say of devices on real nodes.

    A node that was just validated is released only once its Node lists what the evidence names.
    """
    offered = (Resource(name=GPU, count=8),)
    nodes = {
        node.name: replace(
            node,
            allocatable={GPU: 8},
            evidence=node.evidence and replace(node.evidence, allocatable=offered),
        )
        for node in seen.nodes.values()
    }
    return replace(seen, nodes=nodes)


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("brings_images", [False, True])
@pytest.mark.parametrize("has_old_facts", [False, True])
def test_a_play_from_any_moment_on_ends_like_the_whole(
    parallel: int, brings_images: bool, has_old_facts: bool
) -> None:
    pool = pool_with_limits(parallel=parallel)
    if brings_images:
        pool = with_images(pool)
    start = fleet(pool, old_node("node-0", gpu_pod("train")), *idle_nodes(3))
    whole = play(start, instant(), pool=POOL, world=SteadyWorld())
    assert {name for name, node in whole.nodes.items() if node.end is None} == set()
    count = 0
    for seen, now in moments(start, seconds=whole.duration - WITHIN):
        if has_old_facts:
            seen = as_before_the_start(seen)  # noqa: PLW2901
        rest = play(with_listed_gpus(seen), now, pool=POOL, world=SteadyWorld())
        at = now.at - instant().at
        states = {node.name: node.state for node in seen.nodes.values()}
        assert at + rest.duration == pytest.approx(whole.duration, abs=WITHIN), (at, states)
        assert [name for name, node in rest.nodes.items() if node.end is None] == [], (at, states)
        count += 1
    assert count > 50
