"""An agent's process on a simulated machine, and its host ports.

All blocking work goes through `SimulatedAgentProcess.do`, where it takes the time given by the
world's model. After the kill of an agent, none of its calls reaches the machine.
"""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar

from libs.forecast.world import ProcessEnd
from libs.host import modules
from libs.host.artefacts import installation
from libs.host.holders import holders
from libs.host.linux import InUse, KernelRefused, Loaded, LoadResult, Unloaded, UnloadResult
from libs.host.machine import Offload
from libs.testing.errors import SimError
from libs.testing.machines.kernel import CONTROL, device
from libs.testing.machines.state import IncidentKind, InstalledDriver, MachineState
from libs.testing.module_files import module_fields

T = TypeVar("T")


class AgentKilled(SimError):
    """Raised when a killed agent tries to reach its machine."""


class SimulatedAgentProcess:
    """One agent's process; also its `Offload`."""

    def __init__(
        self, state: MachineState, offload: Offload, *, comm: str, pod_uid: str, container_id: str
    ) -> None:
        self._state = state
        self._offload = offload
        self._comm = comm
        self._boot_id = state.boot_id
        self._pid = state.kernel.start(comm, pod_uid=pod_uid, container_id=container_id)
        self._ended = asyncio.Event()
        self._duration = threading.local()

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work and wait for its duration; return its result or raise its error."""
        self._check()
        duration, outcome = await self._offload.run(lambda: self._timed(work))
        if duration is None:
            await self._ended.wait()
        elif duration:
            await self._state.clock.sleep(duration)
        self._check()
        return outcome()

    def set_duration(self, seconds: float | None) -> None:
        """Set the duration of the work being done; None hangs."""
        self._duration.seconds = seconds

    def hold_library(self, held: bool) -> None:
        """Open or close the devices, as the driver's library does."""
        kernel, gpus = self._state.kernel, self._state.gpus
        if held:
            kernel.open(self._pid, (CONTROL, *(device(gpu.minor) for gpu in gpus)))
        else:
            kernel.close(self._pid)

    def end(self) -> None:
        self._ended.set()
        self._state.kernel.end(self._pid)

    def _check(self) -> None:
        if self._ended.is_set():
            raise AgentKilled(
                f"{self._comm} on {self._state.name} (boot {self._boot_id}) was killed and"
                " cannot reach the machine"
            )

    def _timed(self, work: Callable[[], T]) -> tuple[float | None, Callable[[], T]]:
        """Do the work; return its duration, and a function that returns its result or raises."""
        self._duration.seconds = 0.0
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  (raised when its duration is over)
            return self._duration.seconds, partial(_raise, error)
        return self._duration.seconds, lambda: result


def _raise(error: Exception) -> NoReturn:
    raise error


class SimulatedLinux:
    """The kernel refuses modules in use; otherwise the world's model decides how unloading ends."""

    def __init__(self, state: MachineState, process: SimulatedAgentProcess) -> None:
        self._state = state
        self._process = process

    def unload(self, module: str) -> UnloadResult:
        kernel = self._state.kernel
        if module != modules.DRIVER or not kernel.is_idle(module):
            return kernel.unload(module)
        ending = self._unload_end()
        self._process.set_duration(ending.after)
        if ending.after is None or ending.exit_code:
            return InUse(f"delete_module {module}: Resource temporarily unavailable")
        unloaded = kernel.unload(module)
        if isinstance(unloaded, Unloaded):
            self._record_holders()
        return unloaded

    def load(self, path: str) -> LoadResult:
        """Load a module whose file says its name and version; the driver's takes its time."""
        state = self._state
        found = module_fields(state.tree.data(path) or b"")
        name = found.get("name", "")
        if not name:
            return KernelRefused(f"finit_module {path}: Exec format error")
        if name != modules.DRIVER:
            state.kernel.load(name, version=found["version"], uses=(modules.DRIVER,))
            return Loaded()
        installed = installation.installed(state.tree)
        label = installed.label if installed else ""
        ending = state.model.load(state.name, label, state.next_attempt(f"load {label}"))
        self._process.set_duration(ending.after)
        if ending.after is None or ending.exit_code or state.refusal:
            return KernelRefused(f"finit_module {path}: Invalid argument")
        digest = installed.install_digest if installed else ""
        state.install(InstalledDriver(version=found["version"], digest=digest, label=label))
        return Loaded()

    def unmount_below(self, path: str) -> str | None:
        """Unmount everything at and below this path; never fails."""
        self._state.kernel.unmount_below(path)
        return None

    def _unload_end(self) -> ProcessEnd:
        state = self._state
        return state.model.unload(state.name, state.next_attempt("unload"))

    def _record_holders(self) -> None:
        """Record processes with open devices, from /proc: the kernel's own count may be wrong."""
        for holder in holders(self._state.tree):
            message = f"process {holder.pid} ({holder.comm}) has {', '.join(holder.devices)} open"
            self._state.record_incident(IncidentKind.UNDER_A_HOLDER, message)
