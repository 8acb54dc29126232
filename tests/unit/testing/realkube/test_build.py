"""`make kube` with a fake Go: its result and its messages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from libs.testing import go_build
from libs.testing.go_build import NotBuilt
from libs.testing.realkube.binaries import NAMES, cache_folder, find_binaries
from libs.testing.realkube.build import build
from tests.unit.testing.realkube.builders import go_modules, program

# Records its call, and writes the file that `-o` names.
GO = """
echo "$(basename "$PWD") CGO_ENABLED=$CGO_ENABLED GOWORK=$GOWORK $*" >> "$CALLS"
while [ "$1" != -o ]; do shift; done
echo "$3" > "$2"
chmod +x "$2"
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    return go_modules(tmp_path / "modules")


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def environ(tmp_path: Path, calls: Path) -> dict[str, str]:
    program(tmp_path / "bin" / "go", GO)
    return {
        "HOME": str(tmp_path / "home"),
        "PATH": f"{tmp_path / 'bin'}:{os.defpath}",
        "CALLS": str(calls),
    }


def ignore_progress(line: str) -> None:
    pass


def test_all_five_are_built_once(environ: dict[str, str], modules: Path, calls: Path) -> None:
    reported: list[str] = []
    folder = build(environ, report=reported.append, modules=modules)
    assert sorted(file.name for file in folder.iterdir()) == sorted(NAMES)
    assert (folder / "etcd").read_text() == "go.etcd.io/etcd/server/v3\n"
    assert (folder / "kubectl").read_text() == "k8s.io/kubernetes/cmd/kubectl\n"
    assert reported[:5] == [
        f"{number} of 5, {name} …" for number, name in enumerate(NAMES, start=1)
    ]
    assert reported[5:] == ["built in 0:00"]
    assert find_binaries(environ, modules=modules).binaries is not None

    assert build(environ, report=reported.append, modules=modules) == folder
    assert len(calls.read_text().splitlines()) == 5
    assert len(reported) == 6, "the second build reports nothing more"


def test_builds_are_reproducible(environ: dict[str, str], modules: Path, calls: Path) -> None:
    build(environ | {"CGO_ENABLED": "1", "GOWORK": "/x"}, report=ignore_progress, modules=modules)
    called = calls.read_text().splitlines()
    assert [line.split()[0] for line in called] == ["etcd", *["modules"] * 4]
    for line in called:
        assert " CGO_ENABLED=0 GOWORK=off build -mod=readonly -trimpath -ldflags -s -w " in line
    for line in called[1:]:
        for flag in ("gitVersion=v1.37.1", "gitMajor=1", "gitMinor=37"):
            assert f"-X k8s.io/component-base/version.{flag} " in line


@pytest.mark.parametrize(
    ("error", "what_to_do"),
    [
        ("undefined: x", "fix the error below and run `make kube` again"),
        ("link: write: no space left on device", "free some disk"),
        ("compile: signal: killed", "the machine ran out of memory"),
        ("Get: dial tcp: lookup: no such host", "Go could not fetch modules"),
        ("go: go.mod requires go >= 1.26.0 (running go 1.24.1)", "install that version of Go"),
    ],
)
def test_a_failed_build_reports_the_output_of_go(
    error: str, what_to_do: str, tmp_path: Path, environ: dict[str, str], modules: Path
) -> None:
    fails = f'case "$*" in *cmd/kube-scheduler) seq 20; echo "{error}" >&2; exit 2;; esac'
    program(tmp_path / "bin" / "go", fails + GO)
    with pytest.raises(NotBuilt) as failed:
        build(environ, report=ignore_progress, modules=modules)
    first, *last = str(failed.value).splitlines()
    assert first.startswith("4 of 5, kube-scheduler failed (exit code 2): ")
    assert what_to_do in first
    assert last == [*(f"  {number}" for number in range(10, 21)), f"  {error}"]
    folder = cache_folder(environ, modules=modules)
    assert [file.name for file in folder.parent.iterdir()] == [f"{folder.name}.lock"]


def test_a_build_without_go_reports_what_to_install(environ: dict[str, str], modules: Path) -> None:
    with pytest.raises(NotBuilt, match=r"there is no `go` on the PATH: install it, or set KUBEB"):
        build(environ | {"PATH": "/nowhere"}, report=ignore_progress, modules=modules)


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, environ: dict[str, str], modules: Path
) -> None:
    (tmp_path / "home").write_text("not a folder")
    with pytest.raises(NotBuilt, match=r"home.*; set XDG_CACHE_HOME elsewhere$"):
        build(environ, report=ignore_progress, modules=modules)


def test_the_rest_of_a_killed_build_is_removed(environ: dict[str, str], modules: Path) -> None:
    partial = Path(f"{cache_folder(environ, modules=modules)}.partial")
    partial.mkdir(parents=True)
    (partial / "core").write_text("half of something")
    folder = build(environ, report=ignore_progress, modules=modules)
    assert sorted(file.name for file in folder.iterdir()) == sorted(NAMES)
    assert not partial.exists()


def test_a_long_build_reports_progress_and_can_be_interrupted(
    tmp_path: Path,
    environ: dict[str, str],
    modules: Path,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(go_build, "SIGN_OF_LIFE", 0.01)
    program(tmp_path / "bin" / "go", 'echo $$ > "$CALLS"; exec sleep 60')
    calls.write_text("")

    def interrupt(line: str) -> None:
        if line.startswith("1 of 5, etcd: 0:0") and calls.read_text().endswith("\n"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(environ, report=interrupt, modules=modules)
    folder = cache_folder(environ, modules=modules)
    assert [file.name for file in folder.parent.iterdir()] == [f"{folder.name}.lock"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(calls.read_text()), 0)


def test_the_command_fails_with_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "libs.testing.realkube.build"]
    environ = {"HOME": str(tmp_path), "PATH": "/nowhere"}
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("make kube: the control plane is built with Go, and there is no")
    assert ended.stderr.count("\n") == 1
