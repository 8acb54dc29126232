"""The demo's folder: gone when its time is over, and where it cannot be made the reason is said."""

import os
import tempfile
from pathlib import Path

import pytest

from demo.paths import guarded_folder
from libs.runtime.fatal import Fatal


async def test_it_goes_with_all_that_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with guarded_folder("demo-", room=1) as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith("demo-")
        (folder / "kept").write_text("until the end")
    assert os.listdir(tmp_path) == []


async def test_where_none_can_be_made_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(Fatal, match=rf"{tmp_path / 'gone'}: No such file .* TMPDIR"):
        async with guarded_folder("demo-", room=1):
            raise AssertionError("there is no folder")


async def test_a_disk_that_is_too_full_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(Fatal, match=rf"needs 1099511627776 MiB below {tmp_path}, where .* free"):
        async with guarded_folder("demo-", room=2**60):
            raise AssertionError("there is no folder")
    assert os.listdir(tmp_path) == []
