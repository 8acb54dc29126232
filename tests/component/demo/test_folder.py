"""The folder of the demo: removal, and errors of its creation."""

import os
import tempfile
from pathlib import Path

import pytest

from demo.paths import guarded_folder
from libs.runtime.fatal import Fatal


async def test_the_folder_is_removed_with_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with guarded_folder("demo-", room=1) as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith("demo-")
        (folder / "kept").write_text("until the end")
    assert os.listdir(tmp_path) == []


async def test_a_folder_that_cannot_be_created_is_fatal_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(Fatal, match=rf"{tmp_path / 'gone'}: No such file .* TMPDIR"):
        async with guarded_folder("demo-", room=1):
            raise AssertionError("there is no folder")


async def test_a_full_disk_is_fatal_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(Fatal, match=rf"needs 1099511627776 MiB below {tmp_path}, where .* free"):
        async with guarded_folder("demo-", room=2**60):
            raise AssertionError("there is no folder")
    assert os.listdir(tmp_path) == []
