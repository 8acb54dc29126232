import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.host.tree import Tree
from tests.unit.host.builders import link, put, tree


def test_a_file_is_read_below_the_root(tmp_path: Path) -> None:
    machine = tree(tmp_path, {"/etc/os-release": "ID=ubuntu\n"})
    assert machine.text("/etc/os-release") == "ID=ubuntu\n"
    assert machine.word("/etc/os-release") == "ID=ubuntu"
    assert machine.exists("/etc/os-release")


def test_a_missing_file_reads_as_none(tmp_path: Path) -> None:
    machine = tree(tmp_path)
    assert machine.text("/etc/os-release") is None
    assert machine.word("/etc") is None
    assert machine.names("/sys") == ()
    assert machine.link("/etc/localtime") is None
    assert not machine.exists("/etc")


@pytest.mark.parametrize("read", [Tree.text, Tree.data, Tree.names])
def test_a_lack_of_resources_is_an_error(
    tmp_path: Path, read: Callable[[Tree, str], object]
) -> None:
    machine = tree(tmp_path, {"/proc/modules": "nvidia 1 0 - Live 0x0\n"})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            read(machine, "/proc/modules")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/usr/lib/os-release", "usr/lib/os-release"),
        ("../usr/lib/os-release", "usr/lib/os-release"),
        ("../../../../usr/lib/os-release", "usr/lib/os-release"),
        ("/../../usr/lib/os-release", "usr/lib/os-release"),
    ],
)
def test_a_link_is_followed_within_the_root(tmp_path: Path, target: str, path: str) -> None:
    root = tmp_path / "root"
    put(root, "/usr/lib/os-release", "ID=theirs")
    put(tmp_path, "usr/lib/os-release", "ID=outside")
    link(root, "/etc/os-release", target)
    machine = tree(root)
    assert machine.text("/etc/os-release") == "ID=theirs"
    assert machine.at("/etc/os-release") == root / path
    assert machine.link("/etc/os-release") == target


def test_a_path_never_leaves_the_root(tmp_path: Path) -> None:
    put(tmp_path, "secret", "outside")
    machine = tree(tmp_path / "root", {"/a": "in"})
    assert machine.text("/../secret") is None
    assert machine.text("../../secret") is None
    assert machine.text("/x/../a") == "in"


def test_a_linked_folder_is_followed_within_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "/run/nvidia/driver/x", "there")
    link(root, "/var/run", "/run")
    assert tree(root).text("/var/run/nvidia/driver/x") == "there"


def test_a_cycle_of_links_reads_as_missing(tmp_path: Path) -> None:
    link(tmp_path, "/a", "/b")
    link(tmp_path, "/b", "/a")
    machine = tree(tmp_path)
    assert machine.text("/a") is None
    assert not machine.exists("/a")


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
    assert tree(tmp_path).text("/f") == "\ufffdx"


def test_the_free_space_is_read(tmp_path: Path) -> None:
    machine = tree(tmp_path, {"/var/lib/a": ""})
    link(tmp_path, "/data", "/var/lib")
    about = os.statvfs(tmp_path)
    free = machine.free_bytes("/data")
    assert free is not None
    assert 0 < free <= about.f_blocks * about.f_frsize
    assert machine.free_bytes("/nowhere") is None
