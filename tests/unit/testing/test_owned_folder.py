"""Folders that are recognised as left when their owner has ended."""

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from libs.testing.owned_folder import OwnedFolder, abandoned_folders

KILLED = """
import os
from libs.testing.owned_folder import OwnedFolder
print(OwnedFolder("ours-").path, flush=True)
os.kill(os.getpid(), 9)
"""


def test_only_the_folder_of_an_ended_process_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = OwnedFolder("ours-")
    (tmp_path / "ours-without-a-lock").mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", KILLED],
        env={"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    left = Path(ended.stdout.strip())
    assert left.is_dir()
    assert list(abandoned_folders("ours-")) == [left]
    assert not left.exists()
    kept.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["ours-without-a-lock"]


def test_a_folder_that_was_taken_for_a_left_one_before_it_is_locked_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lock = fcntl.flock

    def after_another_process(file: IO[str], how: int) -> None:
        monkeypatch.setattr("fcntl.flock", lock)
        assert len(list(abandoned_folders("ours-"))) == 1
        lock(file, how)

    monkeypatch.setattr("fcntl.flock", after_another_process)
    kept = OwnedFolder("ours-")
    assert kept.path.is_dir()
    assert list(abandoned_folders("ours-")) == []
    kept.remove()
    assert list(tmp_path.iterdir()) == []
