"""What tests do in a guest with NVIDIA's own driver. Run in it."""

import ctypes
import os
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from libs.contracts.gpus import GpuProblem
from libs.host import diagnosing, pci
from libs.host.gpus.deadlines import Deadlines
from libs.host.gpus.nvml import NvmlGpus
from libs.host.gpus.port import DriverLibrary, GpusUnavailable
from libs.host.linux import Loaded, LoadResult, RealLinux
from libs.host.module_log import ModuleLog
from libs.host.tree import Tree
from libs.testing.guest import actions
from libs.testing.vendor.layout import LIBRARIES, PROGRAMS, Driver

_HOST: Final = Tree("/")
_INFORMATION: Final = "/proc/driver/nvidia/gpus"
_PATIENT: Final = Deadlines(open=600.0)
"""The guest's processor is emulated, and may have to wait for a real one."""


def load_driver(files: Sequence[str]) -> None:
    """Load all modules of a driver, and make its device files."""
    if (result := load(files)) != Loaded():
        raise OSError(str(result))
    actions.make_device_files("/dev")


def load(files: Sequence[str]) -> LoadResult:
    """Load modules in this order until one is refused."""
    linux = RealLinux(_HOST, change_this_machine=True)
    results = (linux.load(file) for file in files)
    return next((result for result in results if result != Loaded()), Loaded())


def nvidia_smi(driver: Driver, *arguments: str) -> tuple[int, str]:
    """Run NVIDIA's own program with its own library; return its exit code and what it says."""
    done = subprocess.run(
        [str(driver.root / PROGRAMS / "nvidia-smi"), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": str(driver.root / LIBRARIES)},
    )
    return done.returncode, done.stdout.strip()


def gpus_of(driver: Driver) -> NvmlGpus:
    """Return the GPUs as an agent reads them through a driver's library."""
    return NvmlGpus(_HOST, nvml_library=str(driver.library), deadlines=_PATIENT)


def open_library(driver: Driver) -> tuple[DriverLibrary, int] | GpuProblem | None:
    """Open a driver's library as agents do; return what it says of itself, and its GPUs' number."""
    with closing(gpus_of(driver)) as gpus:
        try:
            return gpus.open(), len(gpus.describe())
        except GpusUnavailable as error:
            return error.problem


def cuda_result(driver: Driver) -> int:
    """Return what `cuInit` of a driver's library returns, in a process of its own."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            code = ctypes.CDLL(str(driver.root / LIBRARIES / "libcuda.so.1")).cuInit(0)
            os.write(writing, str(code).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        code = int(answer.read())
    os.waitpid(pid, 0)
    return code


def obstacle() -> diagnosing.Diagnosis | None:
    """Return why the driver is not loaded, as agents say it."""
    with closing(ModuleLog(_HOST)) as log:
        return diagnosing.obstacle(_HOST, log)


def unstarted_gpus() -> dict[str, str]:
    """Return what the driver says of GPUs that do not start, as agents read it."""
    with closing(ModuleLog(_HOST)) as log:
        return log.unstarted_gpus()


def kernel_log() -> list[str]:
    """Return what NVIDIA's modules have written to the kernel's log since it was forgotten."""
    done = subprocess.run(
        ["/usr/bin/dmesg", "--notime"], stdout=subprocess.PIPE, text=True, check=True
    )
    return [line for line in done.stdout.splitlines() if "NVRM" in line or "nvidia" in line]


def forget_kernel_log() -> None:
    """Let `kernel_log` begin here."""
    subprocess.run(["/usr/bin/dmesg", "--clear"], check=True)


def board_names() -> dict[str, str]:
    """Return, by address, the name of the board that NVIDIA's module takes a GPU for."""
    found: dict[str, str] = {}
    for file in Path(_INFORMATION).glob("*/information"):
        rows = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        found[file.parent.name] = rows["Model"].strip()
    return found


def unplug(addresses: Sequence[str]) -> None:
    """Take GPUs from the bus."""
    for address in addresses:
        if (device := Path(f"{pci.DEVICES}/{address}")).exists():
            (device / "remove").write_text("1")


def replug(addresses: Sequence[str]) -> None:
    """Let the kernel find GPUs anew, as what they say they are by now."""
    unplug(addresses)
    Path("/sys/bus/pci/rescan").write_text("1")
