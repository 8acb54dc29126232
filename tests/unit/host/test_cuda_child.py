"""What the process that computes loads before the driver's library."""

import ctypes
from pathlib import Path

import pytest

from libs.host.cuda.child import Driver
from tests.builders.machine_files import put


def test_parts_of_the_library_are_loaded_from_all_folders_the_own_one_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian has libnvidia-gpucomp in another folder than libcuda, which opens it by its name."""
    opened: list[str] = []

    def open_library(path: str, _mode: int = 0) -> None:
        opened.append(path.removeprefix(str(tmp_path)))
        if "nvvm" in path:
            raise OSError("it is damaged")

    monkeypatch.setattr(ctypes, "CDLL", open_library)
    for path in (
        "/own/libnvidia-ptxjitcompiler.so.1",
        "/own/libnvidia-nvvm.so.4",
        "/other/libnvidia-ptxjitcompiler.so.1",
        "/other/libnvidia-gpucomp.so.550.163.01",
    ):
        put(tmp_path, path, "")
    Driver(f"{tmp_path}/own/libcuda.so.1", [f"{tmp_path}/own", f"{tmp_path}/other"])
    assert opened == [
        "/own/libnvidia-nvvm.so.4",
        "/own/libnvidia-ptxjitcompiler.so.1",
        "/other/libnvidia-gpucomp.so.550.163.01",
        "/other/libnvidia-ptxjitcompiler.so.1",
        "/own/libcuda.so.1",
    ]
