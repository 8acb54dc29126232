"""The driver's library on a simulated machine: as our agents have it open, and as it is proven."""

from collections.abc import Callable

from msgspec.structs import replace

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample
from libs.forecast.world import VALIDATION_STEPS, ValidationEnd
from libs.host import modules
from libs.host.gpus.memory import MemoryGpus
from libs.host.gpus.port import DriverLibrary, GpusUnavailable
from libs.testing.machines.agent_process import SimulatedAgentProcess
from libs.testing.machines.state import MachineState

_CUDA = {"535": "12.2", "550": "12.4", "560": "12.6", "570": "12.8", "575": "12.9", "580": "13.0"}
"""The newest that a branch supports."""


class AgentGpus(MemoryGpus):
    """For one agent, under whatever driver is in the kernel."""

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
        )
        self.state = state
        self.process = process

    def describe(self) -> tuple[Gpu, ...]:
        """What each is, by index; one that hangs is said to. Raises `Unavailable` unless open."""
        broken = self.state.broken
        return tuple(replace(gpu, hung=gpu.index in broken) for gpu in super().describe())


class ValidatorGpus(AgentGpus):
    """For the validator: its look takes as long as the world's validation does, and ends alike.

    Where that fails in the first step the library refuses; where it fails later, the first GPU
    hangs under the test. Nobody sees it who looks less closely.
    """

    _verdict: ValidationEnd | None = None

    def open(self) -> DriverLibrary:
        """Take hold of the library; raises `Unavailable`. What is open already stays so."""
        there = self.state.installed
        if self._verdict is not None or there is None:
            return super().open()
        attempt = self.state.next_attempt(f"validation {there.label}")
        verdict = self.state.model.validation(self.state.name, there.label, attempt)
        self.process.set_duration(verdict.after)
        if verdict.failed == VALIDATION_STEPS[0]:
            raise GpusUnavailable("the driver's library and its kernel module do not go together")
        found = super().open()
        self._verdict = verdict
        return found

    def close(self) -> None:
        """Let go of every device; without a hold it does nothing."""
        self._verdict = None
        super().close()

    def describe(self) -> tuple[Gpu, ...]:
        """What each is, by index; one that hangs is said to. Raises `Unavailable` unless open."""
        found = super().describe()
        if self._verdict is None or not self._verdict.failed:
            return found
        return tuple(replace(gpu, hung=gpu.hung or gpu.index == 0) for gpu in found)


def driver_library(state: MachineState) -> DriverLibrary | None:
    """Of the driver that is in the kernel."""
    version = state.kernel.version(modules.DRIVER)
    if not version:
        return None
    return DriverLibrary(driver_version=version, cuda=_CUDA.get(version.partition(".")[0], ""))
