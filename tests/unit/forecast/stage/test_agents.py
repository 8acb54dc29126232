"""Slots of all components, and restarts of their agents."""

from typing import Any

import pytest

from libs.contracts.commands import Command, Idle, Order, Quiesce, Validate
from libs.contracts.journal import EntryPhase
from libs.contracts.reports import Outcome, Refusal, RefusalCode
from libs.forecast.stage import effects
from libs.testing.stage.worlds import SteadyWorld
from tests.unit.forecast.stage.scenario import NODE, OLD_LABEL, StageScenario


def refused(scene: StageScenario, part: str = "validator") -> Refusal | None:
    return scene.node.components[part].refusal


def begun(scene: StageScenario, part: str) -> int:
    return sum(
        each.phase is EntryPhase.STARTED and each.component == part and each.token == 2
        for each in scene.stage.journal().entries or ()
    )


def test_a_command_is_read_after_its_poke_and_acknowledged() -> None:
    scene = StageScenario()
    scene.carry_out(scene.slot("plugin", Quiesce()), wait=0.0)
    while scene.result("plugin").token != 2:
        scene.stage.advance()
    result = scene.result("plugin")
    assert (result.command, result.outcome, result.order) == (
        "quiesce", Outcome.DONE, Order(2, 1)
    )  # fmt: skip
    assert scene.elapsed == pytest.approx(1.12)
    assert not scene.machine.agents["plugin"].holds_devices


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
    scene = StageScenario()
    scene.carry_out(scene.slot("validator", Validate(label=OLD_LABEL), **changes))
    found = refused(scene)
    assert found is not None
    assert found.code is code
    assert found.message
    assert begun(scene, "validator") == 0


def test_a_command_outside_its_capabilities_is_refused() -> None:
    scene = StageScenario()
    scene.machine.agents["validator"].capabilities = frozenset({"idle"})
    scene.carry_out(scene.slot("validator", Validate(label=OLD_LABEL)))
    found = refused(scene)
    assert found is not None
    assert found.code is RefusalCode.NOT_FOR_ME


def test_idle_counts_in_every_boot() -> None:
    scene = StageScenario()
    scene.carry_out(scene.slot("plugin", Idle(), boot_id="another"))
    assert scene.result("plugin").order == Order(2, 1)


def put(scene: StageScenario, command: Command) -> None:
    effects.put_slot(scene.stage.state, NODE, "validator", command)
    scene.advance(0.5)


def test_a_newer_epoch_adopts_an_op_and_does_not_run_it_again() -> None:
    scene = StageScenario(world=SteadyWorld(validation_seconds=30.0))
    scene.carry_out(scene.slot("validator", Validate(label=OLD_LABEL)))
    put(scene, scene.slot("validator", Validate(label=OLD_LABEL), epoch=5).command)
    put(scene, scene.slot("validator", Validate(label=OLD_LABEL), epoch=4).command)
    found = refused(scene)
    assert found is not None
    assert found.code is RefusalCode.OLDER_EPOCH
    scene.advance(40)
    result = scene.result("validator")
    assert (result.outcome, result.epoch) == (Outcome.DONE, 5)
    assert begun(scene, "validator") == 1


def test_a_finished_op_is_reported_again_but_not_run_again() -> None:
    scene = StageScenario()
    scene.carry_out(scene.slot("plugin", Quiesce()), wait=3.0)
    before = scene.result("plugin")
    scene.faults.restart_agent(NODE, "plugin")
    scene.advance(30)
    assert scene.result("plugin") == before
    assert begun(scene, "plugin") == 1
    assert not scene.machine.agents["plugin"].holds_devices, "it holds as long as the slot says so"


def test_a_dead_agent_counts_as_silent_after_a_while_and_lets_go() -> None:
    scene = StageScenario()
    assert not scene.node.components["plugin"].is_silent(scene.stage.now + 3600)
    scene.faults.stop_agent(NODE, "plugin")
    assert not scene.node.components["plugin"].is_silent(scene.stage.now)
    assert scene.node.components["plugin"].is_silent(scene.stage.now + 180)
    assert not scene.machine.agents["plugin"].holds_devices
    scene.faults.restart_agent(NODE, "plugin")
    scene.advance(10)
    assert not scene.node.components["plugin"].is_silent(scene.stage.now + 3600)
    assert scene.machine.agents["plugin"].holds_devices


def test_reports_are_published_when_the_bus_is_back() -> None:
    scene = StageScenario()
    scene.carry_out(scene.slot("plugin", Quiesce()), wait=0.3)
    scene.faults.set_bus_up(False)
    assert scene.stage.instant().visibility.bus_down_since == scene.stage.now
    scene.advance(10)
    assert scene.result("plugin").token == 1
    scene.carry_out(scene.slot("telemetry", Quiesce()), wait=5.0)
    scene.faults.set_bus_up(True)
    assert scene.result("plugin").token == 2
    scene.advance(5)
    assert scene.result("telemetry").token == 1, "what could not be written was not"
    sight = scene.stage.instant().visibility
    assert (sight.bus_down_since, len(sight.bus_outages)) == (None, 1)
