"""Where the incumbent's program is built, and what is said without Go."""

from pathlib import Path

import pytest

from bench.incumbent.build import build, cache_folder
from libs.testing.go_build import NotBuilt


def test_the_folder_is_named_by_the_version_of_the_library(tmp_path: Path) -> None:
    folder = cache_folder({"XDG_CACHE_HOME": str(tmp_path)})
    assert folder.is_relative_to(tmp_path)
    assert folder.name.startswith("v0.0.0-20250311214045-7d667fbaa7ac-")


def test_without_go_the_message_names_it(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path), "PATH": ""}
    with pytest.raises(NotBuilt, match="no `go` on the PATH"):
        build(environ, report=print)
