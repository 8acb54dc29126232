from pathlib import Path

import pytest

from libs.testing.machines.host_tree import HostTree


def test_what_is_put_replaces_what_was_there(tmp_path: Path) -> None:
    ground = HostTree(tmp_path)
    ground.put("/a/b", "one")
    ground.put("/a/b", b"two")
    assert (tmp_path / "a/b").read_bytes() == b"two"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_a_link_says_what_it_is_told_and_may_be_changed(tmp_path: Path) -> None:
    ground = HostTree(tmp_path)
    ground.link("/a", "/dev/null")
    ground.link("/a", "../elsewhere")
    assert (tmp_path / "a").readlink() == Path("../elsewhere")


def test_what_is_dropped_is_gone_whatever_it_was(tmp_path: Path) -> None:
    ground = HostTree(tmp_path)
    ground.put("/folder/deep/file")
    ground.put("/file")
    ground.link("/link", "/folder")
    for path in ("/link", "/file", "/folder", "/never"):
        ground.remove(path)
    assert list(tmp_path.iterdir()) == []


def test_an_emptied_folder_stays(tmp_path: Path) -> None:
    ground = HostTree(tmp_path)
    ground.put("/run/x/y")
    ground.empty("/run")
    ground.make_folder("/run")
    assert list((tmp_path / "run").iterdir()) == []


def test_what_is_lost_can_be_neither_read_nor_written_until_it_is_found(tmp_path: Path) -> None:
    ground = HostTree(tmp_path)
    ground.put("/var/lib/sluice/journal", "kept")
    ground.break_below("/var/lib")
    ground.break_below("/var/lib")
    place = tmp_path / "var/lib/sluice"
    for doing in (
        (place / "journal").read_bytes,
        lambda: place.mkdir(parents=True, exist_ok=True),
        lambda: (place / "journal").write_bytes(b"x"),
    ):
        with pytest.raises(OSError, match=r"File exists|Not a directory"):
            doing()
    ground.repair_below("/var/lib")
    ground.repair_below("/var/lib")
    assert (place / "journal").read_text() == "kept"
