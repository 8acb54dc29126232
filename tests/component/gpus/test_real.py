"""The part of the suite that changes nothing, on this machine's own GPUs, if it has any."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.host.cuda.port import CudaProblem
from libs.host.cuda.processes import CudaProcesses
from libs.host.gpus.nvml import NvmlGpus
from libs.host.gpus.process import NvmlProcess
from libs.host.tree import Tree
from services.validator.node.cuda_check import devices
from tests.unit.host.gpus_suite import ReadOnlyGpusSuite
from tests.unit.host.mig_suite import ReadOnlyMigSuite

CONTROL = "/dev/nvidiactl"

pytestmark = pytest.mark.skipif(
    not os.path.exists(CONTROL), reason=f"this machine has no NVIDIA driver: no {CONTROL}"
)


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
