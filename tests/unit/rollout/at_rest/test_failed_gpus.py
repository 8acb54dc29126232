"""Nodes with failed GPUs (docs/states.md#failed-gpus)."""

from msgspec.structs import replace

from libs.contracts.gpus import GpuIdentity
from libs.contracts.node import Operation
from libs.contracts.waits import WaitCode
from libs.rollout.decide import decide
from libs.rollout.decision import Candidate
from libs.rollout.failed_gpus import failed_before
from libs.rollout.views.machine import FailedGpu, GpuVerdict
from tests.unit.rollout.builders import (
    BOOT,
    done,
    failed,
    fleet,
    instant,
    pool,
    required,
    step_at_rest,
    with_record,
)
from tests.unit.rollout.outcomes import wait_of

GPU = GpuIdentity(uuid="GPU-1", pci="0000:41:00.0")
VERDICT = GpuVerdict(BOOT, (FailedGpu(GPU, "the GPU fell off the bus: reboot the node"),))


def test_a_node_with_a_failed_gpu_waits_and_names_it() -> None:
    wait = wait_of(step_at_rest(required(gpu_verdict=VERDICT)))
    assert wait.code is WaitCode.GPU_FAILED
    assert wait.detail == (
        "GPU-1 at 0000:41:00.0 has failed: the GPU fell off the bus: reboot the node"
    )


def test_a_verdict_of_another_boot_or_without_failures_is_no_obstacle() -> None:
    for verdict in (None, GpuVerdict(BOOT), replace(VERDICT, boot_id="boot-0")):
        outcome = step_at_rest(required(gpu_verdict=verdict))
        assert isinstance(outcome, Candidate)


def test_a_person_may_request_the_upgrade_all_the_same() -> None:
    asked = with_record(required(gpu_verdict=VERDICT), asked=True)
    for view in (asked, required(gpu_verdict=VERDICT, requested=True)):
        assert isinstance(step_at_rest(view), Candidate)


def test_a_done_node_stays_done_and_a_driver_is_removed() -> None:
    assert step_at_rest(done(gpu_verdict=VERDICT)) is None
    outcome = step_at_rest(done(gpu_verdict=VERDICT, excluded=True))
    assert isinstance(outcome, Candidate)
    assert outcome.operation is Operation.REMOVE


def test_the_strategy_does_not_retry_a_node_with_a_failed_gpu() -> None:
    wait = wait_of(step_at_rest(failed(gpu_verdict=VERDICT)))
    assert wait.code is WaitCode.FAILED
    assert "no automatic retry now: GPU-1" in wait.detail


def test_a_rollout_completes_without_the_node_which_counts_as_excluded() -> None:
    nodes = (done("a"), required("b", gpu_verdict=VERDICT))
    (write,) = decide(fleet(pool(), *nodes), instant()).rollouts
    counts = write.status.counts
    assert (counts.total, counts.done, counts.excluded) == (2, 1, 1)
    assert write.status.phase == "Complete"


def test_a_gpu_that_failed_in_an_unproven_attempt_had_not_failed_before() -> None:
    assert failed_before(required(gpu_verdict=VERDICT)) == (GPU,)
    assert failed_before(required()) == ()
    unproven = with_record(failed(gpu_verdict=VERDICT), failed_gpus=(), evidence=None)
    assert failed_before(unproven) == ()
