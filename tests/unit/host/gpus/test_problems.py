"""Every problem has a remedy, and NVML's codes have a problem."""

import errno

import pynvml
import pytest

from libs.contracts.gpus import REMEDIES, GpuProblem
from libs.host.gpus import problems

P = GpuProblem


def test_every_problem_has_a_remedy() -> None:
    assert set(REMEDIES) == set(GpuProblem)
    assert all(": " in text for text in REMEDIES.values())


@pytest.mark.parametrize(
    "name",
    [
        "NO_PERMISSION",
        "INSUFFICIENT_POWER",
        "DRIVER_NOT_LOADED",
        "LIBRARY_NOT_FOUND",
        "GPU_IS_LOST",
        "RESET_REQUIRED",
        "LIB_RM_VERSION_MISMATCH",
        "UNINITIALIZED",
    ],
)
def test_the_codes_are_those_of_nvml(name: str) -> None:
    assert getattr(problems, name) == getattr(pynvml, f"NVML_ERROR_{name}")


@pytest.mark.parametrize(
    ("code", "is_loaded", "control", "problem"),
    [
        (12, True, errno.ENOENT, P.NO_LIBRARY),
        (18, True, errno.ENOENT, P.VERSION_MISMATCH),
        (15, True, errno.ENOENT, P.LOST),
        (9, False, errno.ENOENT, P.DRIVER_NOT_LOADED),
        (9, True, errno.ENOENT, P.NO_DEVICE_FILES),
        (9, True, errno.ENXIO, P.NO_DEVICE_FILES),
        (9, True, errno.EPERM, P.NO_PERMISSION),
        (9, True, 0, P.DRIVER_NOT_LOADED),
        (999, True, errno.EACCES, P.NO_PERMISSION),
        (999, True, errno.ENOENT, P.NO_DEVICE_FILES),
        (999, False, errno.ENOENT, P.FAILED),
        (999, True, 0, P.FAILED),
        (4, True, 0, P.NO_PERMISSION),
        (8, True, 0, P.INSUFFICIENT_POWER),
        (0, False, 0, P.FAILED),
    ],
)
def test_each_reason_why_nvml_does_not_open_has_a_name(
    code: int, is_loaded: bool, control: int, problem: GpuProblem
) -> None:
    found = problems.open_problem(code, is_loaded=is_loaded, control_errno=control)
    assert found is problem


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (15, P.LOST),
        (16, P.RESET_REQUIRED),
        (8, P.INSUFFICIENT_POWER),
        (4, P.NO_PERMISSION),
        (999, P.FAILED),
        (28, P.FAILED),
        (-1, P.FAILED),
    ],
)
def test_why_a_gpu_cannot_be_used(code: int, problem: GpuProblem) -> None:
    assert problems.gpu_problem(code) is problem
