"""What is said where real nodes cannot run, and where they cannot be built."""

from pathlib import Path

import pytest

from libs.testing.go_build import NotBuilt
from libs.testing.realnodes import build
from libs.testing.realnodes.ground import find_nodes


def test_what_is_missing_is_named_with_its_command(tmp_path: Path) -> None:
    search = find_nodes({"HOME": str(tmp_path), "PATH": ""})
    assert search.binaries is None
    assert search.explanation.startswith("no real nodes: they need ")
    assert "their programs (`make node`)" in search.explanation
    assert "a real control plane (`make kube`)" in search.explanation


def test_without_debians_tools_nothing_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotBuilt, match=r"this machine has no apt-get and dpkg: busybox-static, "):
        build.build({"HOME": str(tmp_path), "PATH": ""}, report=lambda _: None)
    assert not list(tmp_path.iterdir())
