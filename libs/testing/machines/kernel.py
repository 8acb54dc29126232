"""The kernel of a simulated machine: its modules, who uses them, and its processes.

What it knows it shows in /proc, /sys/module and /dev, where everybody else looks. A module stays as
long as a device file of it is open or another module uses it: nothing here can force it out
(docs/invariants.md#i5). Calls may come from any thread. Must know nothing of pods beyond the names
in a process's cgroup.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import RLock

from libs.contracts.facts import Gpu
from libs.host import modules as known
from libs.host import pci
from libs.host.holders import TICKS
from libs.host.linux import InUse, NotLoaded, Unloaded
from libs.host.system import BOOT_ID, RELEASE
from libs.runtime.clock import Clock
from libs.testing.machines.base_files import NIC_DRIVER, install_kernel
from libs.testing.machines.host_tree import HostTree

CONTROL = "/dev/nvidiactl"
MEMORY = "/dev/nvidia-uvm"
"""Open in whatever computes, beside the GPUs themselves."""

_FIRST_PID = 1000
_UVM, _MODESET = "nvidia_uvm", "nvidia_modeset"


def device(index: int) -> str:
    """The file of one GPU."""
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
    """One machine's; it is booted before anything is asked of it."""

    def __init__(self, host_tree: HostTree, *, gpus: Sequence[Gpu], clock: Clock) -> None:
        self.release = ""
        self._ground = host_tree
        self._clock = clock
        self._booted = 0
        self._gpus = tuple(gpus)
        self._lock = RLock()
        self._modules: dict[str, _Module] = {}
        self._processes: dict[int, _Process] = {}
        self._mounts: list[str] = []
        self._next_pid = _FIRST_PID

    # Boots.

    def boot(self, *, boot_id: str, release: str, nouveau: bool) -> None:
        """Up, with nothing on it."""
        with self._lock:
            self.release = release
            self._booted = int(self._clock.now())
            self._ground.empty("/run")
            self._ground.put("/proc/stat", f"btime {self._booted}\n")
            self.name_boot(boot_id)
            self._ground.put(RELEASE, f"{release}\n")
            install_kernel(self._ground, release)
            self._show()
            for name in ("ext4", NIC_DRIVER, *((known.NOUVEAU,) if nouveau else ())):
                self.load(name)

    def name_boot(self, boot_id: str) -> None:
        """What this boot is called."""
        self._ground.put(BOOT_ID, f"{boot_id}\n")

    def halt(self) -> None:
        """Everything that was in memory is gone."""
        with self._lock:
            for pid in list(self._processes):
                self.end(pid)
            for name in list(self._modules):
                self._drop(name)
            self._mounts.clear()
            for path in (CONTROL, MEMORY, *(device(gpu.minor) for gpu in self._gpus)):
                self._ground.remove(path)
            self._ground.empty("/run")

    # Modules.

    def is_loaded(self, module: str) -> bool:
        """Whether it is loaded."""
        return module in self._modules

    def is_idle(self, module: str) -> bool:
        """Whether it is loaded, and nobody uses it."""
        with self._lock:
            return module in self._modules and not self._references(module)

    def version(self, module: str) -> str:
        """As its maker calls it; empty where it is not loaded."""
        there = self._modules.get(module)
        return "" if there is None else there.version

    def load(self, module: str, *, version: str = "", uses: tuple[str, ...] = ()) -> None:
        """It is in from now on, unless it was."""
        with self._lock:
            if module in self._modules:
                return
            self._modules[module] = _Module(version=version, uses=uses, since=self._clock.now())
            self._ground.put(f"/sys/module/{module}/initstate", "live\n")
            if version:
                self._ground.put(f"/sys/module/{module}/version", f"{version}\n")
            self._show()
            if module in (known.DRIVER, known.NOUVEAU):
                self._bind(module)

    def unload(self, module: str) -> Unloaded | NotLoaded | InUse:
        """Take it out, if nobody uses it: `delete_module` without force and without waiting."""
        with self._lock:
            if module not in self._modules:
                return NotLoaded()
            if self._references(module):
                return InUse(f"delete_module {module}: Resource temporarily unavailable")
            self._drop(module)
            self._show()
            return Unloaded()

    def unload_all(self) -> str:
        """Every module of a driver; empty, or why one of them stays."""
        for module in known.UNLOAD_ORDER:
            answer = self.unload(module)
            if isinstance(answer, InUse):
                return answer.why
        return ""

    def _drop(self, module: str) -> None:
        del self._modules[module]
        self._ground.remove(f"/sys/module/{module}")
        if module in (known.DRIVER, known.NOUVEAU):
            for gpu in self._gpus:
                self._ground.remove(f"{pci.DEVICES}/{gpu.pci}/driver")

    def _bind(self, module: str) -> None:
        """The GPUs are its; what it made in /dev outlives it."""
        for gpu in self._gpus:
            place = f"{pci.DEVICES}/{gpu.pci}/driver"
            self._ground.link(place, f"../../../../bus/pci/drivers/{module}")
        if module == known.DRIVER:
            for path in (CONTROL, MEMORY, *(device(gpu.minor) for gpu in self._gpus)):
                self._ground.put(path)

    def _users(self, module: str) -> list[str]:
        return [name for name, each in self._modules.items() if module in each.uses]

    def _references(self, module: str) -> int:
        opened = (path for each in self._processes.values() for path in each.devices)
        return len(self._users(module)) + sum(_module_of(path) == module for path in opened)

    def _show(self) -> None:
        rows: list[str] = []
        for name in reversed(self._modules):
            count, users = self._references(name), self._users(name)
            shown = "".join(f"{user}," for user in users) or "-"
            rows.append(f"{name} 16384 {count} {shown} Live 0x0000000000000000\n")
            self._ground.put(f"/sys/module/{name}/refcnt", f"{count}\n")
            self._ground.set_mtime(f"/sys/module/{name}", self._modules[name].since)
        self._ground.put("/proc/modules", "".join(rows))

    # Processes.

    def start(self, comm: str, *, pod_uid: str = "", container_id: str = "") -> int:
        """A process of a container, or of the machine itself; no number is given twice."""
        with self._lock:
            pid, self._next_pid = self._next_pid, self._next_pid + 1
            self._processes[pid] = _Process(comm=comm)
            place = f"/proc/{pid}"
            self._ground.put(f"{place}/comm", f"{comm[:15]}\n")
            self._ground.put(f"{place}/stat", self._stat(pid, comm[:15]))
            self._ground.put(f"{place}/cgroup", _cgroup(pod_uid, container_id))
            self._ground.link(f"{place}/fd/0", "/dev/null")
            return pid

    def _stat(self, pid: int, comm: str) -> str:
        """Its number and name, and, so many fields later, when it began after the boot."""
        began = int((self._clock.now() - self._booted) * TICKS)
        return f"{pid} ({comm}) S {'0 ' * 18}{began} 0\n"

    def open(self, pid: int, devices: Iterable[str]) -> bool:
        """It has these open from now on; False where there is no such device, or no process."""
        with self._lock:
            process, wanted = self._processes.get(pid), tuple(devices)
            missing = any(_module_of(path) not in self._modules for path in wanted)
            if process is None or missing:
                return False
            for path in wanted:
                self._ground.link(f"/proc/{pid}/fd/{3 + len(process.devices)}", path)
                process.devices.append(path)
            self._show()
            return True

    def close(self, pid: int) -> None:
        """It lets go of all devices, and lives on."""
        with self._lock:
            process = self._processes.get(pid)
            if process is None or not process.devices:
                return
            for number in range(len(process.devices)):
                self._ground.remove(f"/proc/{pid}/fd/{3 + number}")
            process.devices.clear()
            self._show()

    def end(self, pid: int) -> None:
        """It is gone, and with it all that it had open."""
        with self._lock:
            process = self._processes.pop(pid, None)
            if process is None:
                return
            self._ground.remove(f"/proc/{pid}")
            if process.devices:
                self._show()

    def busy_gpus(self) -> frozenset[int]:
        """The GPUs on which something computes."""
        with self._lock:
            opened = {
                path
                for each in self._processes.values()
                if MEMORY in each.devices
                for path in each.devices
            }
        return frozenset(gpu.index for gpu in self._gpus if device(gpu.minor) in opened)

    # Mounts.

    def mount(self, path: str) -> None:
        """What is put below it is there until it is unmounted."""
        with self._lock:
            self._ground.make_folder(path)
            self._mounts.append(path)

    def unmount_below(self, path: str) -> None:
        """Lazily: it never fails."""
        with self._lock:
            for mounted in [each for each in self._mounts if _is_below(each, path)]:
                self._mounts.remove(mounted)
                self._ground.empty(mounted)


def _module_of(path: str) -> str:
    """Whose device file it is."""
    if path.startswith(MEMORY):
        return _UVM
    return _MODESET if path == "/dev/nvidia-modeset" else known.DRIVER


def _is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


def _cgroup(pod_uid: str, container_id: str) -> str:
    if not pod_uid:
        return "0::/system.slice/machine.service\n"
    kind = "kubepods-besteffort"
    pod = f"{kind}-pod{pod_uid.replace('-', '_')}.slice"
    # A runtime's ids have 64 digits.
    container = container_id.rpartition("/")[2].ljust(64, "0")
    return f"0::/kubepods.slice/{kind}.slice/{pod}/cri-containerd-{container}.scope\n"
