"""The validator's chain, and what its evidence names."""

import pytest

from libs.contracts.commands import Idle, Quiesce, Validate
from libs.contracts.reports import Evidence, Outcome
from libs.forecast.stage.validator_agent import STEPS
from libs.forecast.world import VALIDATION_STEPS, ValidationEnd
from libs.testing.not_none import not_none
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.unit.forecast.stage.scenario import NEW_LABEL, NODE, OLD_LABEL, StageScenario

VALIDATE = Validate(label=OLD_LABEL)


def evidence_of(scenario: StageScenario) -> Evidence:
    return not_none(scenario.node.evidence)


def phases(scenario: StageScenario) -> list[str]:
    found: list[str] = []
    while scenario.node.evidence is None:
        progress = scenario.node.components["validator"].progress
        if progress is not None and progress.phase not in found:
            found.append(progress.phase)
        scenario.stage.advance()
    return found


def test_evidence_names_the_validated_driver() -> None:
    scenario = StageScenario()
    scenario.command("validator", VALIDATE, advance=30)
    evidence, node = evidence_of(scenario), scenario.node
    (pod,) = node.driver_pods
    assert scenario.result("validator").outcome is Outcome.DONE
    assert (evidence.passed, evidence.order, evidence.label) == (True, (2, 1), OLD_LABEL)
    assert (evidence.node_uid, evidence.boot_id, evidence.kernel) == (
        node.uid,
        node.boot_id,
        node.kernel,
    )
    assert (evidence.driver_pod_uid, evidence.driver_started) == (pod.uid, pod.started)
    assert (evidence.driver_digest, evidence.driver_version) == (
        pod.install_digest,
        not_none(node.loaded).version,
    )
    assert tuple(step.name for step in evidence.steps) == STEPS


def test_progress_names_the_step_that_runs() -> None:
    scenario = StageScenario()
    scenario.carry_out(scenario.slot("validator", VALIDATE), wait=0.0)
    assert phases(scenario) == ["begun", "toolkit", "cuda", "plugin"]


@pytest.mark.parametrize("step", VALIDATION_STEPS)
def test_a_step_that_fails_is_named(step: str) -> None:
    scenario = StageScenario(
        world=SteadyWorld(overrides=(WorldOverride(validation=ValidationEnd(8.0, step)),))
    )
    scenario.command("validator", VALIDATE, advance=30)
    result, evidence = scenario.result("validator"), evidence_of(scenario)
    assert (result.outcome, result.code) == (Outcome.FAILED, step)
    assert not evidence.passed
    assert [check.name for check in evidence.steps if not check.passed] == [step]


def test_a_missing_driver_fails_at_once() -> None:
    scenario = StageScenario()
    scenario.command("validator", Validate(label=NEW_LABEL))
    result = scenario.result("validator")
    assert (result.outcome, result.code) == (Outcome.FAILED, "driver")
    assert not evidence_of(scenario).passed


def test_a_driver_that_restarts_during_its_validation_is_not_proven() -> None:
    scenario = StageScenario(world=SteadyWorld(validation_seconds=100.0))
    scenario.command("validator", VALIDATE)
    scenario.users.crash_driver(NODE)
    scenario.advance(200)
    assert scenario.node.driver_pods[0].ready
    assert scenario.result("validator").code == "driver"
    assert not evidence_of(scenario).passed


def test_the_plugin_step_waits_for_a_quiesced_plugin() -> None:
    scenario = StageScenario()
    scenario.carry_out(scenario.slot("plugin", Quiesce()), wait=2.0)
    scenario.command("validator", VALIDATE, advance=100)
    progress = scenario.progress("validator")
    assert progress.phase == "plugin"
    assert scenario.node.evidence is None
    scenario.command("plugin", Idle(), op=2, advance=10)
    assert evidence_of(scenario).passed


def test_a_hanging_validation_ends_when_it_is_superseded() -> None:
    scenario = StageScenario(
        world=SteadyWorld(overrides=(WorldOverride(validation=ValidationEnd(None)),))
    )
    scenario.command("validator", VALIDATE, advance=1000)
    assert scenario.node.evidence is None
    assert scenario.machine.agents["validator"].holds_devices
    scenario.command("validator", Idle(), op=2)
    assert scenario.result("validator").order == (2, 2)
    assert not scenario.machine.agents["validator"].holds_devices


def test_a_restarted_validator_repeats_the_validation_and_ends_it_once() -> None:
    scenario = StageScenario(world=SteadyWorld(validation_seconds=40.0))
    scenario.command("validator", VALIDATE, advance=20)
    scenario.faults.restart_agent(NODE, "validator")
    scenario.advance(100)
    assert evidence_of(scenario).passed
    ends = [entry for entry in scenario.stage.journal().entries or () if entry.result
            and entry.component == "validator" and entry.token == 2]  # fmt: skip
    assert len(ends) == 1


def test_evidence_of_an_earlier_boot_is_not_shown() -> None:
    scenario = StageScenario(world=SteadyWorld(boot_seconds=5.0))
    scenario.command("validator", VALIDATE, advance=30)
    assert scenario.node.evidence is not None
    scenario.faults.reboot(NODE)
    scenario.advance(60)
    assert scenario.node.evidence is None
