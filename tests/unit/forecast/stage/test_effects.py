"""Decisions carried out: in order, each node by itself, and with faults."""

import pytest

from libs.contracts.commands import Idle, PreflightCheck, Quiesce
from libs.contracts.reports import Finding
from libs.contracts.waits import WaitCode
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
from libs.testing.not_none import not_none
from libs.testing.stage import EffectFault, Tenant
from tests.unit.forecast.stage.scenario import NODE, OLD_LABEL, StageScenario

CHECK = PreflightCheck(label=OLD_LABEL)


def codes(scenario: StageScenario) -> list[int]:
    return [
        revision.code
        for revision in scenario.stage.journal().revisions or ()
        if revision.kind == "Node" and revision.manager == "sluice-scheduler"
    ]


def two_actions(scenario: StageScenario) -> tuple[WriteNode, WriteSlot]:
    return scenario.write(state="upgrade-required"), scenario.slot("plugin", Quiesce())


def quiesced(scenario: StageScenario) -> bool:
    slot = scenario.node.components["plugin"].slot
    return slot is not None and slot.token == 2


def test_actions_of_a_step_run_in_order_while_the_node_has_a_pending_write() -> None:
    scenario = StageScenario()
    note = Notice(kind=NoticeKind.EDIT, field="state", message="something")
    scenario.carry_out(*two_actions(scenario), note, wait=0.03)
    assert (scenario.node.state, quiesced(scenario), scenario.node.write_pending) == (
        "upgrade-required", False, True
    )  # fmt: skip
    scenario.advance(0.02)
    assert (quiesced(scenario), scenario.node.write_pending) == (True, False)
    assert any("something" in text for _, text in scenario.stage.log_lines)


def test_a_failed_action_ends_the_step() -> None:
    scenario = StageScenario()
    stale_write, slot = two_actions(scenario)
    scenario.users.cordon(NODE)
    scenario.carry_out(stale_write, slot)
    assert codes(scenario) == [409]
    assert not quiesced(scenario)
    assert not scenario.node.write_pending


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
def test_faults_of_effects(
    fault: EffectFault, at_first: tuple[list[int], bool, bool], in_the_end: list[int]
) -> None:
    scenario = StageScenario()
    scenario.carry_out(*two_actions(scenario), fault=fault)
    assert (codes(scenario), quiesced(scenario), scenario.node.write_pending) == at_first
    scenario.advance(5)
    assert (codes(scenario), scenario.node.write_pending) == (in_the_end, False)


def test_a_write_on_an_older_slot_sequence_is_refused() -> None:
    scenario = StageScenario()
    delayed = scenario.slot("plugin", Quiesce())
    scenario.carry_out(delayed, fault=EffectFault(delay=1.0), wait=0.0)
    scenario.carry_out(scenario.slot("plugin", Idle(), op=5), wait=3.0)
    slot = not_none(scenario.node.components["plugin"].slot)
    assert slot.op == 5


def test_an_unchanged_slot_is_not_written_again() -> None:
    scenario = StageScenario()
    write = scenario.slot("plugin", Quiesce())
    scenario.carry_out(write)
    before = scenario.stage.state.slots[NODE, "plugin"].sequence
    scenario.carry_out(write)
    assert scenario.stage.state.slots[NODE, "plugin"].sequence == before


@pytest.mark.parametrize("no_longer_waiting", [None, ()])
def test_waits_are_stored_in_the_views_and_cause_no_decision(
    no_longer_waiting: tuple[str, ...] | None,
) -> None:
    scenario = StageScenario()
    scenario.stage.pop_view_update()
    wait = Wait(code=WaitCode.BUDGET, detail="full", since=1.0)
    scenario.stage.carry_out(Decision(waits={NODE: wait}))
    assert scenario.node.last_wait is wait
    assert not scenario.stage.state.dirty
    assert not scenario.stage.state.dirty_pools
    scenario.stage.carry_out(Decision(), no_longer_waiting=no_longer_waiting)
    assert scenario.node.last_wait is (None if no_longer_waiting is None else wait)


def ask(scenario: StageScenario, check: PreflightCheck = CHECK) -> None:
    scenario.carry_out(AskPreflight(boot_id=scenario.node.boot_id, check=check), wait=0.1)


def preflight_of(scenario: StageScenario) -> PreflightQuery:
    return not_none(scenario.node.preflight)


def test_a_preflight_returns_the_obstacles() -> None:
    nouveau = Finding(code="nouveau", message="it is loaded")
    scenario = StageScenario(obstacles=(nouveau,), tenants=(Tenant(name="web"),), host_processes=2)
    ask(scenario)
    assert preflight_of(scenario).answered_at is None
    scenario.advance(3)
    answer = not_none(preflight_of(scenario).answer)
    assert [finding.code for finding in answer.findings] == ["nouveau", "holder", "holder"]


def test_pods_to_be_removed_are_no_finding() -> None:
    scenario = StageScenario(tenants=(Tenant(name="web"),))
    (uid,) = scenario.machine.tenant_pods
    ask(scenario, PreflightCheck(label=OLD_LABEL, removes_pods=(uid,)))
    scenario.advance(3)
    answer = not_none(preflight_of(scenario).answer)
    assert answer.findings == ()


def test_the_pods_of_a_node_whose_driver_is_to_be_removed_are_listed_before_it_is_asked() -> None:
    scenario = StageScenario(tenants=(Tenant(name="web"),))
    assert scenario.node.pods is None
    removal = PreflightCheck(label="")
    boot_id = scenario.node.boot_id
    scenario.carry_out(AskPreflight(boot_id=boot_id, check=removal, awaits_pods=True), wait=3.0)
    assert preflight_of(scenario).answer is None
    assert [pod.name for pod in scenario.node.pods or ()] == ["web"]
    ask(scenario, removal)
    scenario.advance(3)
    assert preflight_of(scenario).answer is not None


def test_a_silent_agent_does_not_answer() -> None:
    scenario = StageScenario()
    scenario.faults.stop_agent(NODE, "driver")
    ask(scenario)
    scenario.advance(100)
    assert preflight_of(scenario).answer is None


def test_another_boot_has_no_preflight() -> None:
    scenario = StageScenario()
    ask(scenario)
    scenario.advance(3)
    scenario.faults.reboot(NODE)
    scenario.advance(200)
    assert scenario.node.preflight is None


def test_a_new_leader_starts_without_pending_writes_preflights_and_waits() -> None:
    scenario = StageScenario()
    ask(scenario)
    scenario.carry_out(*two_actions(scenario), fault=EffectFault(delay=1.0), wait=0.1)
    assert scenario.node.write_pending
    epoch = scenario.stage.epoch
    assert scenario.stage.elect() == scenario.stage.epoch
    assert (scenario.node.write_pending, scenario.node.preflight, scenario.node.last_wait) == (
        False,
        None,
        None,
    )
    assert scenario.stage.epoch >= epoch
    scenario.advance(2)
    assert codes(scenario) == [200], "a write sent by the former leader still takes effect"
