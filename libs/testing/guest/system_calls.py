"""Calls to the guest's kernel that Python does not offer."""

import ctypes
import mmap
import os
from typing import Final

MS_REMOUNT: Final = 0x20
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 1 << 18
MS_SLAVE: Final = 1 << 19
MS_SHARED: Final = 1 << 20

_FAILED: Final = ctypes.c_void_p(-1).value
_MNT_DETACH: Final = 2
_CLONE_NEWNS: Final = 0x20000
_RESTART: Final = 0x01234567
_PIVOT_ROOT: Final = 155
_FINIT_MODULE: Final = 313
"""Numbers of x86_64."""


def load_module(path: str, parameters: str) -> None:
    with open(path, "rb") as file:
        _call("syscall", _FINIT_MODULE, file.fileno(), parameters.encode(), 0)


def mount(source: str, target: str, kind: str = "", flags: int = 0) -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), flags, None)


def unmount(target: str) -> None:
    """Unmount, even if files are open there."""
    _call("umount2", target.encode(), _MNT_DETACH)


def enter_own_mounts() -> None:
    """Let this process have a mount namespace of its own."""
    _call("unshare", _CLONE_NEWNS)


def enter_root(path: str) -> None:
    """Make a mount point the root of this process's mount namespace, without the root before."""
    before = os.open("/", os.O_PATH)
    os.chdir(path)
    _call("syscall", _PIVOT_ROOT, b".", b".")
    os.fchdir(before)
    os.close(before)
    # Its mounts must stay in other namespaces.
    _call("mount", None, b".", None, MS_SLAVE | MS_REC, None)
    _call("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def map_page(file: int) -> None:
    """Map the first page of a file, until the process ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    length = ctypes.c_size_t(mmap.PAGESIZE)
    if libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, file, ctypes.c_long(0)) == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"mmap: {os.strerror(code)}")


def reboot() -> None:
    _call("reboot", _RESTART)


def _call(name: str, *arguments: object) -> None:
    if ctypes.CDLL(None, use_errno=True)[name](*arguments) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
