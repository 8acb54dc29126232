"""The first file system of the guest, and the program that enters the second. Pure."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

TAG: Final = "machine"
"""The name under which QEMU offers this machine's files."""
KERNEL_MODULES: Final = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
"""What the guest needs to see this machine's files."""

_DEPENDS: Final = re.compile(rb"\0depends=([^\0]*)\0")
_FOLDERS: Final = ("bin", "dev", "modules", "machine", "memory", "root")
_INIT: Final = """#!/bin/busybox sh
# Enter the machine's files, with a memory file system above them.
export PATH=/bin
for name in {modules}; do busybox insmod /modules/$name.ko; done
busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 {tag} /machine
busybox mount -t tmpfs memory /memory
busybox mkdir /memory/upper /memory/work
folders=lowerdir=/machine,upperdir=/memory/upper,workdir=/memory/work
busybox mount -t overlay -o $folders guest /root
busybox mount -t proc proc /root/proc
busybox mount -t sysfs sysfs /root/sys
busybox mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
busybox mount -t devtmpfs dev /root/dev
busybox mount -t tmpfs run /root/run
exec busybox switch_root /root {command}
"""
_FOLDER_MODE, _FILE_MODE, _CHARACTER_DEVICE = 0o040755, 0o100755, 0o020600


def init(modules: Sequence[str], command: Sequence[str]) -> str:
    """Return the program that the kernel starts, which becomes this command."""
    return _INIT.format(modules=" ".join(modules), tag=TAG, command=shlex.join(command))


def in_order(wanted: Iterable[str], contents: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return these kernel modules and those they depend on, in the order of loading.

    What is not among the contents is part of the kernel.
    """
    found: list[str] = []

    def add(name: str) -> None:
        name = name.replace("-", "_")
        if name in found or name not in contents:
            return
        depends = _DEPENDS.search(contents[name])
        for other in (depends[1].decode() if depends else "").split(","):
            add(other)
        found.append(name)

    for name in wanted:
        add(name)
    return tuple(found)


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of programs by path, with the folders above and a console."""
    cpio = _Cpio()
    for folder in _FOLDERS:
        cpio.add(folder, _FOLDER_MODE)
    cpio.add("dev/console", _CHARACTER_DEVICE, device=(5, 1))
    for path, content in files.items():
        cpio.add(path, _FILE_MODE, content)
    return cpio.end()


class _Cpio:
    """An archive in the kernel's own format (cpio "newc")."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._count = 0

    def add(
        self, path: str, mode: int, content: bytes = b"", *, device: tuple[int, int] = (0, 0)
    ) -> None:
        self._count += 1
        name = path.encode() + b"\0"
        owner, time, place = (0, 0), 0, (0, 0)
        values = (self._count, mode, *owner, 1, time, len(content), *place, *device, len(name), 0)
        self._data += b"070701" + b"".join(b"%08X" % value for value in values) + name
        self._pad()
        self._data += content
        self._pad()

    def end(self) -> bytes:
        self.add("TRAILER!!!", 0)
        return bytes(self._data)

    def _pad(self) -> None:
        self._data += bytes(-len(self._data) % 4)
