"""A machine with GPUs that real NVML clients see: its state, which tests change while they run."""

import ctypes
import fcntl
import mmap
import os
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from libs.testing.errors import SimError
from libs.testing.nvml.codes import EventType, RecoveryAction, Return
from libs.testing.nvml.cuda import CudaResult
from libs.testing.nvml.filling import fill_machine, set_driver
from libs.testing.nvml.layout import (
    DIGEST,
    EVERY_GPU,
    FOREVER,
    MAX_EVENTS,
    NO_INSTANCE,
    VARIABLE,
    Machine,
)
from libs.testing.nvml.layout_gpu import EccCounts, Gpu, Process
from libs.testing.nvml.profiles import Profile

DRIVER = "580.95.05"


class StandIn:
    """The state file of one machine, shared with every process that has the library open.

    What is assigned, such as `gpus[0].readings.temperature_c = 90`, is what the next call returns.
    """

    def __init__(self, path: Path) -> None:
        """Share the file of a machine that `create` made."""
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size != ctypes.sizeof(Machine):
                raise _unreadable(path)
            self.machine = Machine.from_buffer(mmap.mmap(file.fileno(), size))
        if self.machine.layout != DIGEST:
            raise _unreadable(path)
        self.path = path
        self.gpus = tuple(
            StandInGpu(self, index, self.machine.gpus[index])
            for index in range(self.machine.gpu_count)
        )

    @classmethod
    def create(
        cls,
        path: Path,
        profile: Profile,
        *,
        seed: int = 0,
        driver: str = DRIVER,
        device_folder: Path | None = None,
    ) -> "StandIn":
        """Write the file of a new machine, whose GPUs are healthy and idle, and share it.

        `seed` decides UUIDs and serial numbers. The library holds `nvidiactl` and `nvidia<minor>`
        in `device_folder` open, if one is given.
        """
        machine = Machine()
        fill_machine(machine, profile, seed=seed)
        set_driver(machine, driver)
        if device_folder is not None:
            machine.device_folder = str(device_folder).encode()
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(bytes(machine))
        Path(file.name).rename(path)
        return cls(path)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment for the library to find this machine."""
        return {VARIABLE: str(self.path)}

    def unload(self) -> None:
        """Unload the driver: all instances go, and what is counted since it was loaded."""
        with self.instances():
            self.machine.driver_loaded = 0
            for gpu in self.gpus:
                gpu.forget_session()
                if not gpu.state.mig.mode_persists:
                    gpu.state.mig.mode = gpu.state.mig.pending_mode = 0

    def load(self, driver: str = "") -> None:
        """Load the driver, of another version if one is given; libraries must initialise again."""
        if driver:
            set_driver(self.machine, driver)
        self.machine.driver_loads += 1
        self.machine.driver_loaded = 1

    def fail(self, function: str, result: Return | CudaResult, *, gpu: int | None = None) -> None:
        """Let a function return `result`, for one GPU or all, until `restore`.

        A function that an older driver lacks returns `FUNCTION_NOT_FOUND`. pynvml raises the same
        error as for a symbol that is absent; a client that looks symbols up itself does find it.
        """
        fault = self.machine.faults[self.machine.fault_count]
        fault.function = function.encode()
        fault.gpu = EVERY_GPU if gpu is None else gpu
        fault.result = result
        self.machine.fault_count += 1

    def restore(self) -> None:
        """Remove all faults of functions."""
        self.machine.fault_count = 0

    @contextmanager
    def instances(self) -> Generator[None]:
        """Hold the lock under which instances change."""
        with self.path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class StandInGpu:
    """One GPU. The parts of its state are those of `layout.Gpu`."""

    def __init__(self, stand_in: StandIn, index: int, state: Gpu) -> None:
        self._stand_in = stand_in
        self.index = index
        self.state = state
        self.readings = state.readings
        self.profiling = state.profiling
        self.health = state.health
        self.links = state.links
        self.fabric = state.fabric
        self.mig = state.mig

    @property
    def uuid(self) -> str:
        return self.state.identity.uuid.decode()

    def hang(self, seconds: float | None = None) -> None:
        """Let calls for this GPU block, for some time or until `release`."""
        if seconds is None:
            self.health.hang_until = FOREVER
        else:
            self.health.hang_until = time.monotonic_ns() + int(seconds * 1e9)

    def release(self) -> None:
        """Let calls that block continue."""
        self.health.hang_until = 0

    def lose(self) -> None:
        """Take the GPU off the bus, with the XID that reports it."""
        self.health.condition = Return.GPU_IS_LOST
        self.report_xid(79)

    def require_reset(self, action: RecoveryAction = RecoveryAction.GPU_RESET) -> None:
        """Refuse all but what identifies the GPU until `reset`."""
        self.health.recovery_action = action
        self.health.condition = Return.RESET_REQUIRED

    def report_xid(self, xid: int, *, gpu_instance: int = NO_INSTANCE) -> None:
        """Report an error of this GPU, or of one instance."""
        self.report_event(EventType.XID, xid, gpu_instance=gpu_instance)

    def report_event(self, kind: EventType, data: int, *, gpu_instance: int = NO_INSTANCE) -> None:
        machine = self._stand_in.machine
        event = machine.events[machine.event_count % MAX_EVENTS]
        event.gpu = self.index
        event.gpu_instance = gpu_instance
        event.compute_instance = NO_INSTANCE
        event.type = kind
        event.data = data
        machine.event_count += 1

    def add_process(
        self,
        pid: int,
        *,
        memory: int = 0,
        gpu_instance: int = NO_INSTANCE,
        compute_instance: int = NO_INSTANCE,
    ) -> None:
        """Let a process compute on the GPU, or on one instance."""
        self.state.processes[self.state.process_count] = Process(
            pid, gpu_instance, compute_instance, memory
        )
        self.state.process_count += 1

    def end_processes(self) -> None:
        self.state.process_count = 0

    def reset(self) -> None:
        """Reset the GPU: it works again, and a pending MIG mode takes effect."""
        with self._stand_in.instances():
            self.forget_session()
            self.mig.mode = self.mig.pending_mode
            self.health.condition = Return.SUCCESS
            self.health.recovery_action = RecoveryAction.NONE
            self.health.hang_until = 0
            self.health.remap_pending = 0
            self.health.retirement_pending = 0

    def forget_session(self) -> None:
        """Drop instances, processes, and what is counted since the driver was loaded."""
        ctypes.memset(self.mig.gpu_instances, 0, ctypes.sizeof(self.mig.gpu_instances))
        ctypes.memset(self.mig.compute_instances, 0, ctypes.sizeof(self.mig.compute_instances))
        self.health.ecc_volatile = EccCounts()
        self.end_processes()


def _unreadable(path: Path) -> SimError:
    return SimError(f"{path} is no state file of this version of the stand-in: create it anew")
