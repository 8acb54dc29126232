"""Calls to the kernel that change the machine.

The kernel's answer is final (docs/invariants.md#i5): no call forces the kernel. `RealLinux` needs a
setting that permits it.
"""

import ctypes
import errno
import os
from typing import Final, Protocol

import msgspec

from libs.host.tree import Tree

_WITHOUT_WAITING: Final = os.O_NONBLOCK
"""The only flag passed to `delete_module`: refuse at once if the module is in use."""
_MNT_DETACH: Final = 2
_DELETE_MODULE: Final = {"x86_64": 176, "aarch64": 106}
_FINIT_MODULE: Final = {"x86_64": 313, "aarch64": 273}
_COMPRESSED_FILE: Final = 4
"""The flag of `finit_module` for a module that the kernel has to decompress."""
_COMPRESSED: Final = (".xz", ".gz", ".zst")
_KEY_REFUSED: Final = (errno.ENOKEY, errno.EKEYREJECTED, errno.EKEYREVOKED, errno.EKEYEXPIRED)


class Unloaded(msgspec.Struct, frozen=True, tag=True):
    """The module was unloaded."""


class NotLoaded(msgspec.Struct, frozen=True, tag=True):
    """The module was not loaded."""


class InUse(msgspec.Struct, frozen=True, tag=True):
    """The module is in use and stays loaded."""

    why: str


class KernelRefused(msgspec.Struct, frozen=True, tag=True):
    """The kernel refused for another reason."""

    why: str


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The module is loaded."""


LoadResult = Loaded | KernelRefused
UnloadResult = Unloaded | NotLoaded | InUse | KernelRefused


class Linux(Protocol):
    """A machine's kernel."""

    def unload(self, module: str) -> UnloadResult:
        """Unload a module, if it is not in use."""
        ...

    def load(self, path: str) -> LoadResult:
        """Load the module in this file of the machine, unless it is loaded already."""
        ...

    def unmount_below(self, path: str) -> str | None:
        """Unmount everything at and below this path; return why that failed, or None."""
        ...


class RealKernelForbidden(Exception):
    """The real kernel must not be changed; the text is the reason."""


class RealLinux:
    """The kernel of this process. Needs CAP_SYS_MODULE and CAP_SYS_ADMIN."""

    def __init__(self, tree: Tree, *, change_this_machine: bool) -> None:
        machine = os.uname().machine
        if not change_this_machine:
            raise RealKernelForbidden(
                "changing the kernel of this machine is not permitted:"
                " set SLUICE_CHANGE_THIS_MACHINE=true where a driver may be unloaded"
            )
        if machine not in _DELETE_MODULE:
            raise RealKernelForbidden(f"unloading modules is not supported on {machine}")
        self._tree = tree
        self._delete_module = _DELETE_MODULE[machine]
        self._finit_module = _FINIT_MODULE[machine]
        self._libc = ctypes.CDLL(None, use_errno=True)

    def unload(self, module: str) -> UnloadResult:
        name = ctypes.c_char_p(module.encode())
        if self._libc.syscall(self._delete_module, name, _WITHOUT_WAITING) == 0:
            return Unloaded()
        code = ctypes.get_errno()
        why = f"delete_module {module}: {os.strerror(code)}"
        if code == errno.ENOENT:
            return NotLoaded()
        return InUse(why) if code in (errno.EBUSY, errno.EWOULDBLOCK) else KernelRefused(why)

    def load(self, path: str) -> LoadResult:
        flags = _COMPRESSED_FILE if path.endswith(_COMPRESSED) else 0
        try:
            with self._tree.reader(path) as file:
                number = ctypes.c_int(file.fileno())
                done = self._libc.syscall(self._finit_module, number, ctypes.c_char_p(b""), flags)
                code = 0 if done == 0 else ctypes.get_errno()
        except OSError as error:
            return KernelRefused(f"{path} cannot be read: {error.strerror}")
        if code in (0, errno.EEXIST):
            return Loaded()
        why = f"finit_module {path}: {os.strerror(code)}"
        if code in _KEY_REFUSED:
            why += "; Secure Boot wants a module that is signed by an enrolled key"
        return KernelRefused(why)

    def unmount_below(self, path: str) -> str | None:
        at = self._tree.real_path(path)
        if at is None:
            return None
        for mounted in reversed(_mounts_below(Tree("/"), at)):
            if self._libc.umount2(ctypes.c_char_p(os.fsencode(mounted)), _MNT_DETACH) != 0:
                return _describe_unmount(mounted, ctypes.get_errno())
        return None


def _describe_unmount(mounted: str, code: int) -> str:
    why = f"umount {mounted}: {os.strerror(code)}"
    if code in (errno.EINVAL, errno.ENOENT):  # it is listed as a mount, and is none at its path
        why += "; something else seems to be mounted over it: unmount that first"
    return why


def _mounts_below(tree: Tree, path: str) -> list[str]:
    """Return this process's mount points at and below a path, in the order of mounting."""
    rows = (line.split() for line in (tree.read_text("/proc/self/mountinfo") or "").splitlines())
    points = [_unescaped(row[4]) for row in rows if len(row) > 4]
    return [point for point in points if point == path or point.startswith(f"{path}/")]


def _unescaped(text: str) -> str:
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        text = text.replace(f"\\{code}", character)
    return text
