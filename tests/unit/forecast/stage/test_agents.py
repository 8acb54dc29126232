"""Slots of all components, and restarts of their agents."""

from typing import Any

import pytest

from libs.contracts.commands import Command, Idle, Order, Quiesce, Validate
from libs.contracts.journal import EntryPhase
from libs.contracts.reports import Outcome, Refusal, RefusalCode
from libs.forecast.stage import effects
from libs.testing.not_none import not_none
from libs.testing.stage.worlds import SteadyWorld
from tests.unit.forecast.stage.scenario import NODE, OLD_LABEL, StageScenario


def refusal_of(scenario: StageScenario, part: str = "validator") -> Refusal | None:
    return scenario.node.components[part].refusal


def started_ops(scenario: StageScenario, part: str) -> int:
    return sum(
        entry.phase is EntryPhase.STARTED and entry.component == part and entry.token == 2
        for entry in scenario.stage.journal().entries or ()
    )


def test_a_command_is_read_after_its_poke_and_acknowledged() -> None:
    scenario = StageScenario()
    scenario.carry_out(scenario.slot("plugin", Quiesce()), wait=0.0)
    while scenario.result("plugin").token != 2:
        scenario.stage.advance()
    result = scenario.result("plugin")
    assert (result.command, result.outcome, result.order) == (
        "quiesce", Outcome.DONE, Order(2, 1)
    )  # fmt: skip
    assert scenario.elapsed == pytest.approx(1.12)
    assert not scenario.machine.agents["plugin"].holds_devices


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"node_uid": "another"}, RefusalCode.OTHER_NODE),
        ({"boot_id": "another"}, RefusalCode.OTHER_BOOT),
        ({"epoch": 0}, RefusalCode.OLDER_EPOCH),
        ({"order": Order(0, 9)}, RefusalCode.OLDER_TOKEN),
        ({"order": Order(1, 1)}, RefusalCode.OLDER_OP),
        ({"deadline": 0.0}, RefusalCode.EXPIRED),
    ],
)
def test_unacceptable_commands_are_refused_with_a_message(
    changes: dict[str, Any], code: RefusalCode
) -> None:
    scenario = StageScenario()
    scenario.command("validator", Validate(label=OLD_LABEL), **changes)
    found = not_none(refusal_of(scenario))
    assert found.code is code
    assert found.message
    assert started_ops(scenario, "validator") == 0


def test_a_command_outside_its_capabilities_is_refused() -> None:
    scenario = StageScenario()
    scenario.machine.agents["validator"].capabilities = frozenset({"idle"})
    scenario.command("validator", Validate(label=OLD_LABEL))
    found = not_none(refusal_of(scenario))
    assert found.code is RefusalCode.NOT_FOR_ME


def test_idle_is_accepted_in_every_boot() -> None:
    scenario = StageScenario()
    scenario.command("plugin", Idle(), boot_id="another")
    assert scenario.result("plugin").order == Order(2, 1)


def put(scenario: StageScenario, command: Command) -> None:
    effects.put_slot(scenario.stage.state, NODE, "validator", command)
    scenario.advance(0.5)


def test_a_newer_epoch_takes_over_a_running_op() -> None:
    scenario = StageScenario(world=SteadyWorld(validation_seconds=30.0))
    scenario.command("validator", Validate(label=OLD_LABEL))
    put(scenario, scenario.slot("validator", Validate(label=OLD_LABEL), epoch=5).command)
    put(scenario, scenario.slot("validator", Validate(label=OLD_LABEL), epoch=4).command)
    found = not_none(refusal_of(scenario))
    assert found.code is RefusalCode.OLDER_EPOCH
    scenario.advance(40)
    result = scenario.result("validator")
    assert (result.outcome, result.epoch) == (Outcome.DONE, 5)
    assert started_ops(scenario, "validator") == 1


def test_a_finished_op_is_reported_again_but_not_run_again() -> None:
    scenario = StageScenario()
    scenario.carry_out(scenario.slot("plugin", Quiesce()), wait=3.0)
    before = scenario.result("plugin")
    scenario.faults.restart_agent(NODE, "plugin")
    scenario.advance(30)
    assert scenario.result("plugin") == before
    assert started_ops(scenario, "plugin") == 1
    assert not scenario.machine.agents["plugin"].holds_devices, "the slot still asks for quiesce"


def test_a_stopped_agent_becomes_silent_and_releases_the_devices() -> None:
    scenario = StageScenario()
    assert not scenario.node.components["plugin"].is_silent(scenario.stage.now + 3600)
    scenario.faults.stop_agent(NODE, "plugin")
    assert not scenario.node.components["plugin"].is_silent(scenario.stage.now)
    assert scenario.node.components["plugin"].is_silent(scenario.stage.now + 180)
    assert not scenario.machine.agents["plugin"].holds_devices
    scenario.faults.restart_agent(NODE, "plugin")
    scenario.advance(10)
    assert not scenario.node.components["plugin"].is_silent(scenario.stage.now + 3600)
    assert scenario.machine.agents["plugin"].holds_devices


def test_reports_are_published_when_the_bus_is_back() -> None:
    scenario = StageScenario()
    scenario.carry_out(scenario.slot("plugin", Quiesce()), wait=0.3)
    scenario.faults.set_bus_up(False)
    assert scenario.stage.instant().visibility.bus_down_since == scenario.stage.now
    scenario.advance(10)
    assert scenario.result("plugin").token == 1
    scenario.carry_out(scenario.slot("telemetry", Quiesce()), wait=5.0)
    scenario.faults.set_bus_up(True)
    assert scenario.result("plugin").token == 2
    scenario.advance(5)
    assert scenario.result("telemetry").token == 1, "a slot is not written during a bus outage"
    visibility = scenario.stage.instant().visibility
    assert (visibility.bus_down_since, len(visibility.bus_outages)) == (None, 1)
