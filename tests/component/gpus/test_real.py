"""The part of the suite that changes nothing, on this machine's own GPUs, if it has any."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.host.cuda.port import CudaProblem
from libs.host.cuda.processes import CudaProcesses
from libs.host.gpus.nvml import NvmlGpus
from libs.host.gpus.process import NvmlProcess
from libs.host.modules import listing
from libs.host.tree import Tree
from services.validator.node.cuda_check import devices
from tests.builders.machine_files import put
from tests.unit.host.gpus_suite import ReadOnlyGpusSuite
from tests.unit.host.mig_suite import ReadOnlyMigSuite

MODULE = "nvidia"
LOADED = ("/proc/driver/nvidia/version", f"/sys/module/{MODULE}")


def driver_is_loaded(tree: Tree) -> bool:
    """Ask the kernel: device files may be left over. A sandbox may hide two of three answers."""
    names = [line.split()[0] for line in (listing(tree) or "").splitlines()]
    return MODULE in names or any(tree.exists(path) for path in LOADED)


class RealMachine:
    """This machine."""

    def __init__(self) -> None:
        self.processes: list[NvmlProcess] = []
        self.gpus = NvmlGpus(Tree("/"), start=self._start)

    def _start(self, library: str) -> NvmlProcess:
        self.processes.append(NvmlProcess(library))
        return self.processes[-1]

    def held(self) -> bool:
        return any(
            os.readlink(file).startswith("/dev/nvidia")
            for process in self.processes
            for file in Path(f"/proc/{process.pid}/fd").glob("*")
        )


@pytest.fixture
def bench() -> Iterator[RealMachine]:
    if not driver_is_loaded(Tree("/")):
        pytest.skip("the kernel of this machine has no NVIDIA driver loaded")
    machine = RealMachine()
    yield machine
    machine.gpus.close()


class TestRealGpus(ReadOnlyGpusSuite, ReadOnlyMigSuite):
    """The tests that change nothing."""


def test_each_gpu_that_no_process_has_for_itself_computes_right(bench: RealMachine) -> None:
    bench.gpus.open()
    chosen = devices(gpu for gpu in bench.gpus.describe() if gpu.problem is None)
    bench.gpus.close()
    found = CudaProcesses(Tree("/")).compute(chosen)
    assert {each.problem for each in found} <= {None, CudaProblem.IN_USE}


@pytest.mark.parametrize(
    ("path", "is_loaded"),
    [
        ("/dev/nvidiactl", False),
        ("/proc/driver/nvidia/version", True),
        ("/proc/modules", True),
        ("/sys/module/nvidia/refcnt", True),
    ],
)
def test_only_the_kernel_says_that_a_driver_is_loaded(
    tmp_path: Path, path: str, is_loaded: bool
) -> None:
    put(tmp_path, "/proc/modules", "nvidia_like 1 0 - Live 0x0\n")
    put(tmp_path, path, "nvidia 1 0 - Live 0x0\n")
    assert driver_is_loaded(Tree(tmp_path)) == is_loaded
