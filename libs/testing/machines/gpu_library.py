"""The driver's GPU library on a simulated machine, as agents open it, and its readings."""

import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from libs.contracts.facts import Gpu
from libs.contracts.gpu_forms import Complaints
from libs.contracts.gpus import GpuProblem
from libs.contracts.telemetry import GpuSample
from libs.forecast.world import VALIDATION_STEPS, ValidationEnd
from libs.host import modules
from libs.host.gpus.clean import cuda_version
from libs.host.gpus.division import Activation, InstanceProfile
from libs.host.gpus.memory import MemoryGpus
from libs.host.gpus.port import DriverLibrary, GpusUnavailable
from libs.runtime.env import Env
from libs.testing.machines.agent_process import SimulatedAgentProcess
from libs.testing.machines.state import MachineState
from libs.testing.nvml.filling import CUDA

_WAVE = 60.0
"""Period of the load, in seconds."""


class AgentGpus(MemoryGpus):
    """The library for one agent, under the driver in the kernel."""

    def __init__(
        self,
        state: MachineState,
        process: SimulatedAgentProcess,
        *,
        samples: Callable[[Gpu], GpuSample],
    ) -> None:
        super().__init__(
            state.gpus,
            driver=lambda: driver_library(state),
            samples=samples,
            held=process.hold_library,
            mig=state.mig,
        )
        self.state = state
        self.process = process

    def describe(self) -> tuple[Gpu, ...]:
        """Return the GPUs by index; broken ones are hung. Raises `GpusUnavailable` unless open."""
        broken = self.state.broken_gpus
        return tuple(_broken(gpu) if gpu.index in broken else gpu for gpu in super().describe())

    def set_mig_mode(self, uuid: str, *, on: bool) -> Activation:
        status = super().set_mig_mode(uuid, on=on)
        self.state.note_division(map(self.state.mig.describe, self.state.gpus))
        return status

    def create_instance(
        self, uuid: str, profile: InstanceProfile, *, start: int, compute: Sequence[int]
    ) -> None:
        super().create_instance(uuid, profile, start=start, compute=compute)
        self.state.note_division(map(self.state.mig.describe, self.state.gpus))

    def destroy_instance(self, uuid: str, number: int) -> None:
        super().destroy_instance(uuid, number)
        self.state.note_division(map(self.state.mig.describe, self.state.gpus))


class ValidatorGpus(AgentGpus):
    """The library for the validator: the model decides how long validation takes and how it ends.

    A failure in the first step makes `open` fail; one in a later step makes the first GPU hang.
    """

    _verdict: ValidationEnd | None = None

    def open(self) -> DriverLibrary:
        """Open the library; raises `GpusUnavailable`. No effect if it is open."""
        installed = self.state.installed
        if self.state.library_problem is not None:
            raise GpusUnavailable(self.state.library_problem)
        if self._verdict is not None or installed is None:
            return super().open()
        attempt = self.state.next_attempt(f"validation {installed.label}")
        verdict = self.state.model.validation(self.state.name, installed.label, attempt)
        self.process.set_duration(verdict.after)
        if verdict.failed == VALIDATION_STEPS[0]:
            raise GpusUnavailable(GpuProblem.VERSION_MISMATCH)
        library = super().open()
        self._verdict = verdict
        return library

    def close(self) -> None:
        """Close all devices; no effect if nothing is open."""
        self._verdict = None
        super().close()

    def describe(self) -> tuple[Gpu, ...]:
        """Return the GPUs by index. Raises `GpusUnavailable` unless open."""
        library = super().describe()
        if self._verdict is None or not self._verdict.failed:
            return library
        return tuple(_broken(gpu) if gpu.index == 0 else gpu for gpu in library)


def _broken(gpu: Gpu) -> Gpu:
    return replace(gpu, hung=True, problem=GpuProblem.HUNG)


def driver_library(state: MachineState) -> DriverLibrary | None:
    version = state.kernel.version(modules.DRIVER)
    if not version:
        return None
    version = state.library_version or version
    newest = CUDA.get(version.partition(".")[0], 0)
    return DriverLibrary(driver_version=version, cuda=cuda_version(newest, Complaints()))


class GpuReadings:
    """Readings of all GPUs of one machine."""

    def __init__(
        self,
        *,
        env: Env,
        busy_gpus: Callable[[], frozenset[int]],
    ) -> None:
        self._clock = env.clock
        self._variation = [env.random.random() for _ in range(32)]
        self._busy_gpus = busy_gpus
        self._since = env.clock.monotonic()
        self._energy: dict[str, tuple[float, float]] = {}
        """By UUID: time of the last count, and millijoules until then."""

    def of(self, gpu: Gpu) -> GpuSample:
        """Return the current reading."""
        load, variation = self._load(gpu), self._variation[gpu.index % len(self._variation)]
        power = 70.0 + 8.0 * variation + 600.0 * load
        used = round(gpu.memory_mib * (0.9 if load else 0.0)) + 600
        return GpuSample(
            uuid=gpu.uuid,
            index=gpu.index,
            pci=gpu.pci,
            sm_clock_mhz=1980 if load else 345,
            memory_clock_mhz=2619,
            temperature_c=round(27 + 5 * variation + 38 * load),
            memory_temperature_c=round(32 + 5 * variation + 45 * load),
            power_w=round(power, 3),
            energy_mj=self._count_energy(gpu, power),
            pcie_replays=0,
            gpu_utilization=round(100 * load),
            memory_utilization=round(60 * load),
            framebuffer_used_mib=min(used, gpu.memory_mib),
            framebuffer_free_mib=max(0, gpu.memory_mib - used),
            remapped_uncorrectable=0,
            remapped_correctable=0,
            tensor_active=round(0.7 * load, 3),
            ecc_volatile_uncorrected=0,
        )

    def _load(self, gpu: Gpu) -> float:
        if gpu.index not in self._busy_gpus():
            return 0.0
        variation = self._variation[gpu.index % len(self._variation)]
        phase = self._clock.monotonic() / _WAVE + variation
        return 0.9 + 0.08 * math.sin(2 * math.pi * phase)

    def _count_energy(self, gpu: Gpu, power: float) -> int:
        now = self._clock.monotonic()
        last, energy = self._energy.get(gpu.uuid, (self._since, 0.0))
        energy += (now - last) * power * 1000.0
        self._energy[gpu.uuid] = (now, energy)
        return int(energy)
