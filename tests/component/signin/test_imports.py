"""The modules that the process with the signing key loads."""

import subprocess
import sys

import pytest

PROGRAM = (
    "import sys; from services.signin import __main__ as program;"
    " program.server_role(); print(*sys.modules)"
)


@pytest.fixture(scope="module")
def loaded_modules() -> set[str]:
    command = [sys.executable, "-c", PROGRAM]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        *("libs.bus.reports", "libs.bus.events", "libs.bus.telemetry", "libs.bus.commands"),
        *("libs.host", "libs.policy", "libs.rollout", "libs.testing", "kubernetes_asyncio"),
    ],
)
def test_it_reads_nothing_that_nodes_report(loaded_modules: set[str], module: str) -> None:
    assert "services.signin.role" in loaded_modules
    assert module not in loaded_modules
