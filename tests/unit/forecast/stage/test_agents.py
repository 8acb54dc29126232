"""What all components do with their slots, and what is left when they die."""

from typing import Any

import pytest

from libs.contracts.commands import Command, Idle, Order, Quiesce, Validate
from libs.contracts.journal import EntryPhase
from libs.contracts.reports import Outcome, Refusal, RefusalCode
from libs.forecast.stage import effects
from libs.forecast.world import Steady
from tests.unit.forecast.stage.hands import NODE, OLD_LABEL, Scene


def refused(scene: Scene, part: str = "validator") -> Refusal | None:
    """What it did not take."""
    return scene.node.components[part].refusal


def begun(scene: Scene, part: str) -> int:
    """How many ops of the lease it began."""
    return sum(
        each.phase is EntryPhase.STARTED and each.component == part and each.token == 2
        for each in scene.stage.journal().entries or ()
    )


def test_a_command_is_read_after_its_poke_and_acknowledged() -> None:
    scene = Scene()
    scene.do(scene.slot("plugin", Quiesce()), wait=0.0)
    while scene.result("plugin").token != 2:
        scene.stage.advance()
    result = scene.result("plugin")
    assert (result.command, result.outcome, result.order) == (
        "quiesce", Outcome.DONE, Order(2, 1)
    )  # fmt: skip
    assert scene.passed == pytest.approx(1.12)
    assert not scene.machine.agents["plugin"].holds


def test_a_lost_poke_costs_a_minute() -> None:
    scene = Scene()
    scene.faults.deaf(NODE, "plugin")
    scene.do(scene.slot("plugin", Quiesce()))
    scene.let(55)
    assert scene.result("plugin").token == 1
    scene.let(10)
    assert scene.result("plugin").token == 2


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"node_uid": "another"}, RefusalCode.OTHER_NODE),
        ({"boot_id": "another"}, RefusalCode.OTHER_BOOT),
        ({"epoch": 0}, RefusalCode.OLDER_EPOCH),
        ({"order": Order(0, 9)}, RefusalCode.OLDER_TOKEN),
        ({"order": Order(1, 1)}, RefusalCode.OLDER_OP),
        ({"deadline": 0.0}, RefusalCode.EXPIRED),
    ],
)
def test_what_is_not_for_it_is_refused_in_words(said: dict[str, Any], code: RefusalCode) -> None:
    scene = Scene()
    scene.do(scene.slot("validator", Validate(label=OLD_LABEL), **said))
    found = refused(scene)
    assert found is not None
    assert found.code is code
    assert found.message
    assert begun(scene, "validator") == 0


def test_a_kind_that_it_does_not_know_is_refused() -> None:
    scene = Scene()
    scene.machine.agents["validator"].knows = frozenset({"idle"})
    scene.do(scene.slot("validator", Validate(label=OLD_LABEL)))
    found = refused(scene)
    assert found is not None
    assert found.code is RefusalCode.UNKNOWN_KIND


def test_idle_counts_in_every_boot() -> None:
    scene = Scene()
    scene.do(scene.slot("plugin", Idle(), boot_id="another"))
    assert scene.result("plugin").order == Order(2, 1)


def put(scene: Scene, command: Command) -> None:
    """As a leader does."""
    effects.put_slot(scene.stage.state, NODE, "validator", command)
    scene.let(0.5)


def test_a_newer_epoch_adopts_an_op_and_does_not_run_it_again() -> None:
    scene = Scene(world=Steady(validating=30.0))
    scene.do(scene.slot("validator", Validate(label=OLD_LABEL)))
    put(scene, scene.slot("validator", Validate(label=OLD_LABEL), epoch=5).command)
    put(scene, scene.slot("validator", Validate(label=OLD_LABEL), epoch=4).command)
    found = refused(scene)
    assert found is not None
    assert found.code is RefusalCode.OLDER_EPOCH
    scene.let(40)
    result = scene.result("validator")
    assert (result.outcome, result.epoch) == (Outcome.DONE, 5)
    assert begun(scene, "validator") == 1


def test_a_finished_op_is_said_again_and_not_run_again() -> None:
    scene = Scene()
    scene.do(scene.slot("plugin", Quiesce()), wait=3.0)
    before = scene.result("plugin")
    scene.faults.agent_restarts(NODE, "plugin")
    scene.let(30)
    assert scene.result("plugin") == before
    assert begun(scene, "plugin") == 1
    assert not scene.machine.agents["plugin"].holds, "it holds as long as the slot says so"


def test_without_its_journal_its_last_report_is_one() -> None:
    scene = Scene()
    scene.do(scene.slot("plugin", Quiesce()), wait=3.0)
    scene.faults.agent_restarts(NODE, "plugin", forgets=True)
    scene.let(30)
    assert begun(scene, "plugin") == 1


def test_a_dead_agent_counts_as_silent_after_a_while_and_lets_go() -> None:
    scene = Scene()
    assert not scene.node.components["plugin"].silent(scene.stage.now + 3600)
    scene.faults.agent_dies(NODE, "plugin")
    assert not scene.node.components["plugin"].silent(scene.stage.now)
    assert scene.node.components["plugin"].silent(scene.stage.now + 180)
    assert not scene.machine.agents["plugin"].holds
    scene.faults.agent_restarts(NODE, "plugin")
    scene.let(10)
    assert not scene.node.components["plugin"].silent(scene.stage.now + 3600)
    assert scene.machine.agents["plugin"].holds


def test_one_that_hangs_is_silent_too_but_holds_on() -> None:
    scene = Scene()
    scene.faults.agent_dies(NODE, "plugin", hung=True)
    scene.do(scene.slot("plugin", Quiesce()))
    scene.let(200)
    assert scene.node.components["plugin"].silent(scene.stage.now)
    assert scene.machine.agents["plugin"].holds
    assert scene.result("plugin").token == 1


def test_what_is_said_while_the_bus_is_away_is_said_when_it_is_back() -> None:
    scene = Scene()
    scene.do(scene.slot("plugin", Quiesce()), wait=0.3)
    scene.faults.bus(False)
    assert scene.stage.instant().sight.away_since == scene.stage.now
    scene.let(10)
    assert scene.result("plugin").token == 1
    scene.do(scene.slot("telemetry", Quiesce()), wait=5.0)
    scene.faults.bus(True)
    assert scene.result("plugin").token == 2
    scene.let(5)
    assert scene.result("telemetry").token == 1, "what could not be written was not"
    sight = scene.stage.instant().sight
    assert (sight.away_since, len(sight.away)) == (None, 1)


def test_agents_of_a_machine_that_is_cut_off_catch_up() -> None:
    scene = Scene()
    scene.faults.cut_agents(NODE)
    scene.do(scene.slot("plugin", Quiesce(), deadline=scene.stage.now + 1000.0), wait=200.0)
    assert scene.node.components["plugin"].silent(scene.stage.now)
    assert scene.result("plugin").token == 1
    scene.faults.join_agents(NODE)
    scene.let(5)
    assert scene.result("plugin").token == 2
    assert not scene.node.components["plugin"].silent(scene.stage.now)


def test_another_node_uid_is_another_node_of_which_nothing_is_known() -> None:
    scene = Scene()
    pool = scene.node.pool
    scene.people.delete_node(NODE)
    scene.let(1)
    scene.people.register(NODE, pool)
    node = scene.node
    assert {part.slot for part in node.components.values()} == {None}
    assert {part.result for part in node.components.values()} == {None}
    assert node.loaded is not None, "the machine runs what it ran"
    assert (node.state, node.record, node.lease) == ("", None, None)


def test_a_reboot_forgets_what_was_in_memory_and_keeps_the_journal() -> None:
    scene = Scene(world=Steady(booting=30.0))
    scene.do(scene.slot("plugin", Quiesce()), wait=3.0)
    scene.faults.reboot(NODE)
    scene.let(60)
    assert scene.result("plugin").order == Order(2, 1)
    found = refused(scene, "plugin")
    assert found is not None
    assert found.code is RefusalCode.OTHER_BOOT
