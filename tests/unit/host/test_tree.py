import errno
import itertools
import os
import resource
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.host import confined
from libs.host.tree import MAX_BYTES, Tree, Unreadable, number
from tests.builders.machine_files import link, put, tree


@pytest.fixture(params=[confined.open_by_kernel, confined.open_by_steps], autouse=True)
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with and without openat2."""
    monkeypatch.setattr(confined, "_opener", lambda: request.param)


def test_a_file_is_read_below_the_root(tmp_path: Path) -> None:
    machine = tree(tmp_path, {"/etc/os-release": "ID=ubuntu\n"})
    assert machine.read_text("/etc/os-release") == "ID=ubuntu\n"
    assert machine.word("/etc/os-release") == "ID=ubuntu"
    assert machine.exists("/etc/os-release")


def test_a_missing_file_reads_as_none(tmp_path: Path) -> None:
    machine = tree(tmp_path)
    assert machine.read_text("/etc/os-release") is None
    assert machine.word("/etc") is None
    assert machine.names("/sys") == ()
    assert machine.link("/etc/localtime") is None
    assert not machine.exists("/etc")


def test_a_path_does_not_end_at_a_nul_byte(tmp_path: Path) -> None:
    machine = tree(tmp_path, {"/etc/os-release": "ID=ubuntu\n"})
    with pytest.raises(Unreadable, match="NUL byte"):
        machine.read_text("/etc/os-release\0.d")


@pytest.mark.parametrize("look", [Tree.read_text, Tree.data, Tree.names])
def test_a_lack_of_resources_is_an_error(
    tmp_path: Path, look: Callable[[Tree, str], object]
) -> None:
    machine = tree(tmp_path, {"/proc/modules": "nvidia 1 0 - Live 0x0\n"})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            look(machine, "/proc/modules")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "target",
    [
        "/usr/lib/os-release",
        "../usr/lib/os-release",
        "../../../../usr/lib/os-release",
        "/../../usr/lib/os-release",
    ],
)
def test_a_link_is_followed_within_the_root(tmp_path: Path, target: str) -> None:
    root = tmp_path / "root"
    put(root, "/usr/lib/os-release", "ID=inside")
    put(tmp_path, "usr/lib/os-release", "ID=outside")
    link(root, "/etc/os-release", target)
    machine = tree(root)
    assert machine.read_text("/etc/os-release") == "ID=inside"
    assert machine.real_path("/etc/os-release") == str(root / "usr/lib/os-release")
    assert machine.link("/etc/os-release") == target


def test_a_path_never_leaves_the_root(tmp_path: Path) -> None:
    put(tmp_path, "secret", "outside")
    machine = tree(tmp_path / "root", {"/a": "in"})
    assert machine.read_text("/../secret") is None
    assert machine.read_text("../../secret") is None
    assert machine.read_text("/../a") == "in"


def test_a_linked_folder_is_followed_within_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "/run/nvidia/driver/x", "there")
    link(root, "/var/run", "/run")
    assert tree(root).read_text("/var/run/nvidia/driver/x") == "there"


def test_a_file_that_cannot_be_read_is_not_a_missing_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(20 << 30)
    link(tmp_path, "/a", "/b")
    link(tmp_path, "/b", "/a")
    (tmp_path / "folder").mkdir()
    machine = tree(tmp_path)
    for path, reason in {
        "/fifo": "not a regular file",
        "/sparse": f"larger than {MAX_BYTES >> 20} MiB",
        "/a": "Too many levels of symbolic links",
        "/folder": "not a regular file",
    }.items():
        with pytest.raises(Unreadable, match=f"{path} cannot be read: .*{reason}"):
            machine.data(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
def test_a_device_is_not_read(tmp_path: Path) -> None:
    os.mknod(tmp_path / "zero", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    with pytest.raises(Unreadable, match="not a regular file"):
        tree(tmp_path).data("/zero")


def test_a_name_that_is_not_utf8_is_left_out(tmp_path: Path) -> None:
    for name in (b"a", b"\xff", "ü".encode()):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("")
    assert tree(tmp_path).names("/") == ("a", "ü")


@pytest.mark.parametrize("planted", [".file.unfinished", "file"])
def test_a_write_does_not_follow_a_link_out_of_the_root(tmp_path: Path, planted: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.write_text("theirs")
    link(root, f"/run/gate/{planted}", "../../../outside")
    tree(root).write("/run/gate/file", b"ours")
    assert outside.read_text() == "theirs"
    assert tree(root).read_text("/run/gate/file") == "ours"
    assert not (root / "run/gate/.file.unfinished").is_symlink()


def test_a_folder_that_became_a_link_leads_no_write_outside(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    link(root, "/run/gate", str(outside))
    with pytest.raises(OSError, match=r"No such file|File exists"):
        tree(root).write("/run/gate/file", b"ours")
    assert list(outside.iterdir()) == []


def test_a_write_replaces_what_a_link_leads_to(tmp_path: Path) -> None:
    machine = tree(tmp_path, {"/usr/lib/config": "old"})
    link(tmp_path, "/etc/config", "../usr/lib/config")
    machine.write("/etc/config", b"new", mode=0o640)
    assert machine.read_text("/usr/lib/config") == "new"
    assert machine.mode("/usr/lib/config") == 0o640
    assert machine.link("/etc/config") == "../usr/lib/config"


def test_an_append_cuts_off_what_followed(tmp_path: Path) -> None:
    machine = tree(tmp_path, {"/log": "a\nhalf"})
    machine.append("/log", b"b\n", after=2)
    assert machine.read_text("/log") == "a\nb\n"


def test_removing_a_link_keeps_its_target(tmp_path: Path) -> None:
    machine = tree(tmp_path, {"/target": "x"})
    link(tmp_path, "/link", "/target")
    machine.remove("/link")
    machine.remove("/link")
    assert machine.link("/link") is None
    assert machine.read_text("/target") == "x"


def test_links_that_change_meanwhile_never_lead_outside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "/inside/file", "inside")
    put(tmp_path, "outside/file", "outside")
    ended = threading.Event()

    def swap_links() -> None:
        for turn in itertools.count():
            target = ("../outside", "inside", str(tmp_path / "outside"))[turn % 3]
            (root / "next").symlink_to(target)
            (root / "next").rename(root / "folder")
            if ended.is_set():
                return

    swapper = threading.Thread(target=swap_links)
    swapper.start()
    try:
        machine = tree(root)
        found = {machine.read_text("/folder/file") for _ in range(2000)}
    finally:
        ended.set()
        swapper.join()
    assert "outside" not in found


@pytest.mark.parametrize(
    ("text", "value"),
    [("12\n", 12), ("-1", -1), ("", None), (None, None), ("²", None), ("9" * 5000, None)],
)
def test_a_number_is_read_as_the_kernel_writes_it(text: str | None, value: int | None) -> None:
    assert number(text) == value


def test_the_modification_time_is_read(tmp_path: Path) -> None:
    machine = tree(tmp_path, {"/sys/module/nvidia/version": "580\n"})
    os.utime(tmp_path / "sys/module/nvidia", (7.25, 7.25))
    assert machine.modified_at("/sys/module/nvidia") == 7.25
    assert machine.modified_at("/sys/module/nouveau") is None


def test_names_are_sorted(tmp_path: Path) -> None:
    machine = tree(tmp_path, {"/d/c": "", "/d/a": "", "/d/b/x": ""})
    assert machine.names("/d") == ("a", "b", "c")


def test_invalid_utf8_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xffx")
    assert tree(tmp_path).read_text("/f") == "\ufffdx"


def test_the_free_space_is_read(tmp_path: Path) -> None:
    machine = tree(tmp_path, {"/var/lib/a": ""})
    link(tmp_path, "/data", "/var/lib")
    about = os.statvfs(tmp_path)
    free = machine.free_bytes("/data")
    assert free is not None
    assert 0 < free <= about.f_blocks * about.f_frsize
    assert machine.free_bytes("/nowhere") is None


def test_the_targets_of_all_links_in_a_folder_are_read_and_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "fd"
    folder.mkdir()
    for name, target in {"0": "/dev/nvidia0", "1": "../../out", "2": os.fsdecode(b"/\xff")}.items():
        (folder / name).symlink_to(target)
    (folder / "file").write_text("")
    link(tmp_path, "/a", "/b")
    link(tmp_path, "/b", "/a")
    machine = tree(tmp_path)
    assert sorted(machine.links("/fd")) == ["../../out", "/dev/nvidia0", "/\ufffd"]
    assert machine.links("/missing") == machine.links("/fd/file") == ()
    with pytest.raises(Unreadable, match="Too many levels of symbolic links"):
        machine.links("/a")


def test_keeping_a_modification_time_does_not_change_it(tmp_path: Path) -> None:
    folder = tmp_path / "sys/module/nvidia"
    folder.mkdir(parents=True)
    os.utime(folder, ns=(1, 1_700_000_000_123_456_789))
    Tree(tmp_path).keep_modified_at("/sys/module/nvidia")
    assert folder.stat().st_mtime_ns == 1_700_000_000_123_456_789
    Tree(tmp_path).keep_modified_at("/sys/module/missing")
    assert not (tmp_path / "sys/module/missing").exists()
