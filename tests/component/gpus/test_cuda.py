"""CUDA through the real loader: a process for each GPU, and what it finds."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from libs.host.cuda import kernel, processes
from libs.host.cuda.port import Computation, CudaProblem
from libs.host.cuda.processes import CudaProcesses
from libs.host.tree import Tree
from libs.testing.nvml import CudaResult, library
from services.validator.node.cuda_check import devices
from tests.component.gpus.machine import StandInMachine
from tests.unit.host.mig_suite import create, with_mig

DEADLINE = 30.0
SHORT = 0.5
FEW = 3
"""GPUs of which one fails: each costs a process."""


def make(
    bench: StandInMachine,
    *,
    path: Path | None = None,
    deadline: float = DEADLINE,
    command: Sequence[str] = (),
) -> CudaProcesses:
    (bench.devices / "nvidia-uvm").touch()
    return CudaProcesses(
        Tree(bench.root), library=str(path or library()), deadline=deadline, command=command
    )


def compute(
    bench: StandInMachine, *, deadline: float = DEADLINE, count: int = FEW
) -> Sequence[Computation]:
    """Compute on the first GPUs."""
    uuids = [gpu.uuid for gpu in bench.stand_in.gpus[:count]]
    found = make(bench, deadline=deadline).compute(uuids)
    assert [each.uuid for each in found] == uuids
    return found


def problems(found: Sequence[Computation]) -> dict[int, CudaProblem]:
    """Return the problems by index."""
    return {index: each.problem for index, each in enumerate(found) if each.problem}


def test_each_gpu_computes_right(bench: StandInMachine) -> None:
    assert problems(compute(bench, count=8)) == {}


def test_one_wrong_value_of_thousands_is_found(bench: StandInMachine) -> None:
    bench.stand_in.fail("cuLaunchKernel", CudaResult.WRONG, gpu=2)
    found = compute(bench)
    assert problems(found) == {2: CudaProblem.WRONG_RESULT}
    assert found[2].describe() == (
        "the GPU computes wrong results: take it out of service and replace it"
        f" (wrong values: 1 of {kernel.COUNT})"
    )


@pytest.mark.parametrize(
    ("function", "result", "problem"),
    [
        ("cuDevicePrimaryCtxRetain", CudaResult.OUT_OF_MEMORY, CudaProblem.IN_USE),
        ("cuDevicePrimaryCtxRetain", CudaResult.DEVICE_UNAVAILABLE, CudaProblem.IN_USE),
        ("cuModuleLoadData", CudaResult.JIT_COMPILER_NOT_FOUND, CudaProblem.NO_COMPILER),
        ("cuMemcpyHtoD_v2", CudaResult.ECC_UNCORRECTABLE, CudaProblem.FAILED),
        ("cuCtxSynchronize", CudaResult.LAUNCH_FAILED, CudaProblem.FAILED),
    ],
)
def test_an_error_of_one_gpu_is_its_own(
    bench: StandInMachine, function: str, result: CudaResult, problem: CudaProblem
) -> None:
    bench.stand_in.fail(function, result, gpu=2)
    found = compute(bench)
    assert problems(found) == {2: problem}
    assert f"({function}: CUDA_ERROR_{result.name} {result.value})" in found[2].describe()


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (CudaResult.SYSTEM_NOT_READY, CudaProblem.NOT_READY),
        (CudaResult.SYSTEM_DRIVER_MISMATCH, CudaProblem.VERSION_MISMATCH),
        (CudaResult.NO_DEVICE, CudaProblem.NOT_FOUND),
    ],
)
def test_an_error_of_the_driver_is_that_of_every_gpu(
    bench: StandInMachine, result: CudaResult, problem: CudaProblem
) -> None:
    bench.stand_in.fail("cuInit", result)
    assert problems(compute(bench)) == dict.fromkeys(range(FEW), problem)


def test_a_machine_without_the_device_of_unified_memory_is_named(bench: StandInMachine) -> None:
    cuda = make(bench)
    (bench.devices / "nvidia-uvm").unlink()
    (found,) = cuda.compute([bench.stand_in.gpus[0].uuid])
    assert found.problem is CudaProblem.NO_UVM_DEVICE


def test_a_library_and_a_kernel_of_two_versions(
    bench: StandInMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the vendor's own libcuda: the kernel log and NVML say what is wrong, CUDA does not."""
    monkeypatch.setattr(processes, "UVM", str(bench.devices / "nvidia-uvm"))
    bench.stand_in.machine.library_version = b"570.1"
    found = compute(bench)
    assert set(problems(found).values()) == {CudaProblem.FAILED}
    assert {each.detail for each in found} == {"cuInit: CUDA_ERROR_UNKNOWN 999"}


def test_a_gpu_that_hangs_delays_no_other(bench: StandInMachine) -> None:
    bench.stand_in.fail("cuCtxSynchronize", CudaResult.HANG, gpu=0)
    cuda = make(bench, deadline=SHORT)
    found = cuda.compute([bench.stand_in.gpus[0].uuid])
    assert [each.problem for each in found] == [CudaProblem.NO_ANSWER]
    assert problems(compute(bench, deadline=10.0)) == {0: CudaProblem.NO_ANSWER}
    assert not holders(bench)


def test_closing_ends_a_computation_that_hangs(bench: StandInMachine) -> None:
    bench.stand_in.fail("cuInit", CudaResult.HANG)
    cuda = make(bench, deadline=600.0)
    found = list[CudaProblem | None]()

    def run() -> None:
        found.extend(each.problem for each in cuda.compute([bench.stand_in.gpus[0].uuid]))

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: bool(holders(bench)))
    cuda.close()
    thread.join(30.0)
    assert found == [CudaProblem.ENDED]
    assert not holders(bench)


def test_mig_devices_compute_and_their_gpu_does_not(bench: StandInMachine) -> None:
    uuid = with_mig(bench)
    for start in (0, 4):
        create(bench, uuid, "3g.40gb", start)
    chosen = devices(bench.gpus.describe()[:2])
    bench.gpus.close()
    assert [each[:4] for each in chosen] == ["MIG-", "MIG-", "GPU-"]
    assert [each.problem for each in make(bench).compute(chosen)] == [None] * 3
    (whole,) = make(bench).compute([uuid])
    assert whole.problem is CudaProblem.NOT_FOUND


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("", CudaProblem.ENDED),
        ("print('{')", CudaProblem.ENDED),
        ("import os; os.abort()", CudaProblem.ENDED),
        ("print('[1, 2]')", CudaProblem.ENDED),
        ("import time; time.sleep(600)", CudaProblem.NO_ANSWER),
    ],
)
def test_a_process_that_says_nothing_of_use(
    bench: StandInMachine, program: str, problem: CudaProblem
) -> None:
    deadline = SHORT if problem is CudaProblem.NO_ANSWER else DEADLINE
    cuda = make(bench, command=[sys.executable, "-c", program], deadline=deadline)
    assert [each.problem for each in cuda.compute(["GPU-0"])] == [problem]


def test_a_machine_without_a_library_is_named(bench: StandInMachine, tmp_path: Path) -> None:
    (found,) = make(bench, path=tmp_path / "libcuda.so.1").compute(["GPU-0"])
    assert found.problem is CudaProblem.NO_LIBRARY


def holders(bench: StandInMachine) -> Sequence[str]:
    """Return the processes that have a device file of the machine open."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            files = [os.readlink(file) for file in folder.iterdir()]
        except OSError:
            continue
        if any(file.startswith(f"{bench.devices}/") for file in files):
            found.append(folder.parent.name)
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def run_in_pod(folder: Path) -> tuple[int, str]:
    """Run the program of the pod that confirms a validation, where it finds this library."""
    ended = subprocess.run(
        [sys.executable, "-m", "libs.host.cuda.in_pod"],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return ended.returncode, ended.stdout


def test_a_pod_computes_on_the_gpu_that_it_has(bench: StandInMachine, tmp_path: Path) -> None:
    (bench.devices / "nvidia-uvm").touch()
    code, said = run_in_pod(tmp_path)
    assert (code, said.startswith("the pod has no GPU that it can use: dlopen")) == (1, True)
    uuid = bench.stand_in.gpus[0].uuid.removeprefix("GPU-")
    assert run_in_pod(library()) == (0, f"GPU {uuid} computes right\n")
    bench.stand_in.fail("cuLaunchKernel", CudaResult.WRONG, gpu=0)
    assert run_in_pod(library()) == (1, f"GPU {uuid} computes wrong: 1 values differ\n")
