"""A simulated machine whose agents read its GPUs through pynvml from a stand-in for NVML.

The simulated kernel and its processes still decide which driver is loaded, who holds it, and how
busy a GPU is; `show_readings` writes what that means for its readings into the stand-in's state.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample
from libs.host.gpus.deadlines import Deadlines
from libs.host.gpus.division import Activation, InstanceProfile
from libs.host.gpus.nvml import NvmlGpus
from libs.host.gpus.port import DriverLibrary, GpusUnavailable
from libs.host.gpus.process import NvmlProcess
from libs.host.kernel_log import SwitchError
from libs.host.machine import Machine as HostMachine
from libs.host.machine import Offload
from libs.host.tree import Tree
from libs.testing.machines.gpu_library import AgentGpus
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.nvml import StandIn, profiles

_MIB: Final = 1 << 20
_DEADLINES: Final = Deadlines()


class LibraryGpus(NvmlGpus):
    """The GPUs of one agent. What it opens is also open in the simulated kernel."""

    def __init__(
        self,
        simulated: AgentGpus,
        stand_in: StandIn,
        tree: Tree,
        *,
        library: Path,
        deadlines: Deadlines,
        start: Callable[[str], NvmlProcess],
    ) -> None:
        super().__init__(tree, nvml_library=str(library), deadlines=deadlines, start=start)
        self._simulated = simulated
        self._stand_in = stand_in
        self._has_ended = False

    def end(self) -> None:
        """Close the GPUs for good, as the end of the agent does."""
        self._has_ended = True
        self.close()

    def open(self) -> DriverLibrary:
        if self._has_ended:
            raise GpusUnavailable(None, "the agent has ended")
        version, machine = self._simulated.open().driver_version, self._stand_in.machine
        if not machine.driver_loaded or machine.driver_version.decode() != version:
            self._stand_in.unload()
            self._stand_in.load(version)
        try:
            return super().open()
        except GpusUnavailable:
            self.close()
            raise

    def close(self) -> None:
        super().close()
        self._simulated.close()

    def set_mig_mode(self, uuid: str, *, on: bool) -> Activation:
        status = super().set_mig_mode(uuid, on=on)
        self._note_division()
        return status

    def create_instance(
        self, uuid: str, profile: InstanceProfile, *, start: int, compute: Sequence[int]
    ) -> None:
        super().create_instance(uuid, profile, start=start, compute=compute)
        self._note_division()

    def destroy_instance(self, uuid: str, number: int) -> None:
        super().destroy_instance(uuid, number)
        self._note_division()

    def _note_division(self) -> None:
        try:
            found = super().describe()
        except GpusUnavailable:
            found = ()
        self._simulated.state.note_division(found)

    def errors(self) -> Mapping[str, tuple[int, ...]]:
        return {**self._simulated.errors(), **super().errors()}

    def switch_errors(self) -> tuple[SwitchError, ...]:
        return (*self._simulated.switch_errors(), *super().switch_errors())


class ProvingGpus(LibraryGpus):
    """The GPUs of the validator: the model decides how long validation takes, and how it ends."""

    def describe(self) -> tuple[Gpu, ...]:
        problems = {gpu.uuid: gpu for gpu in self._simulated.describe() if gpu.problem is not None}
        return tuple(
            gpu
            if (found := problems.get(gpu.uuid)) is None
            else msgspec.structs.replace(gpu, hung=found.hung, problem=found.problem)
            for gpu in super().describe()
        )


class LibraryMachine(SimulatedMachine):
    """The processes of its agents must have the environment of `stand_in`.

    Without `divides`, an agent that changes the machine and one that proves it have the simulated
    GPUs. With it, all agents have the stand-in, which loses its MIG instances with the driver.
    """

    def __init__(
        self,
        root: Path,
        *,
        state: Path,
        library: Path,
        deadlines: Deadlines = _DEADLINES,
        start: Callable[[str], NvmlProcess] = NvmlProcess,
        divides: bool = False,
        **machine: Any,
    ) -> None:
        """`state` is the stand-in's file, which is created; `library` the folder of the library."""
        super().__init__(root, **machine)
        self.stand_in = make_stand_in(state, self._state.gpus)
        self._library = library
        self._deadlines = deadlines
        self._start = start
        self._divides = divides
        self._opened: list[LibraryGpus] = []
        if divides:
            self._state.kernel.on_driver_unloaded = self.stand_in.unload

    def host(
        self, offload: Offload, *, changes: bool = False, proves: bool = False, **agent: Any
    ) -> HostMachine:
        host = super().host(offload, changes=changes, proves=proves, **agent)
        if not isinstance(host.gpus, AgentGpus) or ((changes or proves) and not self._divides):
            return host
        gpus_class = ProvingGpus if proves else LibraryGpus
        gpus = gpus_class(
            host.gpus,
            self.stand_in,
            host.tree,
            library=self._library,
            deadlines=self._deadlines,
            start=self._start,
        )
        self._opened.append(gpus)
        return msgspec.structs.replace(host, gpus=gpus)

    def kill(self, host: HostMachine) -> None:
        super().kill(host)
        for gpus in [each for each in self._opened if each is host.gpus]:
            self._opened.remove(gpus)
            gpus.end()

    def power_off(self) -> None:
        super().power_off()
        for gpus in self._opened:
            gpus.end()
        self._opened.clear()
        if self._divides:
            self.stand_in.unload()
            for gpu in self.stand_in.gpus:
                gpu.reset()

    def show_readings(self) -> None:
        """Let the stand-in return what the load of each GPU means now."""
        write_readings(self.stand_in, map(self._readings.of, self._state.gpus))


def make_stand_in(path: Path, gpus: tuple[Gpu, ...]) -> StandIn:
    """Return a stand-in with these GPUs, of which there are at most eight H100."""
    stand_in = StandIn.create(path, profiles.H100_80GB)
    stand_in.machine.gpu_count = len(gpus)
    for gpu, place in zip(gpus, stand_in.gpus, strict=False):
        domain, bus, _ = gpu.pci.split(":")
        identity = place.state.identity
        identity.uuid = gpu.uuid.encode()
        identity.pci_domain, identity.pci_bus = int(domain, 16), int(bus, 16)
    return StandIn(path)


def write_readings(stand_in: StandIn, samples: Iterable[GpuSample]) -> None:
    for sample in samples:
        readings = stand_in.gpus[sample.index].readings
        readings.temperature_c = sample.temperature_c or 0
        readings.memory_temperature_c = sample.memory_temperature_c or 0
        readings.power_mw = round((sample.power_w or 0.0) * 1000)
        readings.energy_mj = sample.energy_mj or 0
        readings.sm_clock_mhz = readings.graphics_clock_mhz = sample.sm_clock_mhz or 0
        readings.memory_clock_mhz = sample.memory_clock_mhz or 0
        readings.gpu_utilization = sample.gpu_utilization or 0
        readings.memory_utilization = sample.memory_utilization or 0
        readings.memory_used = (sample.framebuffer_used_mib or 0) * _MIB
        readings.clock_reasons = 0 if sample.gpu_utilization else 1
        readings.performance_state = 0 if sample.gpu_utilization else 8
