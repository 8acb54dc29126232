"""Pods of tenants: refusals, evictions and new pods."""

import pytest
from msgspec.structs import replace

from libs.contracts.journal import Verb
from libs.contracts.node import NodeRecord
from libs.policy.kinds.upgrade_policy import WaitForCompletion
from libs.rollout.decision import Decision, EvictPods, PodRef
from libs.rollout.views.machine import EvictionExemption, WorkloadPod
from libs.rollout.views.pool import PoolView
from libs.testing.not_none import not_none
from libs.testing.stage import Tenant
from libs.testing.stage.state import PODS
from tests.unit.forecast.stage.scenario import NODE, StageScenario
from tests.unit.rollout.builders import pool


def scenario_with(*tenants: Tenant, pools: tuple[PoolView, ...] | None = None) -> StageScenario:
    scenario = StageScenario(tenants=tenants, pools=pools)
    scenario.carry_out(
        scenario.write(state="pod-deletion-required", lease=scenario.lease(), unschedulable=True)
    )
    return scenario


def pods(scenario: StageScenario) -> tuple[WorkloadPod, ...]:
    return not_none(scenario.node.pods)


def evict(scenario: StageScenario, *, by_force: bool = False) -> None:
    refs = tuple(
        PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in pods(scenario)
    )
    scenario.carry_out(EvictPods(pods=refs, by_force=by_force), wait=0.1)


def requests(scenario: StageScenario) -> list[tuple[str, int]]:
    return [
        (revision.verb.value, revision.code)
        for revision in scenario.stage.journal().revisions or ()
        if revision.kind == "Pod" and revision.namespace == "work"
    ]


def test_an_evicted_pod_leaves_when_it_has_stopped() -> None:
    scenario = scenario_with(Tenant(name="train", stop_seconds=7.0))
    evict(scenario)
    assert [(pod.display_name, pod.gpu, pod.deleting) for pod in pods(scenario)] == [
        ("work/train", True, True)
    ]
    scenario.advance(8)
    assert pods(scenario) == ()
    assert requests(scenario) == [(Verb.EVICT, 201), (Verb.DELETE, 200)]


def test_a_disruption_budget_refuses_for_a_while() -> None:
    scenario = scenario_with(Tenant(name="web", eviction_refused_for=12.0))
    evict(scenario)
    (eviction,) = scenario.node.evictions
    assert "disruption budget work/web" in eviction.refused
    scenario.advance(30)
    assert pods(scenario) == ()
    assert requests(scenario) == [*(3 * [(Verb.EVICT, 429)]), (Verb.EVICT, 201), (Verb.DELETE, 200)]


@pytest.mark.parametrize(
    "stuck", [Tenant(name="a", eviction_refused_for=None), Tenant(name="b", stop_seconds=None)]
)
def test_a_stuck_pod_stays_until_it_is_force_deleted(stuck: Tenant) -> None:
    scenario = scenario_with(stuck)
    evict(scenario)
    scenario.advance(1000)
    assert len(pods(scenario)) == 1
    evict(scenario, by_force=True)
    scenario.advance(1)
    assert pods(scenario) == ()
    scenario.advance(10)
    assert (scenario.machine.tenant_pods == {}) == (stuck.stop_seconds is not None), (
        "a process that ignores the stop signal keeps running"
    )


def test_a_cancelled_eviction_is_not_requested_again() -> None:
    scenario = scenario_with(Tenant(name="web", eviction_refused_for=100.0))
    evict(scenario)
    scenario.stage.carry_out(Decision(cancelled=(NODE,)))
    assert scenario.node.evictions == ()
    scenario.advance(300)
    assert requests(scenario) == [(Verb.EVICT, 429)]


def test_a_deleted_pod_counts_as_evicted_until_its_deletion_is_visible() -> None:
    scenario = scenario_with(Tenant(name="web", eviction_refused_for=100.0))
    scenario.faults.freeze(PODS)
    evict(scenario)
    scenario.users.end_tenants(NODE)
    scenario.advance(300)
    (eviction,) = scenario.node.evictions
    assert eviction.refused == ""
    assert [request for request in requests(scenario) if request[0] == Verb.EVICT] == [
        (Verb.EVICT, 429)
    ]
    scenario.faults.unfreeze(PODS)
    assert scenario.node.evictions == ()


def test_a_job_ends_by_itself() -> None:
    scenario = scenario_with(Tenant(name="job", job=True, remaining=50.0, is_recreated=False))
    assert len(pods(scenario)) == 1
    scenario.advance(50)
    assert pods(scenario) == ()


@pytest.mark.parametrize(("selector", "shown"), [("kind=job", True), ("", False)])
def test_jobs_are_shown_if_the_policy_waits_for_them(selector: str, shown: bool) -> None:
    waits = {"wait_for_completion": WaitForCompletion(pod_selector=selector)}
    scenario = scenario_with(
        Tenant(name="job", job=True), Tenant(name="web"), pools=(pool(rollout=None, upgrade=waits),)
    )
    assert [pod.job for pod in pods(scenario)] == [shown, False]


def test_recreated_pods_start_when_the_node_is_uncordoned() -> None:
    scenario = scenario_with(Tenant(name="web"), Tenant(name="job", is_recreated=False))
    evict(scenario)
    scenario.advance(60)
    assert pods(scenario) == ()
    scenario.carry_out(scenario.write(unschedulable=None))
    scenario.advance(10)
    assert [pod.name for pod in pods(scenario)] == ["web"]


def test_no_gpu_pod_starts_while_the_plugin_is_quiesced() -> None:
    scenario = scenario_with(Tenant(name="web"), Tenant(name="cpu", gpus=0))
    evict(scenario)
    scenario.advance(10)
    scenario.machine.agents["plugin"].holds_devices = False
    scenario.carry_out(scenario.write(unschedulable=None))
    scenario.advance(10)
    assert [pod.name for pod in pods(scenario)] == ["cpu"]


def test_operands_end_when_the_node_is_paused() -> None:
    scenario = scenario_with(Tenant(name="dcgm", exemption=EvictionExemption.OPERAND))
    record = scenario.node.record
    assert isinstance(record, NodeRecord)
    before = scenario.node.revision
    scenario.carry_out(scenario.write(record=replace(record, paused=True)), wait=10.0)
    assert pods(scenario) == ()
    writers = [
        revision.manager
        for revision in scenario.stage.journal().revisions or ()
        if revision.kind == "Node" and revision.revision > int(before)
    ]
    assert "sluice-discovery" in writers
    scenario.carry_out(scenario.write(record=record), wait=10.0)
    assert [pod.exemption for pod in pods(scenario)] == [EvictionExemption.OPERAND]


def test_pods_of_a_finished_node_are_not_watched() -> None:
    scenario = StageScenario(tenants=(Tenant(name="web"),))
    assert scenario.node.pods is None
    assert [use.gpus for use in not_none(scenario.node.usage).pods] == [1]
