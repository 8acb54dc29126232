"""`make kube`: build the five binaries, once, into a cache outside the checkout.

They are built in a folder beside their place, which is renamed when it is whole; of several that
build at once one does, and the others wait. Must know nothing of how the binaries are used.
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
    "dial tcp": "Go could not fetch modules: see to the network, or to GOPROXY",
    "proxyconnect": "Go could not fetch modules: see to the network, or to GOPROXY",
    "requires go >=": "install a Go as new as that, or unset GOTOOLCHAIN and let Go fetch it",
}
_OTHERWISE = "mend what Go says and run `make kube` again; what is compiled already is kept"


class NotBuilt(SimError):
    """What failed, and what to do about it."""


def build(
    environ: Mapping[str, str], *, report: Callable[[str], None], modules: Path = MODULES
) -> Path:
    """The folder that has them; `tell` gets a line now and then for whoever waits."""
    place = cache_folder(environ, modules=modules)
    if place.is_dir():
        return place
    workshop = _Workshop(environ=environ, modules=modules, tell=report)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _alone(place, report):
            if not place.is_dir():
                workshop.fill(place)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        raise NotBuilt(
            f"{place} could not be filled: {error}; "
            + (_REASONS["no space left on device"] if full else "set XDG_CACHE_HOME elsewhere")
        ) from error
    return place


@contextmanager
def _alone(place: Path, tell: Callable[[str], None]) -> Generator[None]:
    with Path(f"{place}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another `make kube` is building; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Workshop:
    """A Go toolchain that can build our modules."""

    def __init__(
        self, *, environ: Mapping[str, str], modules: Path, tell: Callable[[str], None]
    ) -> None:
        self._tell = tell
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

    def fill(self, place: Path) -> None:
        """Build all five; nothing is there until everything is."""
        partial = Path(f"{place}.partial")
        # Of a build that was killed: the lock says that nobody else is at it.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            begun = time.monotonic()
            for number, name in enumerate(NAMES, start=1):
                self._build(name, f"{number} of {len(NAMES)}, {name}", partial)
            partial.rename(place)
            self._tell(f"built in {_minutes(time.monotonic() - begun)}")
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _build(self, name: str, title: str, folder: Path) -> None:
        """`title` is what the waiting person reads."""
        self._tell(f"{title} …")
        release = pinned_version(self._modules)
        major, minor, *_ = release.removeprefix("v").split(".")
        named = {"gitVersion": release, "gitMajor": major, "gitMinor": minor}
        flags = ["-s", "-w", *(f"-X {_VERSION}.{key}={value}" for key, value in named.items())]
        self._run(
            title,
            *("build", "-mod=readonly", "-trimpath", "-ldflags", " ".join(flags)),
            *("-o", str(folder / name), _PACKAGES.get(name, f"{_KUBERNETES}/{name}")),
            module=self._modules / "etcd" if name == "etcd" else self._modules,
        )

    def _run(self, title: str, *arguments: str, module: Path) -> None:
        """Go, with these arguments, in the folder of one of our modules."""
        begun = time.monotonic()
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
                        self._tell(f"{title}: {_minutes(time.monotonic() - begun)} …")
            finally:
                process.kill()
                process.wait()
            if process.returncode:
                output.seek(0)
                raise _failure(title, process.returncode, output.read())


def _failure(title: str, code: int, said: str) -> NotBuilt:
    reasons = [reason for sign, reason in _REASONS.items() if sign in said]
    last = "\n".join(f"  {line}" for line in said.splitlines()[-_LAST_LINES:])
    what_to_do = reasons[0] if reasons else _OTHERWISE
    return NotBuilt(f"{title} failed (exit code {code}): {what_to_do}. Go's last lines:\n{last}")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _tell(line: str) -> None:
    sys.stdout.write(f"make kube: {line}\n")
    sys.stdout.flush()


def main() -> int:
    """For `python -m`."""
    try:
        place = build(os.environ, report=_tell)
    except NotBuilt as error:
        sys.stderr.write(f"make kube: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("make kube: stopped; what is compiled already is kept\n")
        return 130
    _tell(f"the control plane is in {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
