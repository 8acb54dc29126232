"""A machine with a stand-in for NVIDIA's library, where that can be built."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.testing.nvml import NotBuilt, library
from tests.component.gpus.freezer import Freezer
from tests.component.gpus.machine import StandInMachine


@pytest.fixture
def bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[StandInMachine]:
    """A machine; the parameter has the arguments of another one.

    The NVML processes of a module with `REAL_PROCESSES` are no forks.
    """
    try:
        library()
    except NotBuilt as error:
        pytest.skip(str(error))
    are_forks = not getattr(request.module, "REAL_PROCESSES", False)
    machine = StandInMachine(
        tmp_path, patch=monkeypatch, are_forks=are_forks, **getattr(request, "param", {})
    )
    yield machine
    machine.close()


@pytest.fixture
def freezer() -> Iterator[Freezer]:
    try:
        freezer = Freezer()
    except OSError as error:
        pytest.skip(f"there is no freezer of control groups v1 here: {error}")
    yield freezer
    freezer.remove()
