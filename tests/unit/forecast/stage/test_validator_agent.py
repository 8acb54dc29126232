"""The validator's chain, and what its evidence names."""

import pytest

from libs.contracts.commands import Idle, Quiesce, Validate
from libs.contracts.reports import Evidence, Outcome
from libs.forecast.world import VALIDATION_STEPS, ValidationEnd
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.unit.forecast.stage.scenario import NEW_LABEL, NODE, OLD_LABEL, StageScenario

VALIDATE = Validate(label=OLD_LABEL)


def proof(scene: StageScenario) -> Evidence:
    found = scene.node.evidence
    assert found is not None
    return found


def phases(scene: StageScenario) -> list[str]:
    found: list[str] = []
    while scene.node.evidence is None:
        progress = scene.node.components["validator"].progress
        if progress is not None and progress.phase not in found:
            found.append(progress.phase)
        scene.stage.advance()
    return found


def test_evidence_names_the_validated_driver() -> None:
    scene = StageScenario()
    scene.carry_out(scene.slot("validator", VALIDATE))
    scene.advance(30)
    evidence, node = proof(scene), scene.node
    (pod,) = node.driver_pods
    assert scene.result("validator").outcome is Outcome.DONE
    assert (evidence.passed, evidence.order, evidence.label) == (True, (2, 1), OLD_LABEL)
    assert (evidence.node_uid, evidence.boot_id, evidence.kernel) == (
        node.uid,
        node.boot_id,
        node.kernel,
    )
    assert (evidence.driver_pod_uid, evidence.driver_started) == (pod.uid, pod.started)
    assert node.loaded is not None
    assert (evidence.driver_digest, evidence.driver_version) == (
        pod.install_digest,
        node.loaded.version,
    )
    assert tuple(step.name for step in evidence.steps) == VALIDATION_STEPS


def test_progress_names_the_last_step_that_passed() -> None:
    scene = StageScenario()
    scene.carry_out(scene.slot("validator", VALIDATE), wait=0.0)
    assert phases(scene) == ["begun", "driver", "toolkit", "cuda"]


@pytest.mark.parametrize("step", VALIDATION_STEPS)
def test_a_step_that_fails_is_named(step: str) -> None:
    scene = StageScenario(
        world=SteadyWorld(overrides=(WorldOverride(validation=ValidationEnd(8.0, step)),))
    )
    scene.carry_out(scene.slot("validator", VALIDATE))
    scene.advance(30)
    result, evidence = scene.result("validator"), proof(scene)
    assert (result.outcome, result.code) == (Outcome.FAILED, step)
    assert not evidence.passed
    assert [each.name for each in evidence.steps if not each.passed] == [step]


def test_a_driver_that_is_not_there_fails_at_once() -> None:
    scene = StageScenario()
    scene.carry_out(scene.slot("validator", Validate(label=NEW_LABEL)))
    result = scene.result("validator")
    assert (result.outcome, result.code) == (Outcome.FAILED, "driver")
    assert not proof(scene).passed


def test_a_driver_that_restarted_meanwhile_is_not_proven() -> None:
    scene = StageScenario(world=SteadyWorld(validation_seconds=100.0))
    scene.carry_out(scene.slot("validator", VALIDATE))
    scene.users.crash_driver(NODE)
    scene.advance(200)
    assert scene.node.driver_pods[0].ready
    assert scene.result("validator").code == "driver"
    assert not proof(scene).passed


def test_the_step_of_the_plugin_waits_for_the_plugin() -> None:
    scene = StageScenario()
    scene.carry_out(scene.slot("plugin", Quiesce()), wait=2.0)
    scene.carry_out(scene.slot("validator", VALIDATE))
    scene.advance(100)
    progress = scene.node.components["validator"].progress
    assert progress is not None
    assert progress.phase == "cuda"
    assert scene.node.evidence is None
    scene.carry_out(scene.slot("plugin", Idle(), op=2))
    scene.advance(10)
    assert proof(scene).passed


def test_a_validation_that_hangs_ends_when_it_is_replaced() -> None:
    scene = StageScenario(
        world=SteadyWorld(overrides=(WorldOverride(validation=ValidationEnd(None)),))
    )
    scene.carry_out(scene.slot("validator", VALIDATE))
    scene.advance(1000)
    assert scene.node.evidence is None
    assert scene.machine.agents["validator"].holds_devices
    scene.carry_out(scene.slot("validator", Idle(), op=2))
    assert scene.result("validator").order == (2, 2)
    assert not scene.machine.agents["validator"].holds_devices


def test_after_a_restart_of_the_validator_it_validates_once_more_and_ends_once() -> None:
    scene = StageScenario(world=SteadyWorld(validation_seconds=40.0))
    scene.carry_out(scene.slot("validator", VALIDATE))
    scene.advance(20)
    scene.faults.restart_agent(NODE, "validator")
    scene.advance(100)
    assert proof(scene).passed
    ends = [each for each in scene.stage.journal().entries or () if each.result
            and each.component == "validator" and each.token == 2]  # fmt: skip
    assert len(ends) == 1


def test_evidence_of_an_earlier_boot_is_not_shown() -> None:
    scene = StageScenario(world=SteadyWorld(boot_seconds=5.0))
    scene.carry_out(scene.slot("validator", VALIDATE))
    scene.advance(30)
    assert scene.node.evidence is not None
    scene.faults.reboot(NODE)
    scene.advance(60)
    assert scene.node.evidence is None
