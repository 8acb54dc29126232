"""Whole stages: upgraded, copied, and taken from a snapshot."""

import pytest
from msgspec.structs import replace

from libs.audit import judge
from libs.contracts.commands import Idle, Quiesce, Swap, Validate
from libs.contracts.node import NodeRecord
from libs.contracts.reports import Outcome
from libs.forecast.stage.from_fleet import populate_from_fleet
from libs.testing.not_none import not_none
from libs.testing.stage import SimulatedStage, Tenant
from libs.testing.stage.worlds import SteadyWorld
from tests.unit.forecast.stage.scenario import NEW_LABEL, NODE, StageScenario
from tests.unit.rollout.builders import NEW, install_of

AGENTS = ("plugin", "telemetry", "discovery")


def run_upgrade(scenario: StageScenario) -> None:
    lease = scenario.lease()
    scenario.carry_out(
        scenario.write(state="pod-deletion-required", lease=lease, unschedulable=True)
    )
    scenario.carry_out(*(scenario.slot(part, Quiesce()) for part in AGENTS), wait=3.0)
    old = scenario.node.driver_pods[0].uid
    scenario.carry_out(scenario.write(state="pod-restart-required", driver_label=NEW_LABEL))
    scenario.run_until_gone(old)
    swap = Swap(label=NEW_LABEL, install_digest=install_of(NEW), old_pod_uid=old)
    scenario.command("driver", swap)
    while scenario.result("driver").token != 2:
        scenario.stage.advance()
    scenario.carry_out(*(scenario.slot(part, Idle(), op=2) for part in AGENTS))
    scenario.command("validator", Validate(label=NEW_LABEL))
    while scenario.result("validator").token != 2:
        scenario.stage.advance()
    node = scenario.node
    assert isinstance(node.record, NodeRecord)
    record = replace(node.record, state="upgrade-done", evidence=node.evidence)
    scenario.carry_out(
        scenario.write(state="upgrade-done", record=record, lease=None, unschedulable=None),
        wait=10.0,
    )


def test_an_upgrade_succeeds_and_its_pods_come_back() -> None:
    scenario = StageScenario(tenants=(Tenant(name="cpu", gpus=0),))
    run_upgrade(scenario)
    node = scenario.node
    assert (node.state, node.driver_label, node.cordoned) == ("upgrade-done", NEW_LABEL, False)
    assert not_none(node.evidence).passed
    assert [pod.tenant.name for pod in scenario.machine.tenant_pods.values()] == ["cpu"]
    assert scenario.stage.violations == ()


def test_the_audit_reads_the_journal_of_a_stage() -> None:
    scenario = StageScenario()
    run_upgrade(scenario)
    verdict = judge(scenario.stage.journal())
    assert {found.invariant for found in verdict.violations} <= {"I2", "I3", "I6", "I8"}, (
        "the test writes neither `seen` nor the fields of a lease into the record"
    )
    assert set(verdict.not_judged) == {"I1", "I8"}, "the test writes no Rollout"


def test_a_copy_is_independent() -> None:
    scenario = StageScenario()
    scenario.carry_out(scenario.slot("plugin", Quiesce()), wait=0.2)
    copy = scenario.stage.copy()
    scenario.users.cordon(NODE)
    scenario.advance(10)
    node = not_none(copy.node(NODE))
    assert not node.cordoned
    assert len(copy.log_lines) < len(scenario.stage.log_lines)
    copy.run_until(scenario.stage.now)
    node = not_none(copy.node(NODE))
    assert (node.cordoned, node.components["plugin"].result) == (False, scenario.result("plugin"))


def test_timers_can_fire_in_another_order() -> None:
    scenario = StageScenario()
    scenario.carry_out(
        scenario.slot("plugin", Quiesce()), scenario.slot("telemetry", Quiesce()), wait=0.05
    )
    first, second = scenario.stage.pending()
    assert [due.values for due in (first, second)] == [(NODE, "plugin"), (NODE, "telemetry")]
    scenario.stage.fire(second)
    assert scenario.stage.now == second.at
    assert scenario.machine.agents["telemetry"].running
    assert not scenario.machine.agents["plugin"].running
    scenario.stage.fire(first)
    assert scenario.stage.now == second.at
    assert scenario.machine.agents["plugin"].running


def from_snapshot(scenario: StageScenario) -> StageScenario:
    """Return a scenario that begins with a snapshot of this one."""
    result = StageScenario()
    result.stage = SimulatedStage(world=SteadyWorld(), start=scenario.stage.now, journalled=False)
    populate_from_fleet(result.stage.state, scenario.stage.fleet())
    return result


def test_a_stage_from_a_snapshot_shows_the_same_views() -> None:
    scenario = StageScenario(
        tenants=(Tenant(name="web"), Tenant(name="train", eviction_refused_for=60.0))
    )
    scenario.carry_out(
        scenario.write(state="pod-deletion-required", lease=scenario.lease(), unschedulable=True)
    )
    scenario.advance(1)
    before, after = scenario.node, from_snapshot(scenario).node
    changed = {
        field: (getattr(before, field), getattr(after, field))
        for field in before.__struct_fields__
        if getattr(before, field) != getattr(after, field)
    }
    assert changed.keys() <= {"revision", "components", "writers"}
    for part, component in before.components.items():
        copied = after.components[part]
        assert (copied.slot, copied.result, copied.highest_order) == (
            component.slot,
            component.result,
            component.highest_order,
        )


@pytest.mark.parametrize("seconds", [0.2, 2.0, 8.0, 15.0, 40.0])
def test_a_stage_from_a_snapshot_continues_an_upgrade(seconds: float) -> None:
    scenario = StageScenario()
    for agent in scenario.machine.agents.values():
        agent.holds_devices = False
    old = scenario.move_label()
    scenario.run_until_gone(old)
    swap = Swap(label=NEW_LABEL, install_digest=install_of(NEW), old_pod_uid=old)
    scenario.carry_out(
        scenario.slot("driver", swap), *(scenario.slot(part, Quiesce()) for part in AGENTS)
    )
    scenario.advance(seconds)
    restored = from_snapshot(scenario)
    restored.advance(100)
    assert restored.result("driver").outcome is Outcome.DONE
    assert [pod.ready for pod in restored.node.driver_pods] == [True]
    assert restored.stage.violations == ()


def test_a_snapshot_without_pods_uses_the_reported_ones() -> None:
    scenario = StageScenario(tenants=(Tenant(name="web", gpus=4),))
    assert scenario.node.pods is None
    restored = from_snapshot(scenario)
    restored.carry_out(
        restored.write(state="pod-deletion-required", lease=restored.lease(), unschedulable=True)
    )
    assert [(pod.gpu, pod.uid) for pod in not_none(restored.node.pods)] == [
        (True, next(iter(scenario.machine.tenant_pods)))
    ]
