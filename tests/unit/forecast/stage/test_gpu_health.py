"""Failed GPUs on a stage: what telemetry reports, what cures them, and what validation says."""

import pytest

from libs.contracts.commands import Idle, Order, Quiesce, Swap, Validate
from libs.contracts.gpus import GpuIdentity
from libs.contracts.reports import Outcome
from libs.forecast.stage.objects import GpuCure
from libs.rollout.views.machine import GpuVerdict
from libs.testing.not_none import not_none
from libs.testing.stage.faults import gpu_failure
from tests.unit.forecast.stage.scenario import NEW_LABEL, NODE, OLD_LABEL, StageScenario

FIRST = gpu_failure(0, GpuCure.RELOAD)
VALIDATE = Validate(label=OLD_LABEL)


def failed(scenario: StageScenario) -> list[str]:
    return [each.gpu.uuid for each in scenario.node.failed_gpus]


def test_healthy_gpus_are_not_reported() -> None:
    scenario = StageScenario()
    scenario.advance(600)
    assert scenario.node.gpu_verdict is None


def test_a_failed_gpu_is_reported_until_it_is_repaired() -> None:
    scenario = StageScenario(failed_gpus=(FIRST,))
    assert failed(scenario) == ["GPU-0"]
    scenario.faults.fail_gpu(NODE, 3, GpuCure.REPAIR)
    scenario.faults.fail_gpu(NODE, 3, GpuCure.REPAIR)
    assert failed(scenario) == ["GPU-0", "GPU-3"]
    scenario.faults.repair_gpus(NODE)
    assert scenario.node.gpu_verdict == GpuVerdict(scenario.machine.boot_id)


def test_a_quiet_agent_reports_nothing() -> None:
    scenario = StageScenario()
    scenario.carry_out(scenario.slot("telemetry", Quiesce()), wait=5.0)
    scenario.faults.fail_gpu(NODE, 0, GpuCure.REPAIR)
    assert scenario.node.gpu_verdict is None
    scenario.carry_out(scenario.slot("telemetry", Idle(), op=2), wait=5.0)
    assert failed(scenario) == ["GPU-0"]


def test_another_load_of_the_driver_cures_what_it_can() -> None:
    scenario = StageScenario(failed_gpus=(FIRST, gpu_failure(1, GpuCure.REBOOT)), tenants=())
    for part in ("plugin", "telemetry", "discovery"):
        scenario.carry_out(scenario.slot(part, Quiesce()), wait=2.0)
    old = scenario.move_label()
    swap = Swap(label=NEW_LABEL, install_digest="i", old_pod_uid=old, keep=False)
    scenario.command("driver", swap, advance=60)
    assert scenario.node.loaded is not None
    assert failed(scenario) == ["GPU-0", "GPU-1"]  # the agent still has to be resumed
    scenario.carry_out(scenario.slot("telemetry", Idle(), order=Order(2, 2)), wait=5.0)
    assert failed(scenario) == ["GPU-1"]


def test_a_boot_cures_all_but_broken_gpus() -> None:
    scenario = StageScenario(failed_gpus=tuple(map(gpu_failure, range(3), GpuCure)))
    assert failed(scenario) == ["GPU-0", "GPU-1", "GPU-2"]
    scenario.faults.reboot(NODE)
    scenario.advance(600)
    assert failed(scenario) == ["GPU-2"]
    assert not_none(scenario.node.gpu_verdict).boot_id == scenario.machine.boot_id


@pytest.mark.parametrize(
    ("failed_now", "failed_before", "message"),
    [
        (range(1), range(0), "failed in this operation: GPU-0 at 0000:00:00.0"),
        (range(2), range(1), "failed in this operation: GPU-1 at 0000:01:00.0"),
        (range(2), range(2), ""),
        (range(8), range(8), "no GPU works"),
    ],
)
def test_a_validation_accepts_what_had_failed_before_while_a_gpu_works(
    failed_now: range, failed_before: range, message: str
) -> None:
    failures = tuple(gpu_failure(index, GpuCure.REPAIR) for index in failed_now)
    scenario = StageScenario(failed_gpus=failures)
    before = tuple(GpuIdentity(uuid=f"GPU-{index}") for index in failed_before)
    body = Validate(label=OLD_LABEL, failed_gpus=before)
    scenario.carry_out(scenario.slot("validator", body), wait=60.0)
    evidence, result = scenario.node.evidence, scenario.result("validator")
    assert evidence is not None
    assert evidence.passed is (message == "")
    if message:
        assert (result.outcome, result.code, result.message) == (Outcome.FAILED, "gpus", message)
        assert [(step.name, step.passed) for step in evidence.steps] == [
            ("driver", True),
            ("gpus", False),
        ]
        assert evidence.steps[-1].message == message
    else:
        assert result.outcome is Outcome.DONE
