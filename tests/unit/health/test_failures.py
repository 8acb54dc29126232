"""Which GPUs one sweep shows as failed, by the same rules as the verdict over many."""

from typing import Any

import pytest

from libs.contracts.gpus import FabricState, GpuIdentity, GpuProblem, RecoveryAction
from libs.contracts.health import HealthState
from libs.health.node import Sweep, after_sweep, failures, node_health
from libs.health.record import GpuRecord, Moment
from tests.builders.gpus import gpu, sample

GPU = gpu()

Case = tuple[dict[str, Any], dict[str, Any]]
"""What differs of the GPU, and of its sample."""

FAILED: list[Case] = [
    ({"problem": GpuProblem.LOST}, {}),
    ({"problem": GpuProblem.FAILED}, {}),
    ({"hung": True}, {}),
    ({"recovery": RecoveryAction.GPU_RESET}, {}),
    ({"fabric_state": FabricState.FAILED}, {}),
    ({}, {"remap_failure": 1}),
]
USABLE: list[Case] = [
    ({}, {}),
    ({"recovery": RecoveryAction.DRAIN_P2P}, {}),
    ({"fabric_state": FabricState.IN_PROGRESS}, {}),
    ({"nvlinks": 4, "nvlinks_down": (1,)}, {}),
    ({}, {"remap_pending": 1}),
    ({}, {"ecc_volatile_uncorrected": 1}),
    ({}, {"clock_reasons": 0xFF}),
    ({}, {"ecc_volatile_uncorrected": -1, "remap_failure": 7}),
]


def sweep(case: Case) -> Sweep:
    changed, read = case
    return Sweep(gpus=[gpu(**changed)], samples=[sample(**read)])


@pytest.mark.parametrize("case", [*FAILED, *USABLE])
def test_one_sweep_shows_what_the_verdict_says_once_the_sweep_lasts(case: Case) -> None:
    records = ()
    for second in (0.0, 60.0):
        records = after_sweep(records, sweep(case), Moment(second, second))
    (judged,) = node_health(records).gpus
    assert bool(failures((), sweep(case))) is (judged.state is HealthState.FAILED)
    assert (judged.state is HealthState.FAILED) is (case in FAILED)


def test_a_gpu_that_was_listed_and_is_not_any_more_has_failed() -> None:
    known = (GpuRecord(uuid="GPU-1", index=1, pci="00000000:1C:00.0"),)
    (missing,) = failures(known, Sweep(gpus=[GPU]))
    assert missing.gpu == GpuIdentity(uuid="GPU-1", pci="00000000:1C:00.0")
    assert missing.is_missing
    assert missing.breach.message == ("the GPU cannot be used: the driver lists it no more")


def test_without_an_answer_of_nvml_nothing_is_known_of_a_gpu() -> None:
    known = (GpuRecord(uuid="GPU-0", index=0),)
    assert failures(known, Sweep(problem=GpuProblem.DRIVER_NOT_LOADED)) == ()
