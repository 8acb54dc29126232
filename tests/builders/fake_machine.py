"""A machine for tests of agents: a folder of files with a simple kernel."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libs.contracts.facts import Gpu
from libs.contracts.gpus import GpuProblem
from libs.contracts.telemetry import GpuSample
from libs.host import driver_files, gate
from libs.host.cuda.memory import MemoryCuda
from libs.host.diagnosing import SHARED_MEMORY
from libs.host.gate import GateRequest
from libs.host.gpus.memory import MemoryGpus
from libs.host.gpus.memory_mig import MemoryMig
from libs.host.gpus.port import DriverLibrary, GpusUnavailable
from libs.host.linux import (
    InUse,
    KernelRefused,
    Loaded,
    LoadResult,
    NotLoaded,
    Unloaded,
    UnloadResult,
)
from libs.host.machine import InlineOffload, Machine
from libs.host.tree import Tree
from libs.testing.module_files import module_fields
from tests.builders import gpus
from tests.builders.machine_files import link, put

if TYPE_CHECKING:
    from collections.abc import Callable

BOOT = "boot-1"
KERNEL = "6.8.0-48-generic"
CONTAINER = "ab" * 32


VERSION = "570.86.15"


class FakeDriver:
    """A machine's GPUs, and the driver's library while one is loaded."""

    def __init__(self, *, loaded: str = "", mig: MemoryMig | None = None) -> None:
        self.library: DriverLibrary | None = (
            DriverLibrary(driver_version=loaded) if loaded else None
        )
        self.held = 0
        """The number of open handles of the library."""
        self.silent = set[int]()
        """The indices of GPUs without readings."""
        self.values: dict[str, Any] = {}
        """More readings of every GPU, by their names in a sample."""
        self.fails_reads = False
        self.on_open: Callable[[], object] = lambda: None
        self.gpus = MemoryGpus(
            [gpu(0), gpu(1)], driver=self._open, samples=self._read, held=self._hold, mig=mig
        )

    def set_version(self, version: str) -> None:
        """Load a driver of this version; empty: unload it."""
        self.library = DriverLibrary(driver_version=version) if version else None

    def _hold(self, held: bool) -> None:
        self.held += 1 if held else -1

    def _open(self) -> DriverLibrary | None:
        self.on_open()
        return self.library

    def _read(self, gpu: Gpu) -> GpuSample:
        if self.fails_reads:
            raise GpusUnavailable(GpuProblem.NO_ANSWER)
        temperature = None if gpu.index in self.silent else 40 + gpu.index
        return GpuSample(gpu.uuid, gpu.index, gpu.pci, temperature_c=temperature, **self.values)


def gpu(index: int, /, **changed: Any) -> Gpu:
    """Return a GPU whose device file has another number than the GPU."""
    return gpus.gpu(index, **{"minor": index + 4, **changed})


class FakeMachine:
    """The machine; also its own kernel."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = Tree(root)
        self.unloaded: list[str] = []
        self.unmounted: list[str] = []
        self.unmount_error: str | None = None
        self.load_error = ""
        """Why the kernel takes no module."""
        put(root, "/proc/sys/kernel/random/boot_id", BOOT)
        put(root, "/proc/sys/kernel/osrelease", KERNEL)
        (root / SHARED_MEMORY[1:]).mkdir(parents=True)
        self.set_modules()
        self.cuda = MemoryCuda()
        self.machine = Machine(
            tree=self.tree,
            offload=InlineOffload(),
            gpus=FakeDriver().gpus,
            linux=self,
            cuda=self.cuda,
        )

    def set_modules(self, *names: str, version: str = VERSION) -> None:
        lines = [f"{name} 1000 0 - Live 0x0\n" for name in names]
        put(self.root, "/proc/modules", "".join(lines))
        for name in names:
            put(self.root, f"/sys/module/{name}/version", version)

    def add_gate_request(self, uid: str, label: str, *, at: float, digest: str = "") -> None:
        """Let a driver pod wait at the gate."""
        request = GateRequest(pod_uid=uid, label=label, install_digest=digest, started=at)
        gate.put_request(self.tree, request)

    def add_process(self, pid: int, pod_uid: str, *devices: str, comm: str = "python") -> None:
        """Add a process in a container of a pod, with these devices open."""
        cgroup = f"/kubepods/pod{pod_uid}/{CONTAINER}" if pod_uid else "/user.slice"
        put(self.root, f"/proc/{pid}/cgroup", f"0::{cgroup}")
        put(self.root, f"/proc/{pid}/comm", comm)
        for number, device in enumerate(devices):
            link(self.root, f"/proc/{pid}/fd/{number}", device)

    def make_unreadable(self, pid: int) -> None:
        """Add a process whose cgroup is no regular file."""
        put(self.root, f"/proc/{pid}/comm", "python")
        os.mkfifo(self.root / f"proc/{pid}/cgroup")

    def remove_process(self, pid: int) -> None:
        for path in sorted((self.root / f"proc/{pid}").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        (self.root / f"proc/{pid}").rmdir()

    def load_driver(self, version: str) -> None:
        """Load the driver's modules and write its ready file."""
        self.set_modules("nvidia", "nvidia_uvm", version=version)
        put(self.root, driver_files.READY, "")

    def is_gate_open_to(self, uid: str, label: str) -> bool:
        return gate.is_open(self.tree, GateRequest(pod_uid=uid, label=label, started=0.0))

    def unload(self, module: str) -> UnloadResult:
        text = self.tree.read_text("/proc/modules") or ""
        names = [line.split()[0] for line in text.splitlines()]
        if module not in names:
            return NotLoaded()
        for pid in self.tree.names("/proc"):
            folder = f"/proc/{pid}/fd"
            targets = [self.tree.link(f"{folder}/{name}") for name in self.tree.names(folder)]
            if any(target and target.startswith("/dev/nvidia") for target in targets):
                return InUse(f"delete_module {module}: Resource temporarily unavailable")
        self.unloaded.append(module)
        self.set_modules(*(name for name in names if name != module))
        return Unloaded()

    def load(self, path: str) -> LoadResult:
        """Load a module, whose file says its name."""
        text = self.tree.data(path)
        if text is None or self.load_error:
            return KernelRefused(self.load_error or f"{path} is missing")
        found = module_fields(text)
        names = [
            line.split()[0] for line in (self.tree.read_text("/proc/modules") or "").splitlines()
        ]
        self.set_modules(*names, found["name"], version=found["version"])
        return Loaded()

    def unmount_below(self, path: str) -> str | None:
        self.unmounted.append(path)
        return self.unmount_error
