"""Decisions carried out: in order, each node by itself, and with every fault that there is."""

import pytest

from libs.contracts.commands import Idle, PreflightCheck, Quiesce
from libs.contracts.reports import Finding
from libs.contracts.waits import WaitCode
from libs.forecast.stage import Fate, Tenant
from libs.rollout.decision import (
    AskPreflight,
    Decision,
    Note,
    Step,
    Told,
    Wait,
    WriteNode,
    WriteSlot,
)
from libs.rollout.views.machine import Checked
from tests.unit.forecast.stage.hands import NODE, OLD_LABEL, Scene

CHECK = PreflightCheck(label=OLD_LABEL)


def codes(scene: Scene) -> list[int]:
    """Of writes to the Node."""
    return [
        each.code
        for each in scene.stage.journal().revisions or ()
        if each.kind == "Node" and each.manager == "sluice-scheduler"
    ]


def both(scene: Scene) -> tuple[WriteNode, WriteSlot]:
    """A write of the Node, and then one of a slot."""
    return scene.write(state="upgrade-required"), scene.slot("plugin", Quiesce())


def quiesced(scene: Scene) -> bool:
    """Whether the slot was written."""
    slot = scene.node.components["plugin"].slot
    return slot is not None and slot.token == 2


def test_actions_come_one_after_another_and_the_node_is_being_written_meanwhile() -> None:
    scene = Scene()
    note = Note(told=Told.EDIT, field="state", message="something")
    scene.do(*both(scene), note, wait=0.03)
    assert (scene.node.state, quiesced(scene), scene.node.writing) == (
        "upgrade-required", False, True
    )  # fmt: skip
    scene.let(0.02)
    assert (quiesced(scene), scene.node.writing) == (True, False)
    assert any("something" in text for _, text in scene.stage.story)


def test_what_fails_ends_the_step() -> None:
    scene = Scene()
    late, slot = both(scene)
    scene.people.cordon(NODE)
    scene.do(late, slot)
    assert codes(scene) == [409]
    assert not quiesced(scene)
    assert not scene.node.writing


def test_what_is_lost_is_given_up_after_a_while() -> None:
    scene = Scene()
    scene.do(*both(scene), fate=Fate(lost=True), wait=2.9)
    assert (codes(scene), quiesced(scene), scene.node.writing) == ([], False, True)
    scene.let(0.2)
    assert not scene.node.writing


def test_what_is_late_meets_a_world_that_went_on() -> None:
    scene = Scene()
    scene.do(*both(scene), fate=Fate(delay=2.0), wait=1.0)
    scene.people.cordon(NODE)
    scene.let(5)
    assert codes(scene) == [409]


def test_what_comes_twice_meets_itself() -> None:
    scene = Scene()
    scene.do(*both(scene), fate=Fate(again=1.0), wait=5.0)
    assert codes(scene) == [200, 409]
    assert quiesced(scene)


def test_half_of_it_is_done() -> None:
    scene = Scene()
    scene.do(*both(scene), fate=Fate(actions=1), wait=0.5)
    assert (codes(scene), quiesced(scene), scene.node.writing) == ([200], False, True)
    scene.let(3)
    assert (quiesced(scene), scene.node.writing) == (False, False)


def test_an_answer_that_is_lost_is_waited_for() -> None:
    scene = Scene()
    scene.do(*both(scene), fate=Fate(unanswered=True), wait=0.5)
    assert (codes(scene), quiesced(scene), scene.node.writing) == ([200], True, True)
    scene.let(3)
    assert not scene.node.writing


def test_a_slot_is_compared_with_what_was_read() -> None:
    scene = Scene()
    late = scene.slot("plugin", Quiesce())
    scene.do(late, fate=Fate(delay=1.0), wait=0.0)
    scene.do(scene.slot("plugin", Idle(), op=5), wait=3.0)
    slot = scene.node.components["plugin"].slot
    assert slot is not None
    assert slot.op == 5


def test_a_slot_that_says_so_already_is_not_written_again() -> None:
    scene = Scene()
    same = scene.slot("plugin", Quiesce())
    scene.do(same)
    before = scene.stage.state.slots[NODE, "plugin"].sequence
    scene.do(same)
    assert scene.stage.state.slots[NODE, "plugin"].sequence == before


@pytest.mark.parametrize("rested", [None, ()])
def test_waits_are_remembered_in_the_views_and_are_no_reason_to_decide(
    rested: tuple[str, ...] | None,
) -> None:
    scene = Scene()
    scene.stage.changed()
    wait = Wait(code=WaitCode.BUDGET, detail="full", since=1.0)
    scene.stage.carry_out(Decision(waits={NODE: wait}))
    assert scene.node.waiting is wait
    assert scene.stage.changed() == (frozenset(), frozenset())
    scene.stage.carry_out(Decision(), rested=rested)
    assert scene.node.waiting is (None if rested is None else wait)


def ask(scene: Scene, check: PreflightCheck = CHECK) -> None:
    """A preflight, of this boot."""
    scene.do(AskPreflight(boot_id=scene.node.boot_id, check=check), wait=0.1)


def checked(scene: Scene) -> Checked:
    """What is known of it."""
    found = scene.node.preflight
    assert found is not None
    return found


def test_a_preflight_is_answered_with_what_stands_in_the_way() -> None:
    nouveau = Finding(code="nouveau", message="it is loaded")
    scene = Scene(obstacles=(nouveau,), tenants=(Tenant(name="web"),), host_processes=2)
    ask(scene)
    assert checked(scene).answered is None
    scene.let(3)
    answer = checked(scene).answer
    assert answer is not None
    assert [each.code for each in answer.findings] == ["nouveau", "holder", "holder"]


def test_pods_that_the_plan_removes_stand_in_nobodys_way() -> None:
    scene = Scene(tenants=(Tenant(name="web"),))
    (uid,) = scene.machine.works
    ask(scene, PreflightCheck(label=OLD_LABEL, removes_pods=(uid,)))
    scene.let(3)
    answer = checked(scene).answer
    assert answer is not None
    assert answer.findings == ()


def test_a_silent_agent_does_not_answer() -> None:
    scene = Scene()
    scene.faults.agent_dies(NODE, "driver")
    ask(scene)
    scene.let(100)
    assert checked(scene).answer is None


def test_another_boot_has_no_preflight() -> None:
    scene = Scene()
    ask(scene)
    scene.let(3)
    scene.faults.reboot(NODE)
    scene.let(200)
    assert scene.node.preflight is None


def test_a_new_leader_knows_nothing_of_what_was_under_way() -> None:
    scene = Scene()
    ask(scene)
    scene.do(*both(scene), fate=Fate(delay=1.0), wait=0.1)
    assert scene.node.writing
    epoch = scene.stage.epoch
    assert scene.stage.elect() == scene.stage.epoch
    assert (scene.node.writing, scene.node.preflight, scene.node.waiting) == (False, None, None)
    assert scene.stage.epoch >= epoch
    scene.let(2)
    assert codes(scene) == [200], "what was sent arrives all the same"


def test_a_deposed_leader_neither_waits_nor_evicts() -> None:
    scene = Scene()
    before = scene.stage.state.leader
    scene.stage.elect()
    write = scene.write(state="upgrade-required")
    decision = Decision(
        steps={NODE: Step(actions=(write,), because="late")},
        waits={"other": Wait(code=WaitCode.BUDGET, detail="", since=0.0)},
    )
    scene.stage.carry_out(decision, leader=before)
    assert not scene.node.writing
    scene.let(1)
    assert codes(scene) == [200]
    assert "other" not in scene.stage.state.known
