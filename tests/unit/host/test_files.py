"""Undo of changes, also of interrupted ones; changes by others are kept."""

import shutil
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.host.files import UNDO_LOG, CorruptUndoLog, FileChange, UndoableFiles
from libs.host.tree import MAX_BYTES, Tree
from tests.builders.machine_files import put


def snapshot(root: Path) -> dict[str, tuple[int, bytes | None]]:
    """Every file and folder with mode and content."""
    return {
        str(path.relative_to(root)): (
            stat.S_IMODE(path.stat().st_mode),
            path.read_bytes() if path.is_file() else None,
        )
        for path in sorted(root.rglob("*"))
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, "/etc/containerd/config.toml", "version = 2\n")
    put(tmp_path, "/etc/modprobe.d/blacklist.conf", "blacklist nouveau\n")
    (tmp_path / "etc/modprobe.d/blacklist.conf").chmod(0o600)
    (tmp_path / "var/lib").mkdir(parents=True)
    return tmp_path


def test_undo_restores_files_and_folders(root: Path) -> None:
    before = snapshot(root)
    files = UndoableFiles(Tree(root))
    assert files.write("/etc/containerd/config.toml", b"version = 3\n")
    assert files.write("/etc/cdi/nvidia.yaml", b"kind: x\n", mode=0o640)
    assert files.remove("/etc/modprobe.d/blacklist.conf")
    assert (root / "etc/cdi/nvidia.yaml").read_bytes() == b"kind: x\n"
    assert stat.S_IMODE((root / "etc/cdi/nvidia.yaml").stat().st_mode) == 0o640
    assert UndoableFiles(Tree(root)).undo() == ()
    assert snapshot(root) == before


def test_an_unchanged_file_is_not_written_or_logged(root: Path) -> None:
    files = UndoableFiles(Tree(root))
    files.write("/etc/a", b"1")
    logged = (root / UNDO_LOG.lstrip("/") / "list").read_bytes()
    assert not files.write("/etc/a", b"1")
    assert not files.remove("/etc/b")
    assert (root / UNDO_LOG.lstrip("/") / "list").read_bytes() == logged


@pytest.mark.parametrize("path", ["/etc/x/.", "/etc/" + "a" * 300, "/etc/a/b"])
def test_a_logged_path_that_no_file_can_have_is_left_and_does_not_stop_undo(
    path: str, root: Path
) -> None:
    put(root, "/etc/a", "a file where a folder was\n")
    before = snapshot(root)
    tree, files = Tree(root), UndoableFiles(Tree(root))
    files.write("/etc/first", b"1")
    log = f"{UNDO_LOG}/list"
    logged = tree.data(log) or b""
    line = msgspec.json.encode(FileChange(path=path, after="0" * 64)) + b"\n"
    tree.append(log, line, after=len(logged))
    UndoableFiles(tree).write("/etc/last", b"2")
    assert UndoableFiles(tree).undo() == (path,)
    assert snapshot(root) == before


def test_a_log_of_any_size_is_read(root: Path) -> None:
    before = snapshot(root)
    tree, files = Tree(root), UndoableFiles(Tree(root))
    files.write("/etc/first", b"1")
    log = f"{UNDO_LOG}/list"
    logged = tree.data(log) or b""
    folder = "/etc/none/" + "/".join(["a" * 200] * 18)
    entries = (FileChange(path=f"{folder}/{name}", after="0" * 64) for name in range(1500))
    tree.append(log, b"".join(msgspec.json.encode(e) + b"\n" for e in entries), after=len(logged))
    assert (tree.status(log) or root.stat()).st_size > MAX_BYTES
    UndoableFiles(tree).write("/etc/last", b"2")
    assert UndoableFiles(tree).undo() == ()
    assert snapshot(root) == before


def test_undo_restores_the_state_before_the_first_write(root: Path) -> None:
    before = snapshot(root)
    for content in (b"1", b"2", b"3"):
        UndoableFiles(Tree(root)).write("/etc/containerd/config.toml", content)
    UndoableFiles(Tree(root)).undo()
    assert snapshot(root) == before


def test_undo_keeps_files_that_others_changed(root: Path) -> None:
    files = UndoableFiles(Tree(root))
    files.write("/etc/containerd/config.toml", b"ours")
    files.write("/etc/cdi/nvidia.yaml", b"ours")
    files.remove("/etc/modprobe.d/blacklist.conf")
    put(root, "/etc/containerd/config.toml", "theirs")
    put(root, "/etc/cdi/other.yaml", "theirs")
    put(root, "/etc/modprobe.d/blacklist.conf", "theirs")
    assert UndoableFiles(Tree(root)).undo() == (
        "/etc/containerd/config.toml",
        "/etc/cdi",
        "/etc/modprobe.d/blacklist.conf",
    )
    assert (root / "etc/containerd/config.toml").read_text() == "theirs"
    assert (root / "etc/cdi/other.yaml").read_text() == "theirs"
    assert not (root / "etc/cdi/nvidia.yaml").exists()
    assert (root / "etc/modprobe.d/blacklist.conf").read_text() == "theirs"


def test_undo_does_not_restore_a_file_that_others_removed(root: Path) -> None:
    UndoableFiles(Tree(root)).write("/etc/containerd/config.toml", b"ours")
    (root / "etc/containerd/config.toml").unlink()
    assert UndoableFiles(Tree(root)).undo() == ("/etc/containerd/config.toml",)
    assert not (root / "etc/containerd/config.toml").exists()


def test_undo_ignores_a_logged_change_that_was_not_carried_out(root: Path) -> None:
    before = snapshot(root)
    UndoableFiles(Tree(root)).write("/etc/cdi/nvidia.yaml", b"ours")
    (root / "etc/cdi/nvidia.yaml").unlink()
    UndoableFiles(Tree(root)).undo()
    assert snapshot(root) == before


def test_a_truncated_last_line_of_the_log_is_dropped(root: Path) -> None:
    before = snapshot(root)
    UndoableFiles(Tree(root)).write("/etc/a", b"1")
    path = root / UNDO_LOG.lstrip("/") / "list"
    path.write_bytes(path.read_bytes() + b'{"v":1,"pat')
    UndoableFiles(Tree(root)).write("/etc/b", b"2")
    UndoableFiles(Tree(root)).undo()
    assert snapshot(root) == before


def test_a_corrupt_log_refuses_changes(root: Path) -> None:
    put(root, f"{UNDO_LOG}/list", '{"v": 2, "path": "/etc/a"}\n')
    with pytest.raises(CorruptUndoLog, match="newer release"):
        UndoableFiles(Tree(root)).write("/etc/a", b"1")
    assert not (root / "etc/a").exists()


_PATHS = st.sampled_from(["/etc/a", "/etc/x/b", "/etc/containerd/config.toml", "/opt/y/z/c"])
_ACTS = st.lists(
    st.tuples(_PATHS, st.sampled_from([b"", b"1", b"22", None]), st.sampled_from([0o600, 0o755])),
    max_size=12,
)


@settings(max_examples=30, deadline=None)  # each change waits for the disk, several times
@given(actions=_ACTS)
def test_undo_restores_any_sequence_of_changes(
    actions: list[tuple[str, bytes | None, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("machine")
    put(root, "/etc/containerd/config.toml", "version = 2\n")
    (root / "var/lib").mkdir(parents=True)
    before = snapshot(root)
    for path, data, mode in actions:
        files = UndoableFiles(Tree(root))
        if data is None:
            files.remove(path)
        else:
            files.write(path, data, mode=mode)
    assert UndoableFiles(Tree(root)).undo() == ()
    assert snapshot(root) == before
    shutil.rmtree(root)
