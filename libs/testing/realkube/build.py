"""`make kube`: build the five binaries, once, into a cache outside the checkout.

A partial build is renamed when complete. Of several concurrent builds one runs and the others wait.
"""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from libs.testing.errors import SimError
from libs.testing.realkube.binaries import (
    ASSETS,
    MODULES,
    NAMES,
    cache_folder,
    go_target,
    pinned_version,
)

SIGN_OF_LIFE = 15.0
"""Seconds between two lines of progress."""

_PACKAGES = {"etcd": "go.etcd.io/etcd/server/v3"}
_KUBERNETES = "k8s.io/kubernetes/cmd"
_VERSION = "k8s.io/component-base/version"
_LAST_LINES = 12

_REASONS = {
    "no space left on device": "free some disk: a first build needs about 4 GB, most of it in "
    "Go's cache (`go env GOCACHE`)",
    "signal: killed": "the machine ran out of memory: a build needs about 3 GB",
    "dial tcp": "Go could not fetch modules: check the network, or GOPROXY",
    "proxyconnect": "Go could not fetch modules: check the network, or GOPROXY",
    "requires go >=": "install that version of Go, or unset GOTOOLCHAIN and let Go fetch it",
}
_OTHERWISE = "fix the error below and run `make kube` again; compiled packages are kept"


class NotBuilt(SimError):
    """A failed build; the message names the failure and what to do."""


def build(
    environ: Mapping[str, str], *, report: Callable[[str], None], modules: Path = MODULES
) -> Path:
    """Return the folder with the binaries, building them if needed; `report` gets lines of
    progress.
    """
    folder = cache_folder(environ, modules=modules)
    if folder.is_dir():
        return folder
    go_build = _GoBuild(environ=environ, modules=modules, report=report)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(folder, report):
            if not folder.is_dir():
                go_build.fill(folder)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        raise NotBuilt(
            f"{folder} could not be filled: {error}; "
            + (_REASONS["no space left on device"] if full else "set XDG_CACHE_HOME elsewhere")
        ) from error
    return folder


@contextmanager
def _exclusive(folder: Path, report: Callable[[str], None]) -> Generator[None]:
    with Path(f"{folder}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another `make kube` is building; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _GoBuild:
    def __init__(
        self, *, environ: Mapping[str, str], modules: Path, report: Callable[[str], None]
    ) -> None:
        self._report = report
        self._modules = modules
        system, architecture = go_target()
        self._environ = {
            **environ,
            "CGO_ENABLED": "0",
            "GOOS": system,
            "GOARCH": architecture,
            "GOWORK": "off",
        }
        go = shutil.which("go", path=environ.get("PATH", ""))
        if go is None:
            raise NotBuilt(
                "the control plane is built with Go, and there is no `go` on the PATH: install "
                f"it, or set {ASSETS} to a directory that has {', '.join(NAMES)}"
            )
        self._go = go

    def fill(self, folder: Path) -> None:
        """Build all five into a temporary folder, then rename it."""
        partial = Path(f"{folder}.partial")
        # Left by a killed build: the lock excludes a concurrent one.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            started = time.monotonic()
            for number, name in enumerate(NAMES, start=1):
                self._build(name, f"{number} of {len(NAMES)}, {name}", partial)
            partial.rename(folder)
            self._report(f"built in {_minutes(time.monotonic() - started)}")
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _build(self, name: str, title: str, folder: Path) -> None:
        self._report(f"{title} …")
        release = pinned_version(self._modules)
        major, minor, *_ = release.removeprefix("v").split(".")
        version_parts = {"gitVersion": release, "gitMajor": major, "gitMinor": minor}
        flags = [
            "-s",
            "-w",
            *(f"-X {_VERSION}.{key}={value}" for key, value in version_parts.items()),
        ]
        self._run(
            title,
            *("build", "-mod=readonly", "-trimpath", "-ldflags", " ".join(flags)),
            *("-o", str(folder / name), _PACKAGES.get(name, f"{_KUBERNETES}/{name}")),
            module=self._modules / "etcd" if name == "etcd" else self._modules,
        )

    def _run(self, title: str, *arguments: str, module: Path) -> None:
        started = time.monotonic()
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                [self._go, *arguments],
                cwd=module,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                while process.poll() is None:
                    try:
                        process.wait(SIGN_OF_LIFE)
                    except subprocess.TimeoutExpired:
                        self._report(f"{title}: {_minutes(time.monotonic() - started)} …")
            finally:
                process.kill()
                process.wait()
            if process.returncode:
                output.seek(0)
                raise _failure(title, process.returncode, output.read())


def _failure(title: str, code: int, output: str) -> NotBuilt:
    reasons = [reason for sign, reason in _REASONS.items() if sign in output]
    last = "\n".join(f"  {line}" for line in output.splitlines()[-_LAST_LINES:])
    what_to_do = reasons[0] if reasons else _OTHERWISE
    return NotBuilt(f"{title} failed (exit code {code}): {what_to_do}. Go's last lines:\n{last}")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _report(line: str) -> None:
    sys.stdout.write(f"make kube: {line}\n")
    sys.stdout.flush()


def main() -> int:
    try:
        folder = build(os.environ, report=_report)
    except NotBuilt as error:
        sys.stderr.write(f"make kube: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("make kube: stopped; compiled packages are kept\n")
        return 130
    _report(f"the control plane is in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
