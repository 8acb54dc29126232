"""Which upgrades are fast-forwarded, and the decisions that this saves."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from libs.contracts.node import UpgradeState
from libs.contracts.paths import LEASE, RECORD
from libs.contracts.reports import Finding, Preflight
from libs.forecast import play as playing
from libs.forecast.fast_forward import FastForward
from libs.forecast.play_result import PlayResult
from libs.forecast.stage import api, effects
from libs.forecast.upgrade_estimate import UpgradeEstimate
from libs.forecast.world import ProcessEnd, TimeSpan, WorldModel
from libs.rollout.decide import Decider, DecisionDelta
from libs.rollout.decision import EvictPods, PodRef
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import EvictionExemption
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.testing.stage import UserActions
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.unit.forecast.builders import (
    EVICTED,
    IDLE_LIFE,
    awaiting_jobs,
    gpu_pod,
    idle_nodes,
    old_node,
    pool_with_limits,
)
from tests.unit.forecast.deviations import Change, agent, machine, node_view, pool, tenant, without
from tests.unit.forecast.evicting_node import NEW_LABEL, NODE, WEB, EvictingNode
from tests.unit.rollout.builders import POOL, fleet, instant

# Saved decisions.


class CountedPlay:
    """A play that counts its decisions and lists the nodes that were fast-forwarded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decisions = 0
        self.nodes = 0
        self.fast_forwarded: list[str] = []
        play = self

        class CountedDecider(Decider):
            def decide(self, now: Instant) -> DecisionDelta:
                play.decisions += 1
                return super().decide(now)

            def update(self, nodes: Iterable[NodeView] = (), *rest: Any, **others: Any) -> None:
                views = list(nodes)
                play.nodes += len(views)
                super().update(views, *rest, **others)

        class CountedFastForward(FastForward):
            def start(self) -> Iterator[tuple[str, UpgradeEstimate]]:
                for name, estimate in super().start():
                    play.fast_forwarded.append(name)
                    yield name, estimate

        monkeypatch.setattr(playing, "Decider", CountedDecider)
        monkeypatch.setattr(playing, "FastForward", CountedFastForward)

    def play(
        self,
        *nodes: NodeView,
        pool: PoolView | None = None,
        fast_forward: bool = True,
        world: WorldModel = SteadyWorld(),  # noqa: B008 - frozen
    ) -> PlayResult:
        self.decisions = self.nodes = 0
        self.fast_forwarded.clear()
        snapshot = fleet(pool or pool_with_limits(), *nodes)
        return playing.play(snapshot, instant(), pool=POOL, world=world, fast_forward=fast_forward)


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_fast_forwarded_node_is_decided_about_four_times(
    parallel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = CountedPlay(monkeypatch)
    nodes = [old_node(f"node-{number:02}", gpu_pod(f"w{number}")) for number in range(12)]
    counted.play(*nodes, pool=pool_with_limits(parallel=parallel))
    assert sorted(counted.fast_forwarded) == [node.name for node in nodes]
    assert counted.nodes == 4 * len(nodes)
    assert counted.decisions == 3 + 2 * len(nodes) // parallel
    fast_forward = counted.nodes
    counted.play(*nodes, pool=pool_with_limits(parallel=parallel), fast_forward=False)
    assert counted.fast_forwarded == []
    assert counted.nodes > 10 * fast_forward


def test_an_unusual_node_is_played_step_by_step_while_others_fast_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = CountedPlay(monkeypatch)
    crashes = SteadyWorld(overrides=(WorldOverride(node="node-2", run=ProcessEnd(3600.0, 1)),))
    result = counted.play(*idle_nodes(3), world=crashes)
    assert sorted(counted.fast_forwarded) == ["node-1", "node-3"]
    assert result.nodes["node-2"].end is not None


def test_fast_forward_causes_no_decision_about_waiting_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = CountedPlay(monkeypatch)
    long_job = SteadyWorld(overrides=(WorldOverride(pod="uid-train", remainder=TimeSpan(500.0)),))
    waiting = old_node("node-1", gpu_pod("train", job=True))
    pool = pool_with_limits(**awaiting_jobs(1000))
    counted.play(waiting, pool=pool, world=long_job)
    decisions_without = counted.decisions
    result = counted.play(waiting, old_node("node-2", gpu_pod("a")), pool=pool, world=long_job)
    assert result.nodes["node-2"].end == pytest.approx(0.06 + IDLE_LIFE + EVICTED, abs=0.1)
    assert counted.decisions == decisions_without + 2


@pytest.mark.parametrize("seconds", [1.0, 90.0, 280.0])
def test_time_alone_causes_no_decision_about_a_fast_forwarded_node(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = CountedPlay(monkeypatch)
    slow_eviction = SteadyWorld(overrides=(WorldOverride(pod="uid-a", eviction=TimeSpan(seconds)),))
    counted.play(
        old_node("node-1", gpu_pod("a")), pool=pool_with_limits(parallel=1), world=slow_eviction
    )
    assert (counted.fast_forwarded, counted.decisions) == (["node-1"], 5)


def test_crashes_of_a_failed_node_cause_no_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = CountedPlay(monkeypatch)
    decisions: list[int] = []
    for hours in (4, 40):
        never_loads = WorldOverride(node="node-1", load=ProcessEnd(5.0, 1))
        long_job = WorldOverride(pod="uid-train", remainder=TimeSpan(hours * 3600.0))
        nodes = old_node("node-1"), old_node("node-2", gpu_pod("train", job=True))
        result = counted.play(
            *nodes,
            pool=pool_with_limits(**awaiting_jobs()),
            world=SteadyWorld(overrides=(never_loads, long_job)),
        )
        assert result.nodes["node-1"].failed is not None
        assert result.nodes["node-2"].end == pytest.approx(hours * 3600.0, abs=60)
        decisions.append(counted.decisions)
    assert decisions[0] == decisions[1]


def test_changed_nodes_exclude_fast_forwarded_nodes() -> None:
    node_stage = EvictingNode(WEB)
    fast_forward = FastForward(node_stage.state)
    node_stage.stage.pop_view_update()
    assert fast_forward.changed_nodes == set()
    node_stage.state.touch(NODE)
    assert fast_forward.changed_nodes == {NODE}
    assert [name for name, _ in fast_forward.start()] == [NODE]
    assert fast_forward.changed_nodes == set()
    node_stage.state.touch("node-else")
    assert fast_forward.changed_nodes == {"node-else"}


# Nodes that are fast-forwarded.


def starts(node_stage: EvictingNode, fast_forward: FastForward) -> bool:
    node_stage.state.touch(NODE)
    return [name for name, _ in fast_forward.start()] == [NODE]


def test_a_fast_forwarded_node_has_a_pending_write_until_its_end() -> None:
    node_stage = EvictingNode(WEB)
    fast_forward, uid = FastForward(node_stage.state), node_stage.tenant_pod.uid
    node_stage.stage.pop_view_update()
    node_stage.state.touch(NODE)
    ((name, estimate),) = fast_forward.start()
    assert (name, estimate.evicted_pods) == (NODE, (uid,))
    assert node_stage.writing == 1
    assert node_stage.node.view.cordon_taint
    node_stage.stage.run_until(estimate.label_moves_at - 0.5)
    assert uid in node_stage.machine.tenant_pods
    node_stage.stage.run_until(estimate.label_moves_at)
    assert uid not in node_stage.machine.tenant_pods
    node_stage.stage.run_until(estimate.upgrade.at - 0.5)
    assert node_stage.writing == 1
    assert fast_forward.changed_nodes == set()
    node_stage.stage.run_until(estimate.upgrade.at)
    assert node_stage.writing == 0
    assert fast_forward.changed_nodes == {NODE}
    assert api.value(node_stage.node, LEASE) is None
    assert node_stage.record.state == UpgradeState.UPGRADE_DONE


def test_each_lease_is_estimated_once() -> None:
    node_stage = EvictingNode(WEB)
    fast_forward = FastForward(node_stage.state)
    node_stage.machine.host_processes = 1
    assert not starts(node_stage, fast_forward)
    node_stage.machine.host_processes = 0
    assert not starts(node_stage, fast_forward)
    node_stage.set_record(token=node_stage.record.token + 1)
    assert starts(node_stage, fast_forward)
    assert not starts(node_stage, fast_forward)


def test_an_unanswered_request_prevents_fast_forward() -> None:
    node_stage = EvictingNode(WEB)
    fast_forward = FastForward(node_stage.state)
    memory = node_stage.state.memory_of(NODE)
    memory.writing = 1
    assert not starts(node_stage, fast_forward)
    assert memory.writing == 1
    memory.writing = 0
    assert starts(node_stage, fast_forward)


def test_pending_evictions_prevent_fast_forward() -> None:
    node_stage = EvictingNode(WEB)
    uid = node_stage.tenant_pod.uid
    node_stage.set_tenant(eviction_refused_for=60.0)
    pods = (PodRef(namespace="work", name="web", uid=uid),)
    effects.start_evictions(node_stage.state, NODE, EvictPods(pods=pods))
    assert node_stage.estimate() is not None
    fast_forward = FastForward(node_stage.state)
    assert not starts(node_stage, fast_forward)
    effects.start_evictions(node_stage.state, NODE, EvictPods(pods=()))
    assert not starts(node_stage, fast_forward)
    assert starts(node_stage, FastForward(node_stage.state))


def unleased(node_stage: EvictingNode) -> None:
    node_stage.remove_field(LEASE)


def unrecorded(node_stage: EvictingNode) -> None:
    node_stage.remove_field(RECORD)


def gone(node_stage: EvictingNode) -> None:
    UserActions(node_stage.state).delete_node(NODE)


@pytest.mark.parametrize("change", [unleased, unrecorded, gone])
def test_fast_forward_needs_a_node_with_lease_and_record(change: Change) -> None:
    node_stage = EvictingNode(WEB)
    fast_forward = FastForward(node_stage.state)
    change(node_stage)
    assert not starts(node_stage, fast_forward)


def test_a_node_that_waits_for_jobs_fast_forwards_afterwards() -> None:
    node_stage = EvictingNode(WEB)
    fast_forward = FastForward(node_stage.state)
    node_stage.set_record(state=UpgradeState.WAIT_FOR_JOBS_REQUIRED)
    assert not starts(node_stage, fast_forward)
    node_stage.set_record(state=UpgradeState.POD_DELETION_REQUIRED)
    assert starts(node_stage, fast_forward)


# Preflights that are answered at the start.


UNCHECKED: dict[str, Change] = {
    "no pool": node_view(pool="else"),
    "no build of the target": pool(target="target-else"),
    "no build for the variant": node_view(variant="rhel9"),
    "no driver agent": without("driver"),
    "a silent driver agent": agent("driver", silent_at=9000.0),
    "a process on the host": machine(host_processes=1),
    "a preflight finding": machine(obstacles=(Finding(code="disk", message="it is full"),)),
    "a pod of a DaemonSet": tenant(exemption=EvictionExemption.DAEMON_SET),
    "a bare pod": tenant(bare=True),
    "a pod with an emptyDir": tenant(empty_dir=True),
}

CHECKED: dict[str, Change] = {
    "nothing else": node_view(),
    "no pod": lambda node: node.machine.tenant_pods.clear(),
    "a silent plugin": agent("plugin", silent_at=9000.0),
    "a pod of a DaemonSet without a GPU": tenant(gpus=0, exemption=EvictionExemption.DAEMON_SET),
    "a bare pod without a GPU": tenant(gpus=0, bare=True),
    "a pod without a GPU with an emptyDir": tenant(gpus=0, empty_dir=True),
}


@pytest.mark.parametrize("change", CHECKED)
def test_a_preflight_without_findings_is_answered_at_the_start(change: str) -> None:
    node_stage = EvictingNode(WEB)
    CHECKED[change](node_stage)
    FastForward(node_stage.state)
    node = node_stage.stage.node(NODE)
    assert node is not None
    query = node.preflight
    assert query is not None
    assert query.answer == Preflight(check=f"check-{NODE}", label=NEW_LABEL)
    assert (query.label, query.asked_at) == (NEW_LABEL, node_stage.stage.now)


@pytest.mark.parametrize("change", UNCHECKED)
def test_a_preflight_with_findings_is_not_answered_at_the_start(change: str) -> None:
    node_stage = EvictingNode(WEB)
    UNCHECKED[change](node_stage)
    memory = node_stage.state.memory_of(NODE)
    memory.preflight = None
    FastForward(node_stage.state)
    assert memory.preflight is None
