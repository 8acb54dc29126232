"""Files that a crash or a power failure leaves whole: the old content or the new, never a part."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file, or make it; it is on the disk afterwards. The folder must exist."""
    folder = _opened_folder(path.parent)
    try:
        replace_in(folder, path.name, (data,), unfinished=f"{path.name}.new")
    finally:
        os.close(folder)


def replace_in(
    folder: int,
    name: str,
    chunks: Iterable[bytes],
    *,
    unfinished: str,
    mode: int = 0o644,
    owner: tuple[int, int] | None = None,
) -> None:
    """Replace a file of an opened folder, by content that need not fit into memory.

    The content is written under the name `unfinished`, and is on the disk before it takes the
    file's name: otherwise a power failure could leave that name with no content. The folder is
    written last, without which the old content could come back.
    """
    # A process that was killed may have left one; anything else there is not ours to write.
    _unlink(unfinished, folder)
    file = os.open(unfinished, _NEW, 0o600, dir_fd=folder)
    try:
        if owner is not None:
            os.fchown(file, *owner)
        for chunk in chunks:
            write_all(file, chunk)
        os.fchmod(file, mode)
        os.fsync(file)
        os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _unlink(unfinished, folder)
        raise
    finally:
        os.close(file)
    os.fsync(folder)


def write_all(file: int, data: bytes) -> None:
    """Write until nothing is left: the kernel may take a part of it at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def sync_folder(path: Path) -> None:
    """Make what was removed from a folder stay removed after a power failure."""
    folder = _opened_folder(path)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _opened_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _unlink(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
