"""Why NVML cannot be opened: each state has a name, and a text that says what to do."""

import os
from pathlib import Path

import pytest

from libs.contracts.gpus import REMEDIES, GpuProblem
from libs.host.gpus.nvml import NvmlGpus
from libs.host.gpus.port import GpusUnavailable
from libs.host.tree import Tree
from libs.testing.nvml import NAME, Return, library
from tests.builders.machine_files import put
from tests.component.gpus.machine import StandInMachine


def problem_of_open(gpus: NvmlGpus) -> GpuProblem | None:
    with pytest.raises(GpusUnavailable) as raised:
        gpus.open()
    assert raised.value.problem is not None
    assert str(raised.value).startswith(REMEDIES[raised.value.problem])
    return raised.value.problem


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (Return.LIB_RM_VERSION_MISMATCH, GpuProblem.VERSION_MISMATCH),
        (Return.INSUFFICIENT_POWER, GpuProblem.INSUFFICIENT_POWER),
        (Return.GPU_IS_LOST, GpuProblem.LOST),
        (Return.RESET_REQUIRED, GpuProblem.RESET_REQUIRED),
    ],
)
def test_a_failure_of_the_library_is_named(
    bench: StandInMachine, result: Return, problem: GpuProblem
) -> None:
    bench.stand_in.fail("nvmlInitWithFlags", result)
    assert problem_of_open(bench.gpus) is problem
    assert not bench.held()
    bench.stand_in.restore()
    assert bench.gpus.open()


@pytest.mark.parametrize("result", [Return.DRIVER_NOT_LOADED, Return.UNKNOWN])
@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a driver")
def test_a_loaded_driver_without_device_files_is_named(
    bench: StandInMachine, result: Return
) -> None:
    bench.stand_in.fail("nvmlInitWithFlags", result)
    assert problem_of_open(bench.gpus) is GpuProblem.NO_DEVICE_FILES


def test_without_the_kernel_module_no_process_is_started(bench: StandInMachine) -> None:
    put(bench.root, "/proc/modules", "nouveau 1 0 - Live 0x0\n")
    assert problem_of_open(bench.gpus) is GpuProblem.DRIVER_NOT_LOADED
    assert bench.processes == []


def test_a_driver_that_leaves_while_open_is_noticed(bench: StandInMachine) -> None:
    bench.gpus.open()
    bench.gpus.describe()
    bench.stand_in.unload()
    bench.stand_in.load("575.51.03")
    with pytest.raises(GpusUnavailable) as raised:
        bench.gpus.sample()
    assert raised.value.problem is GpuProblem.DRIVER_NOT_LOADED
    bench.gpus.close()
    assert bench.gpus.open().driver_version == "575.51.03"


@pytest.mark.parametrize("content", [None, b"no library"])
def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / NAME
    if content is not None:
        path.write_bytes(content)
    put(tmp_path, "/proc/modules", "nvidia 1 0 - Live 0x0\n")
    gpus = NvmlGpus(Tree(tmp_path), nvml_library=str(path))
    assert problem_of_open(gpus) is GpuProblem.NO_LIBRARY
    gpus.close()


def test_the_library_of_the_driver_container_is_found(bench: StandInMachine) -> None:
    folder = bench.root / "run/nvidia/driver/usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.580.95.05").write_bytes((library() / NAME).read_bytes())
    (folder / NAME).symlink_to("libnvidia-ml.so.580.95.05")
    gpus = NvmlGpus(Tree(bench.root))
    try:
        assert gpus.open().driver_version == "580.95.05"
    finally:
        gpus.close()
