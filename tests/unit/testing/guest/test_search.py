"""What is said where no guest was built."""

from pathlib import Path

from libs.testing.guest.guest import find_guest


def test_what_is_missing_is_named_with_its_command(tmp_path: Path) -> None:
    search = find_guest({"XDG_CACHE_HOME": str(tmp_path)})
    assert search.folder is None
    assert "`make guest`" in search.explanation
