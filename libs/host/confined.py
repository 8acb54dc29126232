"""Open a path below a folder such that no link leads out of it, even if links change meanwhile.

The kernel does it (`openat2` with RESOLVE_IN_ROOT, since Linux 5.6). Where it cannot, or a sandbox
forbids the call, the path is followed from folder to folder by file descriptors.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Callable
from functools import cache
from typing import Final

_OPENAT2: Final = 437
"""The number of the system call, the same on all architectures."""
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_IN_ROOT: Final = 0x10
_TRIES: Final = 8
"""The kernel answers EAGAIN if a rename above the path may have led it outside."""
MAX_LINKS: Final = 40
"""The same limit as the kernel's."""
_FOLDER: Final = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC

Opener = Callable[[int, str, int], int]


def open_below(root: int, path: str, flags: int) -> int:
    """Open a path below the folder `root`; return the file descriptor.

    `..` above the root leads to the root, as does a link to `/`. A path with a NUL byte, at which
    the kernel would end it, is refused with EINVAL.
    """
    if "\0" in path:
        raise OSError(errno.EINVAL, "its path has a NUL byte", path)
    return _opener()(root, path, flags)


@cache
def _opener() -> Opener:
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        os.close(open_by_kernel(root, "/", os.O_PATH | os.O_CLOEXEC))
    except OSError:
        return open_by_steps
    finally:
        os.close(root)
    return open_by_kernel


def open_by_kernel(root: int, path: str, flags: int) -> int:
    how = struct.pack("QQQ", flags, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    name = ctypes.c_char_p(os.fsencode(path) or b".")
    for _ in range(_TRIES):
        file: int = _libc().syscall(_OPENAT2, root, name, how, len(how))
        if file >= 0:
            return file
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), path)


def open_by_steps(root: int, path: str, flags: int) -> int:
    folders = [os.dup(root)]
    pending = _parts(path)
    links = 0
    try:
        while pending:
            name = pending.pop(0)
            if name == "..":
                _leave(folders, down_to=max(1, len(folders) - 1))
            elif not pending and flags & os.O_NOFOLLOW:
                return os.open(name, flags, dir_fd=folders[-1])
            elif (target := _link_target(name, folders[-1])) is not None:
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                if target.startswith("/"):
                    _leave(folders, down_to=1)
                pending = [*_parts(target), *pending]
            elif pending:
                folders.append(os.open(name, _FOLDER, dir_fd=folders[-1]))
            else:
                return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folders[-1])
        return os.open(".", flags, dir_fd=folders[-1])
    finally:
        _leave(folders, down_to=0)


def _leave(folders: list[int], *, down_to: int) -> None:
    while len(folders) > down_to:
        os.close(folders.pop())


def _link_target(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
