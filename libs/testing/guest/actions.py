"""What tests do to the guest's kernel: load and unload drivers, mount and unmount. Run in it."""

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from libs.host import modules
from libs.host.linux import RealLinux, UnloadResult
from libs.host.tree import Tree
from libs.testing.guest import processes, system_calls

DRIVER_MODULES: Final = ("nvidia", "nvidia_uvm", "nvidia_modeset")
"""The kernel modules, in the order of loading."""
STAND_IN_VERSION: Final = "580.95.05"
"""What ours say that they are."""
MODULES: Final = "SLUICE_GUEST_MODULES"
"""The environment variable that names their folder."""

_MAJOR: Final = 195
_MINORS: Final = {"nvidia0": 0, "nvidia1": 1, "nvidia-modeset": 254, "nvidiactl": 255}
_UVM: Final = "nvidia-uvm"
_mounted: Final[list[str]] = []


def load_driver(*, exit_ms: int = 0) -> None:
    """Load all modules of the driver, and make their device files.

    Unloading the main one takes `exit_ms`.
    """
    for name in DRIVER_MODULES:
        parameters = f"exit_ms={exit_ms}" if name == modules.DRIVER else ""
        system_calls.load_module(f"{os.environ[MODULES]}/{name}.ko", parameters)
    make_device_files("/dev")


def make_device_files(folder: str) -> None:
    """Make the driver's device files, as its own programs do: the kernel does not."""
    for name, minor in _MINORS.items():
        _make_device(f"{folder}/{name}", os.makedev(_MAJOR, minor))
    _make_device(f"{folder}/{_UVM}", os.makedev(_number_of(_UVM), 0))


def unload(module: str) -> UnloadResult:
    return RealLinux(Tree("/"), change_this_machine=True).unload(module)


def unload_twice(module: str) -> list[UnloadResult]:
    """Unload a module again while it is being unloaded; return the results, the first one first."""
    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(unload, module) for _ in range(2)]
        return [call.result() for call in as_completed(calls)]


def unmount_below(path: str, *, root: str = "/") -> str | None:
    return RealLinux(Tree(root), change_this_machine=True).unmount_below(path)


def mount(path: str) -> None:
    """Mount a memory file system until `reset`."""
    Path(path).mkdir(parents=True, exist_ok=True)
    system_calls.mount("tmpfs", path, "tmpfs")
    _mounted.append(path)


def mounts() -> list[str]:
    """Return the mount points of the guest, in order."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4] for line in lines]


def now() -> float:
    return time.time()


def drop_caches() -> None:
    """Let the kernel forget files that are not in use, as it does when memory is scarce."""
    # It spares the files of a file system of which it knows only a few.
    for path in Path("/sys/bus").rglob("*"):
        path.lstat()
    for _ in range(2):
        Path("/proc/sys/vm/drop_caches").write_text("2")


def reset() -> None:
    """End the tests' processes, and take back their mounts and the driver."""
    processes.end_all()
    for path in mounts()[::-1]:
        if path in _mounted:
            system_calls.unmount(path)
    _mounted.clear()
    for name in reversed(DRIVER_MODULES):
        unload(name)
    for name in (*_MINORS, _UVM):
        Path(f"/dev/{name}").unlink(missing_ok=True)


def reboot() -> None:
    system_calls.reboot()


def _number_of(name: str) -> int:
    """Return the number that the kernel gave to a kind of device files."""
    rows = (line.split() for line in Path("/proc/devices").read_text().splitlines())
    return next(int(row[0]) for row in rows if row[1:] == [name])


def _make_device(path: str, number: int) -> None:
    Path(path).unlink(missing_ok=True)
    os.mknod(path, 0o666 | stat.S_IFCHR, number)
