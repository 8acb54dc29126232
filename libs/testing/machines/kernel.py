"""The kernel of a simulated machine: modules, their users, processes and mounts.

Its state is shown in /proc, /sys/module and /dev, where agents read it. A module stays while one of
its device files is open or another module uses it; it cannot be forced out (docs/invariants.md#i5).
Methods may be called from any thread.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import RLock

from libs.contracts.facts import Gpu
from libs.host import modules as driver_modules
from libs.host import pci
from libs.host.holders import TICKS
from libs.host.linux import InUse, NotLoaded, Unloaded
from libs.host.system import BOOT_ID, RELEASE
from libs.runtime.clock import Clock
from libs.testing.machines.base_files import NIC_DRIVER, install_kernel
from libs.testing.machines.host_tree import HostTree

CONTROL = "/dev/nvidiactl"
MEMORY = "/dev/nvidia-uvm"
"""Open in every computing process, beside the GPUs."""
DISPLAY = "/dev/nvidia-modeset"
"""Open in processes that drive displays."""

PERSISTENCE_DAEMON = "nvidia-persistenced"
"""The process of a driver container that keeps the GPUs open."""
_FIRST_PID = 1000
_REFERENCES_OF_A_DEVICE = 2
"""A character device that is open is counted twice: as a device, and with its operations."""
_UVM, _MODESET = "nvidia_uvm", "nvidia_modeset"


def device(index: int) -> str:
    return f"/dev/nvidia{index}"


@dataclass(slots=True, kw_only=True)
class _Module:
    version: str
    uses: tuple[str, ...]
    since: float


@dataclass(slots=True, kw_only=True)
class _Process:
    comm: str
    devices: list[str] = field(default_factory=list[str])


class SimulatedKernel:
    def __init__(self, host_tree: HostTree, *, gpus: Sequence[Gpu], clock: Clock) -> None:
        self.release = ""
        self._host_tree = host_tree
        self._clock = clock
        self._booted = 0
        self._gpus = tuple(gpus)
        self._lock = RLock()
        self._modules: dict[str, _Module] = {}
        self._processes: dict[int, _Process] = {}
        self._mounts: list[str] = []
        self._next_pid = _FIRST_PID
        self.on_driver_unloaded: Callable[[], None] = lambda: None

    def boot(self, *, boot_id: str, release: str, nouveau: bool) -> None:
        """Start with no processes and the modules of a fresh boot."""
        with self._lock:
            self.release = release
            self._booted = int(self._clock.now())
            self._host_tree.empty("/run")
            self._host_tree.put("/proc/stat", f"btime {self._booted}\n")
            self.name_boot(boot_id)
            self._host_tree.put(RELEASE, f"{release}\n")
            install_kernel(self._host_tree, release)
            self._write_state()
            for name in ("ext4", NIC_DRIVER, *((driver_modules.NOUVEAU,) if nouveau else ())):
                self.load(name)

    def set_clock(self, ahead: int) -> None:
        self._host_tree.put("/proc/stat", f"btime {self._booted + ahead}\n")

    def name_boot(self, boot_id: str) -> None:
        self._host_tree.put(BOOT_ID, f"{boot_id}\n")

    def halt(self) -> None:
        """Drop the contents of the memory."""
        with self._lock:
            for pid in list(self._processes):
                self.end(pid)
            for name in list(self._modules):
                self._remove(name)
            self._mounts.clear()
            for path in self._device_files():
                self._host_tree.remove(path)
            self._host_tree.empty("/run")

    def is_loaded(self, module: str) -> bool:
        return module in self._modules

    def is_idle(self, module: str) -> bool:
        """Whether the module is loaded and unused."""
        with self._lock:
            return module in self._modules and not self._references(module)

    def version(self, module: str) -> str:
        """Return the module's version; empty if it is not loaded."""
        loaded = self._modules.get(module)
        return "" if loaded is None else loaded.version

    def load(self, module: str, *, version: str = "", uses: tuple[str, ...] = ()) -> None:
        """Load a module; no effect if it is loaded."""
        with self._lock:
            if module in self._modules:
                return
            self._modules[module] = _Module(version=version, uses=uses, since=self._clock.now())
            self._host_tree.put(f"/sys/module/{module}/initstate", "live\n")
            if version:
                self._host_tree.put(f"/sys/module/{module}/version", f"{version}\n")
            self._write_state()
            if module in (driver_modules.DRIVER, driver_modules.NOUVEAU):
                self._bind(module)

    def unload(self, module: str) -> Unloaded | NotLoaded | InUse:
        """Unload like `delete_module` without force or waiting."""
        with self._lock:
            if module not in self._modules:
                return NotLoaded()
            if self._references(module):
                return InUse(f"delete_module {module}: Resource temporarily unavailable")
            self._remove(module)
            self._write_state()
            return Unloaded()

    def unload_all(self) -> str:
        """Unload all driver modules; return why one of them stays, or an empty string."""
        for module in driver_modules.UNLOAD_ORDER:
            unloaded = self.unload(module)
            if isinstance(unloaded, InUse):
                return unloaded.why
        return ""

    def _remove(self, module: str) -> None:
        del self._modules[module]
        self._host_tree.remove(f"/sys/module/{module}")
        if module in (driver_modules.DRIVER, driver_modules.NOUVEAU):
            for gpu in self._gpus:
                self._host_tree.remove(f"{pci.DEVICES}/{gpu.pci}/driver")
        if module == driver_modules.DRIVER:
            self.on_driver_unloaded()

    def _bind(self, module: str) -> None:
        """Bind the GPUs; the device files stay when the module is unloaded."""
        for gpu in self._gpus:
            path = f"{pci.DEVICES}/{gpu.pci}/driver"
            self._host_tree.link(path, f"../../../../bus/pci/drivers/{module}")
        if module == driver_modules.DRIVER:
            for path in self._device_files():
                self._host_tree.put(path)

    def _device_files(self) -> list[str]:
        return [CONTROL, MEMORY, DISPLAY, *(device(gpu.minor) for gpu in self._gpus)]

    def _users(self, module: str) -> list[str]:
        """Return the modules that use it, the newest first."""
        return [name for name in reversed(self._modules) if module in self._modules[name].uses]

    def _references(self, module: str) -> int:
        open_paths = (path for process in self._processes.values() for path in process.devices)
        opened = sum(_module_of(path) == module for path in open_paths)
        return len(self._users(module)) + _REFERENCES_OF_A_DEVICE * opened

    def _write_state(self) -> None:
        lines: list[str] = []
        for name in reversed(self._modules):
            count, users = self._references(name), self._users(name)
            user_list = "".join(f"{user}," for user in users) or "-"
            lines.append(f"{name} 16384 {count} {user_list} Live 0x0000000000000000\n")
            self._host_tree.put(f"/sys/module/{name}/refcnt", f"{count}\n")
            self._host_tree.set_mtime(f"/sys/module/{name}", self._modules[name].since)
        self._host_tree.put("/proc/modules", "".join(lines))

    def start(self, comm: str, *, pod_uid: str = "", container_id: str = "") -> int:
        """Start a process of a container, or of the machine itself; pids are not reused."""
        with self._lock:
            pid, self._next_pid = self._next_pid, self._next_pid + 1
            self._processes[pid] = _Process(comm=comm)
            path = f"/proc/{pid}"
            self._host_tree.put(f"{path}/comm", f"{comm[:15]}\n")
            self._host_tree.put(f"{path}/stat", self._stat(pid, comm[:15]))
            self._host_tree.put(f"{path}/cgroup", f"0::{cgroup_of(pod_uid, container_id)}\n")
            self._host_tree.link(f"{path}/fd/0", "/dev/null")
            return pid

    def _stat(self, pid: int, comm: str) -> str:
        """Return /proc/PID/stat; field 22 is the start time in ticks after the boot."""
        started = int((self._clock.now() - self._booted) * TICKS)
        return f"{pid} ({comm}) S {'0 ' * 18}{started} 0\n"

    def open(self, pid: int, devices: Iterable[str]) -> bool:
        """Open devices; False if the process or a device is missing."""
        with self._lock:
            process, paths = self._processes.get(pid), tuple(devices)
            missing = any(_module_of(path) not in self._modules for path in paths)
            if process is None or missing:
                return False
            for path in paths:
                self._host_tree.link(f"/proc/{pid}/fd/{3 + len(process.devices)}", path)
                process.devices.append(path)
            self._write_state()
            return True

    def close(self, pid: int) -> None:
        """Close all devices of a process."""
        with self._lock:
            process = self._processes.get(pid)
            if process is None or not process.devices:
                return
            for number in range(len(process.devices)):
                self._host_tree.remove(f"/proc/{pid}/fd/{3 + number}")
            process.devices.clear()
            self._write_state()

    def end(self, pid: int) -> None:
        """End a process, closing its devices."""
        with self._lock:
            process = self._processes.pop(pid, None)
            if process is None:
                return
            self._host_tree.remove(f"/proc/{pid}")
            if process.devices:
                self._write_state()

    def busy_gpus(self) -> frozenset[int]:
        """Return the GPUs on which a process computes."""
        with self._lock:
            open_paths = {
                path
                for process in self._processes.values()
                if MEMORY in process.devices
                for path in process.devices
            }
        return frozenset(gpu.index for gpu in self._gpus if device(gpu.minor) in open_paths)

    def count_users(self, index: int) -> int:
        """Return how many processes have a GPU open; the driver's own daemon lets it go."""
        with self._lock:
            path = device(self._gpus[index].minor)
            return sum(
                path in process.devices and process.comm != PERSISTENCE_DAEMON
                for process in self._processes.values()
            )

    def mount(self, path: str) -> None:
        """Mount at a path; unmounting deletes the files below it."""
        with self._lock:
            self._host_tree.make_folder(path)
            self._mounts.append(path)

    def unmount_below(self, path: str) -> None:
        """Unmount lazily; never fails."""
        with self._lock:
            for mounted in [mount for mount in reversed(self._mounts) if _is_below(mount, path)]:
                self._mounts.remove(mounted)
                self._host_tree.empty(mounted)


def _module_of(path: str) -> str:
    """Return the module of a device file."""
    if path.startswith(MEMORY):
        return _UVM
    return _MODESET if path == DISPLAY else driver_modules.DRIVER


def _is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


def cgroup_of(pod_uid: str, container_id: str) -> str:
    """Return the cgroup that kubelet and runtime make for a container."""
    if not pod_uid:
        return "/system.slice/machine.service"
    kind = "kubepods-besteffort"
    pod = f"{kind}-pod{pod_uid.replace('-', '_')}.slice"
    # A runtime's ids have 64 digits.
    container = container_id.rpartition("/")[2].ljust(64, "0")
    return f"/kubepods.slice/{kind}.slice/{pod}/cri-containerd-{container}.scope"
