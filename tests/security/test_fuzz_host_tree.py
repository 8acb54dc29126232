"""A machine whose files others replaced: no reader hangs or crashes, no writer leaves it."""

import os
import shutil
import signal
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from libs.host import driver_files, gate, holders, modules, pci, system, vgpu
from libs.host.files import UNDO_LOG, CorruptUndoLog, UndoableFiles
from libs.host.gate import GateAnswer, GateRequest
from libs.host.local_features import FOLDER, local_features
from libs.host.tree import Tree, Unreadable
from libs.runtime.fatal import Fatal
from tests.builders.fake_machine import FakeMachine
from tests.builders.machine_files import pci_config, put, vgpu_capability

HANG_SECONDS: Final = 10
POD: Final = "0123abcd-0123-0123-0123-0123456789ab"
SECRET: Final = "a file outside of the machine"

WRITTEN: Final = (
    f"{gate.REQUESTS}/{POD}",
    f"{gate.ANSWERS}/{POD}",
    "/etc/containerd/config.toml",
    "/etc/os-release",
    f"{UNDO_LOG}/list",
    driver_files.READY,
)
NEVER_READ: Final = {"fifo", "socket", "sparse file", "endless device", "folder", "link to itself"}

Plant = Callable[[Path], object]


def _socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20 << 30)


def _endless(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero


def _chain(path: Path) -> None:
    for number in range(64):
        path.with_name(f"{path.name}.{number}").symlink_to(f"{path.name}.{number + 1}")
    path.symlink_to(f"{path.name}.0")


PLANTS: Final[dict[str, Plant]] = {
    "fifo": os.mkfifo,
    "socket": _socket,
    "sparse file": _sparse,
    "endless device": _endless,
    "folder": Path.mkdir,
    "missing": lambda _path: None,
    "empty": Path.touch,
    "not UTF-8": lambda path: path.write_bytes(bytes(range(256))),
    "deep JSON": lambda path: path.write_bytes(b'{"x":' + b"[" * 200_000),
    "many digits": lambda path: path.write_bytes(b"9" * 5_000),
    "superscript": lambda path: path.write_text("\u00b2"),
    "not numbers": lambda path: path.write_text("btime 1e999 nan -0 0x10\nx ²"),
    "long line": lambda path: path.write_text("0::" + "/kubepods" * 1_000 + f"/pod{POD}" * 500),
    "many lines": lambda path: path.write_text(f"0::/kubepods/pod{POD}\n" * 5_000),
    "link to itself": lambda path: path.symlink_to(path.name),
    "long chain": _chain,
}


def build_machine(root: Path) -> None:
    machine = FakeMachine(root)
    machine.load_driver("570.86.15")
    machine.add_process(41, POD, "/dev/nvidia0")
    machine.add_process(42, POD, "/dev/nvidiactl")
    put(root, "/proc/\u00b2/comm", "no process")
    put(root, "/proc/41/stat", f"41 (a b) {' '.join(['1'] * 40)}")
    put(root, "/proc/stat", "btime 1700000000\n")
    put(root, "/proc/meminfo", "MemTotal: 1000 kB\n")
    put(root, "/proc/cpuinfo", "vendor_id : GenuineIntel\n")
    put(root, "/etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\n')
    put(root, "/boot/config-6.8.0-48-generic", "CONFIG_PREEMPT=y\n")
    for name in ("vendor", "class", "device"):
        put(root, f"/sys/bus/pci/devices/0000:01:00.0/{name}", "0x10de")
    config = pci_config((0x09, vgpu_capability("460.16", "r460_00"))).decode("ascii")
    put(root, "/sys/bus/pci/devices/0000:01:00.0/config", config)
    put(root, "/proc/config.gz", "not compressed")
    put(root, f"{FOLDER}/site", "# +expiry-time=2027-01-15T08:00:00Z\nrack=b\n")
    put(root, driver_files.STATE, "digest")
    machine.add_gate_request(POD, "label", at=1.0)
    gate.put_answer(machine.tree, GateAnswer(pod_uid=POD, label="label", at=2.0))
    UndoableFiles(machine.tree).write("/etc/containerd/config.toml", b"version = 2")


def readers(machine: Tree) -> list[Callable[[], object]]:
    return [
        lambda: holders.holders(machine),
        lambda: holders.containers(machine, POD),
        lambda: holders.container_starts(machine, POD),
        lambda: modules.loaded(machine),
        lambda: pci.devices(machine),
        lambda: system.boot_id(machine),
        lambda: system.kernel(machine),
        lambda: system.operating_system(machine),
        lambda: system.cpu(machine),
        lambda: system.memory(machine),
        lambda: system.machine(machine),
        lambda: vgpu.vgpu(machine),
        lambda: local_features(machine, now=0.0),
        lambda: gate.list_requests(machine),
        lambda: gate.list_answers(machine),
        lambda: driver_files.installed_digest(machine),
    ]


def writers(machine: Tree) -> list[Callable[[], object]]:
    files = UndoableFiles(machine)
    return [
        lambda: gate.put_request(machine, GateRequest(pod_uid=POD, label="b", started=3.0)),
        lambda: gate.put_answer(machine, GateAnswer(pod_uid=POD, label="b", at=4.0)),
        lambda: gate.remove_pod(machine, POD),
        lambda: files.write("/etc/containerd/config.toml", b"version = 3"),
        lambda: files.remove("/etc/os-release"),
        lambda: driver_files.clear(machine),
        files.undo,
    ]


class Hanging(BaseException):
    """A read or a write does not return. No code under test may catch it."""


@contextmanager
def hanging_fails() -> Generator[None]:
    def fail(*_: object) -> None:
        raise Hanging(f"still busy after {HANG_SECONDS} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def files_of(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() or path.is_symlink())


def plant(name: str, path: Path, outside: Path) -> None:
    """Put one of `PLANTS`, or a link that leads out of the machine."""
    if name == "link out":
        path.symlink_to("/".join([".."] * 40) + str(outside / "secret"))
    else:
        PLANTS[name](path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


@pytest.fixture
def outside(tmp_path: Path) -> Generator[Path]:
    """A folder outside of the machine, which no writer may change."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    yield folder
    assert [*folder.iterdir()] == [folder / "secret"]
    assert (folder / "secret").read_text() == SECRET


def check(use: Callable[[], object], *expected: type[Exception], planted: object) -> object:
    """Return what a use returns or raises; fail where it hangs, crashes or leaves the machine."""
    try:
        with hanging_fails():
            answer = use()
    except expected as error:
        answer = error
    except BaseException as error:
        error.add_note(f"planted: {planted}")
        raise
    assert SECRET not in repr(answer), planted
    return answer


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device file needs root")
@pytest.mark.parametrize("name", [*PLANTS, "link out"])
def test_a_replaced_file_is_missing_or_unreadable_for_every_reader(
    name: str, tmp_path: Path, outside: Path
) -> None:
    root = tmp_path / "machine"
    build_machine(root)
    machine = Tree(root)
    for file in files_of(root):
        kept = file.with_name("kept")
        file.rename(kept)
        plant(name, file, outside)
        path = f"/{file.relative_to(root)}"
        if name in NEVER_READ:
            answer = check(lambda path=path: machine.data(path), Unreadable, planted=path)
            assert isinstance(answer, Unreadable), path
        for use in readers(machine):
            check(use, Unreadable, Fatal, planted=f"{name} at {file}")
        remove(file)
        kept.rename(file)


@pytest.mark.parametrize("name", ["link out", "folder", "fifo", "long chain"])
def test_writers_change_nothing_outside_of_the_machine(
    name: str, tmp_path: Path, outside: Path
) -> None:
    built, root = tmp_path / "built", tmp_path / "machine"
    build_machine(built)
    for path in WRITTEN:
        for file in (path, f"{os.path.dirname(path)}/.{os.path.basename(path)}.unfinished"):
            shutil.copytree(built, root, symlinks=True)
            target = root / file.lstrip("/")
            remove(target)
            plant(name, target, outside)
            for use in writers(Tree(root)):
                check(use, OSError, CorruptUndoLog, planted=f"{name} at {file}")
            shutil.rmtree(root)
