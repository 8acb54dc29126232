"""Trees of hosts on which a driver is installed, and a tree whose process is killed at a write."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from libs.host.tree import Tree
from tests.builders.machine_files import link, put

KERNEL: Final = "6.8.0-48-generic"
SYSTEMS: Final = {
    "debian": ("debian", "12", "Debian GNU/Linux 12 (bookworm)"),
    "ubuntu": ("ubuntu", "24.04", "Ubuntu 24.04.1 LTS"),
    "rhel": ("rhel", "9.4", "Red Hat Enterprise Linux 9.4 (Plow)"),
}


def make_host(root: Path, system: str) -> None:
    """Write the files of a host whose `/lib` and `/bin` are links into `/usr`."""
    identity, version, name = SYSTEMS[system]
    text = f'ID={identity}\nVERSION_ID="{version}"\nPRETTY_NAME="{name}"\n'
    put(root, "/usr/lib/os-release", text)
    link(root, "/etc/os-release", "../usr/lib/os-release")
    for each in ("lib", "bin", "sbin"):
        (root / "usr" / each).mkdir(parents=True, exist_ok=True)
        link(root, f"/{each}", f"usr/{each}")
    (root / "usr/lib64").mkdir()
    link(root, "/lib64", "usr/lib64")
    put(root, "/usr/bin/bash", "#!\n")
    put(root, "/usr/lib/firmware/other.bin", "firmware of others\n")
    put(root, f"/usr/lib/modules/{KERNEL}/modules.dep", "kernel/drivers/video/video.ko.zst:\n")
    put(root, f"/usr/lib/modules/{KERNEL}/kernel/drivers/video/video.ko.zst", "a module\n")
    put(root, "/etc/ld.so.cache", "a cache\n")
    if not (root / "proc/modules").exists():
        put(root, "/proc/modules", "")
    (root / "var/lib").mkdir(parents=True)


def content_of(root: Path) -> dict[str, tuple[object, ...]]:
    """Return all that is on a host: type, mode, owner, and content or target."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(folder, name)
            status = path.lstat()
            content: object = None
            if path.is_symlink():
                content = os.readlink(path)
            elif path.is_file():
                content = path.read_bytes()
            owner = (status.st_uid, status.st_gid)
            found[str(path.relative_to(root))] = (
                stat.S_IFMT(status.st_mode),
                stat.S_IMODE(status.st_mode),
                owner,
                content,
            )
    return found


class Killed(BaseException):
    """The process ends here."""


class MortalTree(Tree):
    """Ends the process at one of its changes: before it, within it, or after it."""

    def __init__(self, root: Path, *, dies_at: int | None = None) -> None:
        super().__init__(root)
        self._dies_at = dies_at
        self.changes = 0
        """How many moments there were at which it may die."""

    def _moment(self) -> None:
        if self._dies_at == self.changes:
            raise Killed
        self.changes += 1

    def write_chunks(
        self,
        path: str,
        chunks: Iterable[bytes],
        *,
        mode: int = 0o644,
        owner: tuple[int, int] | None = None,
    ) -> None:
        self._moment()
        folder, _, name = path.rpartition("/")
        if self._dies_at == self.changes:
            self.make_folders(folder)
            with Path(self.root, folder.lstrip("/"), f".{name}.unfinished").open("wb") as file:
                file.write(next(iter(chunks), b"")[:10])
        self._moment()
        super().write_chunks(path, chunks, mode=mode, owner=owner)
        self._moment()

    def append(self, path: str, data: bytes, *, after: int) -> None:
        self._moment()
        if self._dies_at == self.changes:
            super().append(path, data[: len(data) // 2], after=after)
        self._moment()
        super().append(path, data, after=after)
        self._moment()

    def make_link(self, path: str, target: str) -> None:
        self._moment()
        super().make_link(path, target)
        self._moment()

    def make_folders(self, path: str) -> None:
        if not self.is_folder(path):
            self._moment()
        super().make_folders(path)

    def _remove(self, path: str, *, folder: bool) -> None:
        self._moment()
        super()._remove(path, folder=folder)
