"""The whole: stages that are copied, taken from a snapshot, and told again."""

import pytest
from msgspec.structs import replace

from libs.audit import judge
from libs.contracts.commands import Idle, Quiesce, Swap, Validate
from libs.contracts.node import Record
from libs.contracts.reports import Outcome
from libs.forecast.stage import Stage, Tenant
from libs.forecast.world import Seeded, Steady
from tests.unit.forecast.stage.hands import NEW_LABEL, NODE, Scene
from tests.unit.rollout.building import NEW, install_of

AGENTS = ("plugin", "telemetry", "discovery")


def upgraded(scene: Scene) -> None:
    """A whole upgrade, each step by hand."""
    lease = scene.lease()
    scene.do(scene.write(state="pod-deletion-required", lease=lease, unschedulable=True))
    scene.do(*(scene.slot(part, Quiesce()) for part in AGENTS), wait=3.0)
    old = scene.node.driver_pods[0].uid
    scene.do(scene.write(state="pod-restart-required", driver_label=NEW_LABEL))
    scene.until_gone(old)
    swap = Swap(label=NEW_LABEL, install_digest=install_of(NEW), old_pod_uid=old)
    scene.do(scene.slot("driver", swap))
    while scene.result("driver").token != 2:
        scene.stage.advance()
    scene.do(*(scene.slot(part, Idle(), op=2) for part in AGENTS))
    scene.do(scene.slot("validator", Validate(label=NEW_LABEL)))
    while scene.result("validator").token != 2:
        scene.stage.advance()
    node = scene.node
    assert isinstance(node.record, Record)
    record = replace(node.record, state="upgrade-done", evidence=node.evidence)
    scene.do(
        scene.write(state="upgrade-done", record=record, lease=None, unschedulable=None), wait=10.0
    )


def test_a_whole_upgrade_ends_well_and_work_comes_back() -> None:
    scene = Scene(tenants=(Tenant(name="cpu", gpus=0),))
    upgraded(scene)
    node = scene.node
    assert (node.state, node.driver_label, node.cordoned) == ("upgrade-done", NEW_LABEL, False)
    assert node.evidence is not None
    assert node.evidence.passed
    assert [work.tenant.name for work in scene.machine.works.values()] == ["cpu"]
    assert scene.stage.violations == ()


def test_the_audit_reads_its_journal() -> None:
    scene = Scene()
    upgraded(scene)
    verdict = judge(scene.stage.journal())
    assert {found.invariant for found in verdict.violations} <= {"I2", "I3", "I6", "I8"}, (
        "hands write no `seen`, and no record of what they do"
    )
    assert set(verdict.unjudged) == {"I9", "I11"}


def test_the_same_story_is_told_twice_in_the_same_way() -> None:
    stories: list[tuple[tuple[float, str], ...]] = []
    for _ in range(2):
        scene = Scene(world=Seeded(7))
        upgraded(scene)
        stories.append(scene.stage.story)
    assert stories[0] == stories[1]
    assert len(stories[0]) > 10


def test_a_copy_goes_its_own_way() -> None:
    scene = Scene()
    scene.do(scene.slot("plugin", Quiesce()), wait=0.2)
    other = scene.stage.copy()
    scene.people.cordon(NODE)
    scene.let(10)
    seen = other.node(NODE)
    assert seen is not None
    assert not seen.cordoned
    assert len(other.story) < len(scene.stage.story)
    other.until(scene.stage.now)
    seen = other.node(NODE)
    assert seen is not None
    assert (seen.cordoned, seen.components["plugin"].result) == (False, scene.result("plugin"))


def test_what_is_pending_can_happen_in_another_order() -> None:
    scene = Scene()
    scene.do(scene.slot("plugin", Quiesce()), scene.slot("telemetry", Quiesce()), wait=0.05)
    first, second = scene.stage.pending()
    assert (first.shown, second.shown) == ("poked(n1, plugin)", "poked(n1, telemetry)")
    scene.stage.happen(second)
    assert scene.stage.now == second.at
    assert scene.machine.agents["telemetry"].running
    assert not scene.machine.agents["plugin"].running
    scene.stage.happen(first)
    assert scene.stage.now == second.at
    assert scene.machine.agents["plugin"].running


def of(scene: Scene) -> Scene:
    """The same, from a snapshot of what is seen."""
    fleet = scene.stage.fleet()
    made = Scene()
    made.stage = Stage.of(fleet, world=Steady(), now=scene.stage.now)
    return made


def test_a_snapshot_looks_like_what_it_was_taken_of() -> None:
    scene = Scene(tenants=(Tenant(name="web"), Tenant(name="train", guarded=60.0)))
    scene.do(scene.write(state="pod-deletion-required", lease=scene.lease(), unschedulable=True))
    scene.let(1)
    before, after = scene.node, of(scene).node
    changed = {
        field: (getattr(before, field), getattr(after, field))
        for field in before.__struct_fields__
        if getattr(before, field) != getattr(after, field)
    }
    assert changed.keys() <= {"revision", "components", "writers"}
    for part, seen in before.components.items():
        then = after.components[part]
        assert (then.slot, then.result, then.highest) == (seen.slot, seen.result, seen.highest)


@pytest.mark.parametrize("seconds", [0.2, 2.0, 8.0, 15.0, 40.0])
def test_a_snapshot_midway_goes_on_from_there(seconds: float) -> None:
    scene = Scene()
    for agent in scene.machine.agents.values():
        agent.holds = False
    old = scene.move()
    scene.until_gone(old)
    swap = Swap(label=NEW_LABEL, install_digest=install_of(NEW), old_pod_uid=old)
    scene.do(scene.slot("driver", swap), *(scene.slot(part, Quiesce()) for part in AGENTS))
    scene.let(seconds)
    then = of(scene)
    then.let(100)
    assert then.result("driver").outcome is Outcome.DONE
    assert [pod.ready for pod in then.node.driver_pods] == [True]
    assert then.stage.violations == ()


def test_a_snapshot_that_shows_no_pods_has_those_that_its_agent_told_of() -> None:
    scene = Scene(tenants=(Tenant(name="web", gpus=4),))
    assert scene.node.pods is None
    then = of(scene)
    then.do(then.write(state="pod-deletion-required", lease=then.lease(), unschedulable=True))
    assert then.node.pods is not None
    assert [(pod.gpu, pod.uid) for pod in then.node.pods] == [
        (True, next(iter(scene.machine.works)))
    ]


def test_without_a_journal_nothing_is_known_of_it() -> None:
    then = of(Scene())
    assert then.stage.journal().revisions is None
    assert then.stage.story == ()
