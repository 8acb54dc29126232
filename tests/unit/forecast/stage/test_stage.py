"""Whole stages: upgraded, copied, and taken from a snapshot."""

import pytest
from msgspec.structs import replace

from libs.audit import judge
from libs.contracts.commands import Idle, Quiesce, Swap, Validate
from libs.contracts.node import NodeRecord
from libs.contracts.reports import Outcome
from libs.forecast.stage.from_fleet import populate_from_fleet
from libs.testing.stage import SimulatedStage, Tenant
from libs.testing.stage.worlds import SteadyWorld
from tests.unit.forecast.stage.scenario import NEW_LABEL, NODE, StageScenario
from tests.unit.rollout.builders import NEW, install_of

AGENTS = ("plugin", "telemetry", "discovery")


def upgraded(scene: StageScenario) -> None:
    lease = scene.lease()
    scene.carry_out(scene.write(state="pod-deletion-required", lease=lease, unschedulable=True))
    scene.carry_out(*(scene.slot(part, Quiesce()) for part in AGENTS), wait=3.0)
    old = scene.node.driver_pods[0].uid
    scene.carry_out(scene.write(state="pod-restart-required", driver_label=NEW_LABEL))
    scene.run_until_gone(old)
    swap = Swap(label=NEW_LABEL, install_digest=install_of(NEW), old_pod_uid=old)
    scene.carry_out(scene.slot("driver", swap))
    while scene.result("driver").token != 2:
        scene.stage.advance()
    scene.carry_out(*(scene.slot(part, Idle(), op=2) for part in AGENTS))
    scene.carry_out(scene.slot("validator", Validate(label=NEW_LABEL)))
    while scene.result("validator").token != 2:
        scene.stage.advance()
    node = scene.node
    assert isinstance(node.record, NodeRecord)
    record = replace(node.record, state="upgrade-done", evidence=node.evidence)
    scene.carry_out(
        scene.write(state="upgrade-done", record=record, lease=None, unschedulable=None), wait=10.0
    )


def test_an_upgrade_succeeds_and_its_pods_come_back() -> None:
    scene = StageScenario(tenants=(Tenant(name="cpu", gpus=0),))
    upgraded(scene)
    node = scene.node
    assert (node.state, node.driver_label, node.cordoned) == ("upgrade-done", NEW_LABEL, False)
    assert node.evidence is not None
    assert node.evidence.passed
    assert [work.tenant.name for work in scene.machine.tenant_pods.values()] == ["cpu"]
    assert scene.stage.violations == ()


def test_the_audit_reads_its_journal() -> None:
    scene = StageScenario()
    upgraded(scene)
    verdict = judge(scene.stage.journal())
    assert {found.invariant for found in verdict.violations} <= {"I2", "I3", "I6", "I8"}, (
        "hands write no `seen`, and no record of what they do"
    )
    assert set(verdict.not_judged) == {"I9", "I11"}


def test_a_copy_is_independent() -> None:
    scene = StageScenario()
    scene.carry_out(scene.slot("plugin", Quiesce()), wait=0.2)
    other = scene.stage.copy()
    scene.users.cordon(NODE)
    scene.advance(10)
    seen = other.node(NODE)
    assert seen is not None
    assert not seen.cordoned
    assert len(other.log_lines) < len(scene.stage.log_lines)
    other.run_until(scene.stage.now)
    seen = other.node(NODE)
    assert seen is not None
    assert (seen.cordoned, seen.components["plugin"].result) == (False, scene.result("plugin"))


def test_timers_can_fire_in_another_order() -> None:
    scene = StageScenario()
    scene.carry_out(scene.slot("plugin", Quiesce()), scene.slot("telemetry", Quiesce()), wait=0.05)
    first, second = scene.stage.pending()
    assert [due.values for due in (first, second)] == [(NODE, "plugin"), (NODE, "telemetry")]
    scene.stage.fire(second)
    assert scene.stage.now == second.at
    assert scene.machine.agents["telemetry"].running
    assert not scene.machine.agents["plugin"].running
    scene.stage.fire(first)
    assert scene.stage.now == second.at
    assert scene.machine.agents["plugin"].running


def of(scene: StageScenario) -> StageScenario:
    """Return a scenario that begins with a snapshot of this one."""
    result = StageScenario()
    result.stage = SimulatedStage(world=SteadyWorld(), start=scene.stage.now, journalled=False)
    populate_from_fleet(result.stage.state, scene.stage.fleet())
    return result


def test_a_stage_from_a_snapshot_shows_the_same_views() -> None:
    scene = StageScenario(
        tenants=(Tenant(name="web"), Tenant(name="train", eviction_refused_for=60.0))
    )
    scene.carry_out(
        scene.write(state="pod-deletion-required", lease=scene.lease(), unschedulable=True)
    )
    scene.advance(1)
    before, after = scene.node, of(scene).node
    changed = {
        field: (getattr(before, field), getattr(after, field))
        for field in before.__struct_fields__
        if getattr(before, field) != getattr(after, field)
    }
    assert changed.keys() <= {"revision", "components", "writers"}
    for part, seen in before.components.items():
        then = after.components[part]
        assert (then.slot, then.result, then.highest_order) == (
            seen.slot,
            seen.result,
            seen.highest_order,
        )


@pytest.mark.parametrize("seconds", [0.2, 2.0, 8.0, 15.0, 40.0])
def test_a_stage_from_a_snapshot_continues_an_upgrade(seconds: float) -> None:
    scene = StageScenario()
    for agent in scene.machine.agents.values():
        agent.holds_devices = False
    old = scene.move_label()
    scene.run_until_gone(old)
    swap = Swap(label=NEW_LABEL, install_digest=install_of(NEW), old_pod_uid=old)
    scene.carry_out(scene.slot("driver", swap), *(scene.slot(part, Quiesce()) for part in AGENTS))
    scene.advance(seconds)
    then = of(scene)
    then.advance(100)
    assert then.result("driver").outcome is Outcome.DONE
    assert [pod.ready for pod in then.node.driver_pods] == [True]
    assert then.stage.violations == ()


def test_a_snapshot_without_pods_uses_the_reported_ones() -> None:
    scene = StageScenario(tenants=(Tenant(name="web", gpus=4),))
    assert scene.node.pods is None
    then = of(scene)
    then.carry_out(
        then.write(state="pod-deletion-required", lease=then.lease(), unschedulable=True)
    )
    assert then.node.pods is not None
    assert [(pod.gpu, pod.uid) for pod in then.node.pods] == [
        (True, next(iter(scene.machine.tenant_pods)))
    ]
