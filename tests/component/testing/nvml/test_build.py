"""The library is built once, whole, and with a clear reason where it cannot be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from libs.testing.nvml import CUDA_NAME, NAME, NotBuilt, library
from libs.testing.nvml import build as subject
from libs.testing.nvml.build import cache_folder, find_compiler

# Records its call, and writes the file that `-o` names once the other builder has started too.
COMPILER = """#!/bin/sh
case "$*" in *libcuda*) ;; *) echo "$$" >> "$CALLS" ;; esac
until [ "$(wc -l < "$CALLS")" -ge "${BUILDERS:-1}" ]; do sleep 0.01; done
while [ "$1" != -o ]; do shift; done
echo library > "$2"
"""

BUILD = "import sys; from libs.testing.nvml import library; print(library())"


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def environ(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment with a compiler that only seems to compile."""
    compiler = tmp_path / "bin" / "cc"
    compiler.parent.mkdir()
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("CALLS", str(calls))
    return {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PATH": f"{compiler.parent}:{os.defpath}",
        "CALLS": str(calls),
    }


def count(calls: Path) -> int:
    return len(calls.read_text().splitlines())


def entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_the_library_is_built_once(environ: dict[str, str], calls: Path) -> None:
    folder = library(environ)
    assert library(environ) == folder == cache_folder(environ)
    assert count(calls) == 1
    assert entries(folder) == ["kernel.h", "layout.h", CUDA_NAME, NAME]
    assert entries(folder.parent) == [folder.name]


def test_other_sources_are_another_library(
    environ: dict[str, str], calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = library(environ)
    sources = tmp_path / "source"
    sources.mkdir()
    (sources / "one.c").write_text("int one;\n")
    monkeypatch.setattr(subject, "SOURCES", sources)
    assert library(environ) != first
    assert count(calls) == 2


def test_builders_at_the_same_time_do_no_harm(environ: dict[str, str], calls: Path) -> None:
    command = [sys.executable, "-c", BUILD]
    builders = [
        subprocess.Popen(
            command,
            cwd=Path(__file__).parents[4],
            env={**environ, "BUILDERS": "2"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    folders = {Path(builder.communicate()[0].strip()) for builder in builders}
    assert [builder.returncode for builder in builders] == [0, 0]
    assert folders == {cache_folder(environ)}
    assert count(calls) == 2
    assert entries(cache_folder(environ).parent) == [cache_folder(environ).name]


def test_a_compiler_that_fails_is_quoted(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin" / "cc").write_text("#!/bin/sh\necho 'stdint.h: no such file' >&2\nexit 3\n")
    with pytest.raises(NotBuilt, match=r"(?s)exit code 3.*stdint\.h: no such file"):
        library(environ)
    assert entries(cache_folder(environ).parent) == []


def test_without_a_compiler_the_reason_says_what_to_install(
    environ: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(NotBuilt, match="install a C compiler, or the Python package ziglang"):
        library({**environ, "PATH": str(tmp_path)})


def test_the_compiler_of_the_package_ziglang_is_used_where_there_is_no_other(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    command = find_compiler({**environ, "PATH": str(tmp_path)})
    assert command == (sys.executable, "-m", "ziglang", "cc")


def test_a_cache_that_cannot_be_written_is_named_with_what_to_set(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file\n")
    with pytest.raises(NotBuilt, match="set XDG_CACHE_HOME to a folder to write in"):
        library(environ)
