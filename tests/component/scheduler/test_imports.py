"""The modules that the scheduler's process loads."""

import subprocess
import sys

import pytest

PROGRAM = "import sys, services.scheduler.__main__; print(*sys.modules)"


@pytest.fixture(scope="module")
def loaded_modules() -> set[str]:
    command = [sys.executable, "-c", PROGRAM]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize("package", ["libs.forecast", "libs.audit", "libs.testing"])
def test_the_scheduler_loads_no_simulator_before_the_first_plan(
    loaded_modules: set[str], package: str
) -> None:
    assert "libs.rollout.decide" in loaded_modules
    assert package not in loaded_modules
