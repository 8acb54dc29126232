"""Pods of tenants: refusals, evictions and new pods."""

import pytest
from msgspec.structs import replace

from libs.contracts.journal import Verb
from libs.contracts.node import NodeRecord
from libs.policy.kinds.upgrade_policy import WaitForCompletion
from libs.rollout.decision import Decision, EvictPods, PodRef
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.pool import PoolView
from libs.testing.stage import Tenant
from libs.testing.stage.state import PODS
from tests.unit.forecast.stage.scenario import NODE, StageScenario
from tests.unit.rollout.builders import pool


def scene_of(*tenants: Tenant, pools: tuple[PoolView, ...] | None = None) -> StageScenario:
    scene = StageScenario(tenants=tenants, pools=pools)
    scene.carry_out(
        scene.write(state="pod-deletion-required", lease=scene.lease(), unschedulable=True)
    )
    return scene


def pods(scene: StageScenario) -> tuple[WorkloadPod, ...]:
    assert scene.node.pods is not None
    return scene.node.pods


def evict(scene: StageScenario, *, by_force: bool = False) -> None:
    refs = tuple(PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in pods(scene))
    scene.carry_out(EvictPods(pods=refs, by_force=by_force), wait=0.1)


def requests(scene: StageScenario) -> list[tuple[str, int]]:
    return [
        (each.verb.value, each.code)
        for each in scene.stage.journal().revisions or ()
        if each.kind == "Pod" and each.namespace == "work"
    ]


def test_an_evicted_pod_leaves_when_it_has_stopped() -> None:
    scene = scene_of(Tenant(name="train", stop_seconds=7.0))
    evict(scene)
    assert [(pod.display_name, pod.gpu, pod.deleting) for pod in pods(scene)] == [
        ("work/train", True, True)
    ]
    scene.advance(8)
    assert pods(scene) == ()
    assert requests(scene) == [(Verb.EVICT, 201), (Verb.DELETE, 200)]


def test_a_disruption_budget_refuses_for_a_while() -> None:
    scene = scene_of(Tenant(name="web", eviction_refused_for=12.0))
    evict(scene)
    (leaving,) = scene.node.evictions
    assert "disruption budget work/web" in leaving.refused
    scene.advance(30)
    assert pods(scene) == ()
    assert requests(scene) == [*(3 * [(Verb.EVICT, 429)]), (Verb.EVICT, 201), (Verb.DELETE, 200)]


@pytest.mark.parametrize(
    "stuck", [Tenant(name="a", eviction_refused_for=None), Tenant(name="b", stop_seconds=None)]
)
def test_a_stuck_pod_stays_until_it_is_force_deleted(stuck: Tenant) -> None:
    scene = scene_of(stuck)
    evict(scene)
    scene.advance(1000)
    assert len(pods(scene)) == 1
    evict(scene, by_force=True)
    scene.advance(1)
    assert pods(scene) == ()
    scene.advance(10)
    assert (scene.machine.tenant_pods == {}) == (stuck.stop_seconds is not None), (
        "a deaf process lives on"
    )


def test_an_eviction_that_is_cancelled_asks_no_more() -> None:
    scene = scene_of(Tenant(name="web", eviction_refused_for=100.0))
    evict(scene)
    scene.stage.carry_out(Decision(cancelled=(NODE,)))
    assert scene.node.evictions == ()
    scene.advance(300)
    assert requests(scene) == [(Verb.EVICT, 429)]


def test_a_gone_pod_counts_as_evicted_until_that_is_visible() -> None:
    scene = scene_of(Tenant(name="web", eviction_refused_for=100.0))
    scene.faults.freeze(PODS)
    evict(scene)
    scene.users.end_tenants(NODE)
    scene.advance(300)
    (leaving,) = scene.node.evictions
    assert leaving.refused == ""
    assert [one for one in requests(scene) if one[0] == Verb.EVICT] == [(Verb.EVICT, 429)]
    scene.faults.unfreeze(PODS)
    assert scene.node.evictions == ()


def test_a_job_ends_by_itself() -> None:
    scene = scene_of(Tenant(name="job", job=True, remaining=50.0, is_recreated=False))
    assert len(pods(scene)) == 1
    scene.advance(50)
    assert pods(scene) == ()


@pytest.mark.parametrize(("selector", "shown"), [("kind=job", True), ("", False)])
def test_jobs_are_shown_if_the_policy_waits_for_them(selector: str, shown: bool) -> None:
    waits = {"wait_for_completion": WaitForCompletion(pod_selector=selector)}
    scene = scene_of(
        Tenant(name="job", job=True), Tenant(name="web"), pools=(pool(rollout=None, upgrade=waits),)
    )
    assert [pod.job for pod in pods(scene)] == [shown, False]


def test_recreated_pods_start_when_the_node_is_uncordoned() -> None:
    scene = scene_of(Tenant(name="web"), Tenant(name="job", is_recreated=False))
    evict(scene)
    scene.advance(60)
    assert pods(scene) == ()
    scene.carry_out(scene.write(unschedulable=None))
    scene.advance(10)
    assert [pod.name for pod in pods(scene)] == ["web"]


def test_no_gpu_pod_comes_while_the_plugin_is_quiet() -> None:
    scene = scene_of(Tenant(name="web"), Tenant(name="cpu", gpus=0))
    evict(scene)
    scene.advance(10)
    scene.machine.agents["plugin"].holds_devices = False
    scene.carry_out(scene.write(unschedulable=None))
    scene.advance(10)
    assert [pod.name for pod in pods(scene)] == ["cpu"]


def test_operands_leave_by_a_pause_that_is_written_on_the_node() -> None:
    scene = scene_of(Tenant(name="dcgm", exemption=EvictionExemption.OPERAND))
    record = scene.node.record
    assert isinstance(record, NodeRecord)
    before = scene.node.revision
    scene.carry_out(scene.write(record=replace(record, paused=True)), wait=10.0)
    assert pods(scene) == ()
    writers = [
        each.manager
        for each in scene.stage.journal().revisions or ()
        if each.kind == "Node" and each.revision > int(before)
    ]
    assert "sluice-discovery" in writers
    scene.carry_out(scene.write(record=record), wait=10.0)
    assert [pod.exemption for pod in pods(scene)] == [EvictionExemption.OPERAND]


def test_pods_of_a_finished_node_are_not_watched() -> None:
    scene = StageScenario(tenants=(Tenant(name="web"),))
    assert scene.node.pods is None
    assert scene.node.usage is not None
    assert [use.gpus for use in scene.node.usage.pods] == [1]
