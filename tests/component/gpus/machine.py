"""A machine whose GPUs the real pynvml reads from a stand-in for NVIDIA's library."""

import os
import select
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from libs.contracts.gpus import GpuProblem
from libs.host.gpus.deadlines import Deadlines
from libs.host.gpus.division import Activation
from libs.host.gpus.nvml import NvmlGpus
from libs.host.gpus.process import NvmlProcess
from libs.host.tree import Tree
from libs.testing.nvml import VARIABLE, Return, StandIn, StandInGpu, library, profiles
from libs.testing.nvml.products import MIB
from tests.builders.machine_files import put
from tests.component.gpus.forks import use_forks
from tests.component.testing.nvml.client import Client
from tests.component.testing.nvml.geometry import partition
from tests.unit.host.gpus_suite import LONGEST_WAIT

if TYPE_CHECKING:
    from collections.abc import Sequence

CONDITIONS = {
    GpuProblem.LOST: Return.GPU_IS_LOST,
    GpuProblem.RESET_REQUIRED: Return.RESET_REQUIRED,
    GpuProblem.INSUFFICIENT_POWER: Return.INSUFFICIENT_POWER,
}


ACTIVATIONS = {
    Activation.DONE: Return.SUCCESS,
    Activation.IN_USE: Return.IN_USE,
    Activation.RESET_REQUIRED: Return.RESET_REQUIRED,
}
CHANGES = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceDestroy",
    "nvmlComputeInstanceDestroy",
)

DEADLINES = Deadlines(first=4.0, answer=4.0, hung=4.0, late=4.0, change=4.0, kill=20.0)
"""A GPU is hung in the sweep in which it hangs, and never only late, however busy the machine."""


def with_machine(**arguments: object) -> pytest.MarkDecorator:
    """Let a test's machine be another one."""
    return pytest.mark.parametrize("bench", [arguments], indirect=True, ids=["other machine"])


class HeldProcess(NvmlProcess):
    """A process that outlives its kill while `is_held`, as one does that waits in a driver."""

    is_held = False

    def forget_agent(self) -> None:
        """Close the process's input, as the end of its agent does."""
        self._stdin.close()

    def kill(self) -> None:
        if not self.is_held:
            super().kill()

    def has_ended(self, *, within: float = 0.0) -> bool:
        return not self.is_held and super().has_ended(within=within)


class StandInMachine:
    """The fixture of the suite. It has as many GPUs as its profile."""

    def __init__(
        self,
        root: Path,
        *,
        profile: str = "H100-80GB",
        deadlines: Deadlines = DEADLINES,
        patch: pytest.MonkeyPatch,
        are_forks: bool = True,
    ) -> None:
        """`are_forks` says how its NVML processes start."""
        if are_forks:
            use_forks(patch)
        self.devices = root / "dev"
        self.devices.mkdir()
        for name in ("nvidiactl", *(f"nvidia{minor}" for minor in range(16))):
            (self.devices / name).touch()
        self.root = root / "host"
        self._product = profiles.ALL[profile].product
        self.stand_in = StandIn.create(
            root / "gpus", profiles.ALL[profile], device_folder=self.devices
        )
        patch.setenv(VARIABLE, str(self.stand_in.path))
        self.processes: list[HeldProcess] = []
        self._freezes_next = False
        self.command: Sequence[str] = ()
        self._deadlines = deadlines
        self.gpus = self._new_reader()
        self._set_modules("nvidia 1 0 - Live 0x0\n")

    def _new_reader(self) -> NvmlGpus:
        return NvmlGpus(
            Tree(self.root),
            nvml_library=str(library()),
            deadlines=self._deadlines,
            start=self._start,
        )

    def restart_reader(self) -> None:
        """Let the GPUs be read by another one, as by the next process of an agent."""
        self.gpus.close()
        self.gpus = self._new_reader()

    def _start(self, path: str) -> NvmlProcess:
        process = HeldProcess(path, command=self.command)
        if self._freezes_next:
            self._freezes_next = False
            os.kill(process.pid, signal.SIGSTOP)
        self.processes.append(process)
        return process

    def freeze_next(self) -> None:
        """Let the next process stop before it does anything."""
        self._freezes_next = True

    def _set_modules(self, modules: str) -> None:
        put(self.root, "/proc/modules", modules)

    def load(self, version: str) -> None:
        self.stand_in.load(version)
        self._set_modules("nvidia 1 0 - Live 0x0\n")

    def unload(self) -> None:
        self.stand_in.unload()
        self._set_modules("")

    def held(self) -> bool:
        """Whether the newest process has a device file open, or an older one still lives."""
        return any(self._has_device(process.pid) for process in self.processes)

    def _has_device(self, pid: int) -> bool:
        folder = Path(f"/proc/{pid}/fd")
        try:
            return any(
                os.readlink(file).startswith(f"{self.devices}/") for file in folder.iterdir()
            )
        except FileNotFoundError:
            return False

    def fail(self, uuid: str, xid: int) -> None:
        gpu = next(gpu for gpu in self.stand_in.gpus if gpu.uuid == uuid)
        gpu.report_xid(xid)

    def settle(self) -> None:
        """Wait until the process has sent something that nobody has read."""
        process = self.processes[-1]
        assert select.select([process.replies], [], [], LONGEST_WAIT)[0]

    def set_problem(self, index: int, problem: GpuProblem | None) -> None:
        gpu = self.stand_in.gpus[index]
        if problem is GpuProblem.HUNG:
            gpu.hang()
        else:
            gpu.release()
            gpu.health.condition = Return.SUCCESS if problem is None else CONDITIONS[problem]

    def hold_back(self, *, stuck: bool) -> None:
        process = self.processes[-1]
        process.is_held = stuck
        if not stuck:
            process.kill()
            assert process.has_ended(within=LONGEST_WAIT)

    def set_activation(self, activation: Activation) -> None:
        for gpu in self.stand_in.gpus:
            gpu.mig.activation = ACTIVATIONS[activation]

    def use(self, index: int, *, used: bool) -> None:
        gpu = self.stand_in.gpus[index]
        gpu.end_processes()
        instances = [each.id for each in gpu.mig.gpu_instances if each.serial]
        if used and not instances:
            gpu.add_process(4711)
        elif used:
            gpu.add_process(4711, gpu_instance=instances[0], compute_instance=0)

    def divide(self, *names: str, index: int = 0) -> None:
        """Divide a GPU into these GPU instances through pynvml, as an operator does."""
        gpu = self.stand_in.gpus[index]
        gpu.mig.mode = gpu.mig.pending_mode = 1
        client = Client(library())
        try:
            client.open(self.stand_in)
            partition(client, client.gpu(index), self._product, *names)
        finally:
            client.end()

    def forbid(self) -> None:
        for function in CHANGES:
            self.stand_in.fail(function, Return.NO_PERMISSION)

    def close(self) -> None:
        for process in self.processes:
            process.is_held = False
            process.kill()
        self.gpus.close()


def let_work(gpu: StandInGpu) -> None:
    """Give the GPU values that differ, as a job does and as errors do."""
    readings, health, profiling = gpu.readings, gpu.health, gpu.profiling
    readings.sm_clock_mhz, readings.memory_clock_mhz, readings.video_clock_mhz = 1980, 2619, 1545
    readings.memory_temperature_c, readings.temperature_c = 58, 51
    readings.power_mw, readings.energy_mj = 412_500, 9_876_543_210
    readings.pcie_replays, readings.performance_state, readings.clock_reasons = 2, 0, 0x24
    readings.gpu_utilization, readings.memory_utilization = 97, 61
    readings.encoder_utilization, readings.decoder_utilization = 3, 4
    readings.memory_used = 10_000 * MIB
    readings.violations_ns[:] = range(11, 17)
    health.remapped_uncorrected, health.remapped_corrected, health.remap_pending = 1, 2, 1
    health.ecc_volatile.corrected_dram, health.ecc_volatile.uncorrected_dram = 6, 5
    health.ecc_aggregate.corrected_dram, health.ecc_aggregate.uncorrected_dram = 7, 8
    for place, name in enumerate(
        ("graphics", "sm", "sm_occupancy", "tensor", "dram", "fp64", "fp32", "fp16", "integer")
    ):
        setattr(profiling, name, 50.0 + place)
    for place, name in enumerate(("dfma", "hmma", "imma")):
        setattr(profiling, f"tensor_{name}", 41.0 + place)
    profiling.pcie_tx, profiling.pcie_rx = 1.5, 2.5
    profiling.nvlink_tx, profiling.nvlink_rx = 3.5, 4.5
