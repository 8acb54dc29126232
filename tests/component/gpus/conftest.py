"""A machine with a stand-in for NVIDIA's library, where that can be built."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.testing.nvml import NotBuilt, library
from tests.component.gpus.machine import StandInMachine


@pytest.fixture
def bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[StandInMachine]:
    """A machine; the marker `machine` has the arguments of another one."""
    try:
        library()
    except NotBuilt as error:
        pytest.skip(str(error))
    marker = request.node.get_closest_marker("machine")
    machine = StandInMachine(
        tmp_path, patch=monkeypatch, **({} if marker is None else marker.kwargs)
    )
    yield machine
    machine.close()
