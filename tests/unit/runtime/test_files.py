"""Files are replaced as a whole, and are on the disk when the call returns."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.runtime.files import replace_file, replace_in, sync_folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.json"


def test_a_file_is_made_and_replaced(path: Path) -> None:
    for content in (b"old", b"new and longer", b""):
        replace_file(path, content)
        assert path.read_bytes() == content
        assert [file.name for file in path.parent.iterdir()] == ["record.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_what_a_killed_process_left_is_replaced_and_not_followed(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"of somebody else")
    path.with_name("record.json.new").symlink_to(other)
    replace_file(path, b"whole")
    assert path.read_bytes() == b"whole"
    assert not path.is_symlink()
    assert other.read_bytes() == b"of somebody else"


def test_a_failed_write_leaves_the_old_content_alone(path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise OSError("the disk is full")

    path.write_bytes(b"old")
    folder = os.open(path.parent, os.O_RDONLY)
    with pytest.raises(OSError, match="the disk is full"):
        replace_in(folder, path.name, chunks(), unfinished="unfinished")
    os.close(folder)
    assert path.read_bytes() == b"old"
    assert [file.name for file in path.parent.iterdir()] == ["record.json"]


def test_the_content_is_on_the_disk_before_its_name_and_the_folder_last(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []

    def sync(file: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{file}").rpartition("/")[2], path.exists()))

    monkeypatch.setattr("os.fsync", sync)
    replace_file(path, b"content")
    assert synced == [("record.json.new", False), (path.parent.name, True)]
    sync_folder(path.parent)
    assert synced[2:] == [(path.parent.name, True)]
