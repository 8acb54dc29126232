"""Decisions carried out: in order, each node by itself, and with faults."""

import pytest

from libs.contracts.commands import Idle, PreflightCheck, Quiesce
from libs.contracts.node import WaitCode
from libs.contracts.reports import Finding
from libs.rollout.decision import (
    AskPreflight,
    Decision,
    Notice,
    NoticeKind,
    Wait,
    WriteNode,
    WriteSlot,
)
from libs.rollout.views.machine import PreflightQuery
from libs.testing.stage import EffectFault, Tenant
from tests.unit.forecast.stage.scenario import NODE, OLD_LABEL, StageScenario

CHECK = PreflightCheck(label=OLD_LABEL)


def codes(scene: StageScenario) -> list[int]:
    return [
        each.code
        for each in scene.stage.journal().revisions or ()
        if each.kind == "Node" and each.manager == "sluice-scheduler"
    ]


def both(scene: StageScenario) -> tuple[WriteNode, WriteSlot]:
    return scene.write(state="upgrade-required"), scene.slot("plugin", Quiesce())


def quiesced(scene: StageScenario) -> bool:
    slot = scene.node.components["plugin"].slot
    return slot is not None and slot.token == 2


def test_actions_come_one_after_another_and_the_node_is_being_written_meanwhile() -> None:
    scene = StageScenario()
    note = Notice(kind=NoticeKind.EDIT, field="state", message="something")
    scene.carry_out(*both(scene), note, wait=0.03)
    assert (scene.node.state, quiesced(scene), scene.node.write_pending) == (
        "upgrade-required", False, True
    )  # fmt: skip
    scene.advance(0.02)
    assert (quiesced(scene), scene.node.write_pending) == (True, False)
    assert any("something" in text for _, text in scene.stage.log_lines)


def test_a_failed_action_ends_the_step() -> None:
    scene = StageScenario()
    late, slot = both(scene)
    scene.users.cordon(NODE)
    scene.carry_out(late, slot)
    assert codes(scene) == [409]
    assert not quiesced(scene)
    assert not scene.node.write_pending


@pytest.mark.parametrize(
    ("fault", "at_first", "in_the_end"),
    [
        (EffectFault(lost=True), ([], False, True), []),
        (EffectFault(delay=2.0), ([], False, True), [200]),
        (EffectFault(repeat_after=1.0), ([200], True, False), [200, 409]),
        (EffectFault(max_actions=1), ([200], False, True), [200]),
        (EffectFault(unanswered=True), ([200], True, True), [200]),
    ],
)
def test_effects_can_be_lost_late_repeated_cut_short_or_unanswered(
    fault: EffectFault, at_first: tuple[list[int], bool, bool], in_the_end: list[int]
) -> None:
    scene = StageScenario()
    scene.carry_out(*both(scene), fault=fault)
    assert (codes(scene), quiesced(scene), scene.node.write_pending) == at_first
    scene.advance(5)
    assert (codes(scene), scene.node.write_pending) == (in_the_end, False)


def test_a_slot_is_compared_with_what_was_read() -> None:
    scene = StageScenario()
    late = scene.slot("plugin", Quiesce())
    scene.carry_out(late, fault=EffectFault(delay=1.0), wait=0.0)
    scene.carry_out(scene.slot("plugin", Idle(), op=5), wait=3.0)
    slot = scene.node.components["plugin"].slot
    assert slot is not None
    assert slot.op == 5


def test_an_unchanged_slot_is_not_written_again() -> None:
    scene = StageScenario()
    same = scene.slot("plugin", Quiesce())
    scene.carry_out(same)
    before = scene.stage.state.slots[NODE, "plugin"].sequence
    scene.carry_out(same)
    assert scene.stage.state.slots[NODE, "plugin"].sequence == before


@pytest.mark.parametrize("rested", [None, ()])
def test_waits_are_remembered_in_the_views_and_are_no_reason_to_decide(
    rested: tuple[str, ...] | None,
) -> None:
    scene = StageScenario()
    scene.stage.pop_view_update()
    wait = Wait(code=WaitCode.BUDGET, detail="full", since=1.0)
    scene.stage.carry_out(Decision(waits={NODE: wait}))
    assert scene.node.last_wait is wait
    assert not scene.stage.state.dirty
    assert not scene.stage.state.dirty_pools
    scene.stage.carry_out(Decision(), no_longer_waiting=rested)
    assert scene.node.last_wait is (None if rested is None else wait)


def ask(scene: StageScenario, check: PreflightCheck = CHECK) -> None:
    scene.carry_out(AskPreflight(boot_id=scene.node.boot_id, check=check), wait=0.1)


def checked(scene: StageScenario) -> PreflightQuery:
    found = scene.node.preflight
    assert found is not None
    return found


def test_a_preflight_returns_the_obstacles() -> None:
    nouveau = Finding(code="nouveau", message="it is loaded")
    scene = StageScenario(obstacles=(nouveau,), tenants=(Tenant(name="web"),), host_processes=2)
    ask(scene)
    assert checked(scene).answered_at is None
    scene.advance(3)
    answer = checked(scene).answer
    assert answer is not None
    assert [each.code for each in answer.findings] == ["nouveau", "holder", "holder"]


def test_pods_to_be_removed_are_no_finding() -> None:
    scene = StageScenario(tenants=(Tenant(name="web"),))
    (uid,) = scene.machine.tenant_pods
    ask(scene, PreflightCheck(label=OLD_LABEL, removes_pods=(uid,)))
    scene.advance(3)
    answer = checked(scene).answer
    assert answer is not None
    assert answer.findings == ()


def test_a_silent_agent_does_not_answer() -> None:
    scene = StageScenario()
    scene.faults.stop_agent(NODE, "driver")
    ask(scene)
    scene.advance(100)
    assert checked(scene).answer is None


def test_another_boot_has_no_preflight() -> None:
    scene = StageScenario()
    ask(scene)
    scene.advance(3)
    scene.faults.reboot(NODE)
    scene.advance(200)
    assert scene.node.preflight is None


def test_a_new_leader_has_no_memory() -> None:
    scene = StageScenario()
    ask(scene)
    scene.carry_out(*both(scene), fault=EffectFault(delay=1.0), wait=0.1)
    assert scene.node.write_pending
    epoch = scene.stage.epoch
    assert scene.stage.elect() == scene.stage.epoch
    assert (scene.node.write_pending, scene.node.preflight, scene.node.last_wait) == (
        False,
        None,
        None,
    )
    assert scene.stage.epoch >= epoch
    scene.advance(2)
    assert codes(scene) == [200], "what was sent arrives all the same"
