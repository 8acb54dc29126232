"""What happens on the guest: drivers loaded, processes with open devices, mounts. Run in it."""

import ctypes
import os
import stat
from pathlib import Path
from typing import Final

from libs.testing.guest.build import DRIVER_MODULES

MODULES: Final = "SLUICE_GUEST_MODULES"
"""The environment variable that names the folder of our kernel modules."""

_FINIT_MODULE: Final = 313
_RESTART: Final = 0x01234567
_DEVICES: Final = {"nvidia0": 0, "nvidia1": 1, "nvidia-modeset": 254, "nvidiactl": 255}
_MAJOR: Final = 195
_UVM: Final = "nvidia-uvm"


def load_driver(parameters: str = "") -> None:
    """Load all modules of the driver, the first with these parameters, and make device files."""
    for name in DRIVER_MODULES:
        load(name, parameters if name == DRIVER_MODULES[0] else "")
    for name, minor in _DEVICES.items():
        _make_device(f"/dev/{name}", os.makedev(_MAJOR, minor))
    _make_device(f"/dev/{_UVM}", os.makedev(_number_of(_UVM), 0))


def load(module: str, parameters: str = "") -> None:
    path = Path(os.environ[MODULES]) / f"{module}.ko"
    with path.open("rb") as file:
        _check(_libc().syscall(_FINIT_MODULE, file.fileno(), parameters.encode(), 0), str(path))


def reboot() -> None:
    _check(_libc().reboot(_RESTART), "reboot")


def _number_of(name: str) -> int:
    """Return the number that the kernel gave to a kind of device files."""
    rows = (line.split() for line in Path("/proc/devices").read_text().splitlines())
    return next(int(row[0]) for row in rows if row[1:] == [name])


def _make_device(path: str, number: int) -> None:
    Path(path).unlink(missing_ok=True)
    os.mknod(path, 0o666 | stat.S_IFCHR, number)


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
