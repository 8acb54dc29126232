"""Process 1 of a real node, in namespaces of its own: gives the node its root, then runs it.

A program of the standard library alone; its only argument is a file with `InitSettings` as JSON.
The root is the machine's own, and what is written to it is kept in memory and lost at the end.
"""

import ctypes
import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypedDict

_REC: Final = 0x4000
_BIND: Final = 0x1000
_PRIVATE: Final = 1 << 18
_SHARED: Final = 1 << 20
_DETACH: Final = 2

_DEVICES: Final = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "kmsg": (1, 11),
    "tty": (5, 0),
}
_LINKS: Final = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_SYSCTLS: Final = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""What a kubelet writes into the kernel, and shall not change on this machine."""
_PAUSE: Final = 0.3
"""Seconds before a program that ended is started again."""
_WITHIN: Final = 300.0
"""Seconds, on the slowest machine."""
_CHECK_EVERY: Final = 0.02
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}
"""The number of the system call, for which the C library has no function."""


class InitSettings(TypedDict):
    """What process 1 is told."""

    name: str
    folder: str
    """Of this node, on disk: `disk/` survives a power cut, `log/` has a file per program."""
    controllers: list[str]
    boot_id: str
    files: dict[str, str]
    """Configuration, by path."""
    binds: dict[str, str]
    """Folders of this machine, by their path on the node."""
    network: list[list[str]]
    """Commands, once the interface `eth0` is there."""
    kubelet: list[str]
    disks: list[str]
    """Folders of the node that survive a power cut."""


def main() -> None:
    """Become the node."""
    settings: InitSettings = json.loads(Path(sys.argv[1]).read_text())
    _enter_root(settings)
    socket.sethostname(settings["name"])
    for path, text in settings["files"].items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    os.environ["PATH"] = f"/opt/containerd:/opt/node:{os.environ['PATH']}"
    os.environ["GOMAXPROCS"] = "2"
    _wait_for(lambda: Path("/sys/class/net/eth0").exists())
    for command in settings["network"]:
        subprocess.run(command, check=True)
    Supervisor(Path("/var/log/node"), settings["kubelet"]).run()


def _enter_root(settings: InitSettings) -> None:
    folder = Path(settings["folder"])
    root, memory = folder / "root", folder / "memory"
    _mount("", "/", flags=_REC | _PRIVATE)
    _mount("memory", memory, "tmpfs")
    for name in ("upper", "work"):
        (memory / name).mkdir()
    options = f"lowerdir=/,upperdir={memory}/upper,workdir={memory}/work"
    _mount("node", root, "overlay", data=options)
    _system_folders(root, settings)
    for name in settings["disks"]:
        _bind(disk_folder(folder, name), root, name)
    _bind(folder / "log", root, "/var/log/node")
    for path, source in settings["binds"].items():
        _bind(Path(source), root, path)
    old = root / "mnt"
    os.chdir(root)
    if ctypes.CDLL(None, use_errno=True).syscall(
        _PIVOT_ROOT[os.uname().machine], b".", str(old.relative_to(root)).encode()
    ):
        raise _error("pivot_root", root)
    os.chdir("/")
    if ctypes.CDLL(None, use_errno=True).umount2(b"/mnt", _DETACH):
        raise _error("umount2", "/mnt")
    _mount("", "/", flags=_REC | _SHARED)


def disk_folder(folder: Path, path: str) -> Path:
    """Return where a folder of the node that survives a power cut is on the machine."""
    return folder / "disk" / path.strip("/").replace("/", "-")


def _system_folders(root: Path, settings: InitSettings) -> None:
    """Mount /proc, /sys, /dev, /run, /tmp and the cgroups of the node."""
    _mount("proc", root / "proc", "proc")
    _mount("sysfs", root / "sys", "sysfs")
    for name, mode in {"run": "755", "tmp": "1777", "dev": "755"}.items():
        _mount(name, root / name, "tmpfs", data=f"mode={mode}")
    dev = root / "dev"
    for name, (major, minor) in _DEVICES.items():
        os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        (dev / name).chmod(0o666)
    for name, target in _LINKS.items():
        (dev / name).symlink_to(target)
    for name in ("pts", "shm", "mqueue"):
        (dev / name).mkdir()
    _mount("devpts", dev / "pts", "devpts", data="newinstance,ptmxmode=0666")
    _mount("shm", dev / "shm", "tmpfs")
    _mount("mqueue", dev / "mqueue", "mqueue")
    cgroups = root / "sys/fs/cgroup"
    _mount("cgroup", cgroups, "tmpfs", data="mode=755")
    for name in settings["controllers"]:
        (cgroups / name).mkdir()
        _mount("cgroup", cgroups / name, "cgroup", data=name)
    for name in _SYSCTLS:
        file = root / "proc/sys" / name
        if file.exists():
            _replace(file, file.read_text(), root / "run/sysctl" / name)
    _replace(
        root / "proc/sys/kernel/random/boot_id", settings["boot_id"] + "\n", root / "run/boot_id"
    )


def _replace(file: Path, text: str, copy: Path) -> None:
    """Mount a copy with this text over a file of the kernel."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text)
    _mount(copy, file, flags=_BIND)


def _bind(source: Path, root: Path, path: str) -> None:
    source.mkdir(parents=True, exist_ok=True)
    target = root / path.strip("/")
    target.mkdir(parents=True, exist_ok=True)
    _mount(source, target, flags=_BIND)


def _mount(
    source: str | Path, target: str | Path, kind: str = "", *, flags: int = 0, data: str = ""
) -> None:
    arguments = (str(source).encode(), str(target).encode(), kind.encode() or None)
    if ctypes.CDLL(None, use_errno=True).mount(*arguments, flags, data.encode() or None):
        raise _error("mount", target)


def _error(call: str, target: str | Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}", str(target))


class Supervisor:
    """Runs containerd and the kubelet, each again when it ended, and collects orphans."""

    def __init__(self, logs: Path, kubelet: Sequence[str]) -> None:
        self._logs = logs
        self._kubelet = kubelet
        self._running: dict[int, tuple[str, Sequence[str]]] = {}
        self._kept: list[subprocess.Popen[bytes]] = []
        """Never waited for, nor collected, which would take the exit away from `os.wait`."""

    def run(self) -> None:
        """Run for ever."""
        self._start("containerd", ["containerd"])
        _wait_for(lambda: _succeeds("ctr", "version"))
        for image in sorted(Path("/opt/node/images").glob("*.tar")):
            import_image(image)
        self._start("kubelet", self._kubelet)
        while True:
            pid, _ = os.wait()
            if pid in self._running:
                time.sleep(_PAUSE)
                self._start(*self._running.pop(pid))

    def _start(self, name: str, command: Sequence[str]) -> None:
        with (self._logs / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self._kept.append(process)
        self._running[process.pid] = (name, command)
        Path(f"/run/{name}.pid").write_text(str(process.pid))


def import_image(archive: Path) -> None:
    """Give an image to the kubelet's containerd."""
    command = ["ctr", "--namespace", "k8s.io", "images", "import", "--local", str(archive)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WITHIN
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the node did not come up")
        time.sleep(_CHECK_EVERY)


if __name__ == "__main__":
    main()
