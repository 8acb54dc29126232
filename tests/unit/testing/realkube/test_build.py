"""`make kube`, with a Go that only pretends: what is there afterwards, and what is said."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from libs.testing.realkube import build as subject
from libs.testing.realkube.binaries import NAMES, cache_folder, find_binaries
from libs.testing.realkube.build import NotBuilt, build
from tests.unit.testing.realkube.builders import go_modules, program

# Notes how it was called, and writes what `-o` names.
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
    """A machine that can build."""
    program(tmp_path / "bin" / "go", GO)
    return {
        "HOME": str(tmp_path / "home"),
        "PATH": f"{tmp_path / 'bin'}:{os.defpath}",
        "CALLS": str(calls),
    }


def nothing(line: str) -> None:
    """For whom nobody waits."""


def test_all_five_are_built_once(environ: dict[str, str], modules: Path, calls: Path) -> None:
    said: list[str] = []
    place = build(environ, report=said.append, modules=modules)
    assert sorted(file.name for file in place.iterdir()) == sorted(NAMES)
    assert (place / "etcd").read_text() == "go.etcd.io/etcd/server/v3\n"
    assert (place / "kubectl").read_text() == "k8s.io/kubernetes/cmd/kubectl\n"
    assert said[:5] == [f"{number} of 5, {name} …" for number, name in enumerate(NAMES, start=1)]
    assert said[5:] == ["built in 0:00"]
    assert find_binaries(environ, modules=modules).binaries is not None

    assert build(environ, report=said.append, modules=modules) == place
    assert len(calls.read_text().splitlines()) == 5
    assert len(said) == 6, "and the second time nothing is to be waited for"


def test_go_is_called_so_that_anybody_gets_the_same(
    environ: dict[str, str], modules: Path, calls: Path
) -> None:
    build(environ | {"CGO_ENABLED": "1", "GOWORK": "/x"}, report=nothing, modules=modules)
    called = calls.read_text().splitlines()
    assert [line.split()[0] for line in called] == ["etcd", *["modules"] * 4]
    for line in called:
        assert " CGO_ENABLED=0 GOWORK=off build -mod=readonly -trimpath -ldflags -s -w " in line
        for flag in ("gitVersion=v1.37.1", "gitMajor=1", "gitMinor=37"):
            assert f"-X k8s.io/component-base/version.{flag} " in line


@pytest.mark.parametrize(
    ("says", "what_to_do"),
    [
        ("undefined: x", "mend what Go says and run `make kube` again"),
        ("link: write: no space left on device", "free some disk"),
        ("compile: signal: killed", "the machine ran out of memory"),
        ("Get: dial tcp: lookup: no such host", "Go could not fetch modules"),
        ("go: go.mod requires go >= 1.26.0 (running go 1.24.1)", "install a Go as new as that"),
    ],
)
def test_a_failure_is_told_with_what_go_said(
    says: str, what_to_do: str, tmp_path: Path, environ: dict[str, str], modules: Path
) -> None:
    fails = f'case "$*" in *cmd/kube-scheduler) seq 20; echo "{says}" >&2; exit 2;; esac'
    program(tmp_path / "bin" / "go", fails + GO)
    with pytest.raises(NotBuilt) as failed:
        build(environ, report=nothing, modules=modules)
    first, *last = str(failed.value).splitlines()
    assert first.startswith("4 of 5, kube-scheduler failed (exit code 2): ")
    assert what_to_do in first
    assert last == [*(f"  {number}" for number in range(10, 21)), f"  {says}"]
    place = cache_folder(environ, modules=modules)
    assert [file.name for file in place.parent.iterdir()] == [f"{place.name}.lock"]


def test_without_go_it_says_what_to_install(environ: dict[str, str], modules: Path) -> None:
    with pytest.raises(NotBuilt, match=r"there is no `go` on the PATH: install it, or set KUBEB"):
        build(environ | {"PATH": "/nowhere"}, report=nothing, modules=modules)


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, environ: dict[str, str], modules: Path
) -> None:
    (tmp_path / "home").write_text("not a folder")
    with pytest.raises(NotBuilt, match=r"home.*; set XDG_CACHE_HOME elsewhere$"):
        build(environ, report=nothing, modules=modules)


def test_a_full_disk_is_named(environ: dict[str, str], modules: Path) -> None:
    def full(line: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(NotBuilt, match=r"No space left on device; free some disk"):
        build(environ, report=full, modules=modules)


def test_of_two_builders_one_builds(environ: dict[str, str], modules: Path, calls: Path) -> None:
    waits = threading.Event()

    def patient(line: str) -> None:
        waits.set()

    second = threading.Thread(
        target=build, args=(environ,), kwargs={"report": patient, "modules": modules}
    )

    def first(line: str) -> None:
        if line == "1 of 5, etcd …":
            second.start()
            assert waits.wait(20)

    build(environ, report=first, modules=modules)
    second.join(20)
    assert not second.is_alive()
    assert len(calls.read_text().splitlines()) == 5


def test_what_a_killed_builder_left_is_removed(environ: dict[str, str], modules: Path) -> None:
    left = Path(f"{cache_folder(environ, modules=modules)}.partial")
    left.mkdir(parents=True)
    (left / "core").write_text("half of something")
    place = build(environ, report=nothing, modules=modules)
    assert sorted(file.name for file in place.iterdir()) == sorted(NAMES)
    assert not left.exists()


def test_who_waits_sees_that_it_lives_and_may_stop_it(
    tmp_path: Path,
    environ: dict[str, str],
    modules: Path,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject, "SIGN_OF_LIFE", 0.01)
    program(tmp_path / "bin" / "go", 'echo $$ > "$CALLS"; exec sleep 60')
    calls.write_text("")

    def impatient(line: str) -> None:
        if line.startswith("1 of 5, etcd: 0:0") and calls.read_text().endswith("\n"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(environ, report=impatient, modules=modules)
    place = cache_folder(environ, modules=modules)
    assert [file.name for file in place.parent.iterdir()] == [f"{place.name}.lock"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(calls.read_text()), 0)


def test_the_program_prints_one_line_and_fails(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "libs.testing.realkube.build"]
    environ = {"HOME": str(tmp_path), "PATH": "/nowhere"}
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("make kube: the control plane is built with Go, and there is no")
    assert ended.stderr.count("\n") == 1


def test_the_program_says_where_it_is(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": "/nowhere"}
    place = cache_folder(environ)
    place.mkdir(parents=True)
    command = [sys.executable, "-m", "libs.testing.realkube.build"]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"make kube: the control plane is in {place}\n"
