"""What is asked of a kernel that changes the machine: a port of its own.

The kernel's answer is the verdict (docs/invariants.md#i5): there is no way to force it here. The
real one is made for the machine's own root alone, and only where a setting asks for it.
"""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final, Protocol

import msgspec

from libs.host.tree import Tree

_WITHOUT_WAITING: Final = os.O_NONBLOCK
"""The only flag that `delete_module` is ever given: refuse at once if somebody uses the module."""
_MNT_DETACH: Final = 2
_DELETE_MODULE: Final = {"x86_64": 176, "aarch64": 106}


class Unloaded(msgspec.Struct, frozen=True, tag=True):
    """The module is out of the kernel."""


class NotLoaded(msgspec.Struct, frozen=True, tag=True):
    """It was not there."""


class InUse(msgspec.Struct, frozen=True, tag=True):
    """Somebody uses it; it stays."""

    why: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The kernel did not do it for another reason."""

    why: str


UnloadResult = Unloaded | NotLoaded | InUse | Refused


class Linux(Protocol):
    """A machine's kernel."""

    def unload(self, module: str) -> UnloadResult:
        """Take a module out, if nobody uses it."""
        ...

    def unmount_below(self, path: str) -> str | None:
        """Unmount everything at and below this path of the machine; why not, if it cannot be."""
        ...


class RealKernelForbidden(Exception):
    """Somebody asked for the real kernel where it must not be touched."""


class RealLinux:
    """The kernel that runs this process. Needs CAP_SYS_MODULE and CAP_SYS_ADMIN."""

    def __init__(self, tree: Tree, *, change_this_machine: bool) -> None:
        machine = os.uname().machine
        if not change_this_machine:
            raise RealKernelForbidden(
                "the real kernel was asked for without permission:"
                " set SLUICE_CHANGE_THIS_MACHINE=true where a driver may be unloaded"
            )
        if machine not in _DELETE_MODULE:
            raise RealKernelForbidden(f"on {machine} it is not known how modules are unloaded")
        self._tree = tree
        self._delete_module = _DELETE_MODULE[machine]
        self._libc = ctypes.CDLL(None, use_errno=True)

    def unload(self, module: str) -> UnloadResult:
        """Take a module out, if nobody uses it."""
        name = ctypes.c_char_p(module.encode())
        if self._libc.syscall(self._delete_module, name, _WITHOUT_WAITING) == 0:
            return Unloaded()
        code = ctypes.get_errno()
        why = f"delete_module {module}: {os.strerror(code)}"
        if code == errno.ENOENT:
            return NotLoaded()
        return InUse(why) if code in (errno.EBUSY, errno.EWOULDBLOCK) else Refused(why)

    def unmount_below(self, path: str) -> str | None:
        """Unmount everything at and below this path of the machine; why not, if it cannot be."""
        place = str(self._tree.at(path))
        for mounted in reversed(_mounts_below(Tree(Path("/")), place)):
            if self._libc.umount2(ctypes.c_char_p(os.fsencode(mounted)), _MNT_DETACH) != 0:
                return f"umount {mounted}: {os.strerror(ctypes.get_errno())}"
        return None


def _mounts_below(own: Tree, place: str) -> list[str]:
    """Mount points as this process sees them, in the order in which they were mounted."""
    rows = (line.split() for line in (own.text("/proc/self/mountinfo") or "").splitlines())
    points = [_unescaped(row[4]) for row in rows if len(row) > 4]
    return [point for point in points if point == place or point.startswith(f"{place}/")]


def _unescaped(text: str) -> str:
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        text = text.replace(f"\\{code}", character)
    return text
