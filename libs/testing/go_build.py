"""Build programs of pinned Go modules, once, into a cache outside the checkout.

A partial build is renamed when complete. Of several concurrent builds one runs and the others wait.
"""

import errno
import fcntl
import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from libs.testing.cache import cache_root
from libs.testing.errors import ServerFailed, SimError

SIGN_OF_LIFE = 15.0
"""Seconds between two lines of progress."""

TOOLS = Path(__file__).parents[2] / "tools"
"""The folder of the Go modules that pin versions."""

_LAST_LINES = 12
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

_REASONS = {
    "no space left on device": "free some disk: a first build needs about 4 GB, most of it in "
    "Go's cache (`go env GOCACHE`)",
    "signal: killed": "the machine ran out of memory: a build needs about 3 GB",
    "dial tcp": "Go could not fetch modules: check the network, or GOPROXY",
    "proxyconnect": "Go could not fetch modules: check the network, or GOPROXY",
    "requires go >=": "install that version of Go, or unset GOTOOLCHAIN and let Go fetch it",
}


class NotBuilt(SimError):
    """A failed build; the message names the failure and what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program of a Go module."""

    name: str
    """Its file, below the folder of the build."""
    package: str
    module: str = ""
    """The folder of its module, below that of the build's modules."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Values that the linker sets, by package and name."""
    tags: str = ""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    static: bool = False
    """Written partly in C, and linked statically."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """Programs that are built together into one folder."""

    command: str
    """What people run, `make kube`."""
    without_go: str
    """What to say where there is no Go."""
    folder: Path
    modules: Path
    programs: Sequence[Program]
    finish: Callable[[Path], None] | None = None
    """Adds what is not written in Go to the folder."""

    def run(self, environ: Mapping[str, str], *, report: Callable[[str], None]) -> Path:
        """Return the folder, building it if needed; `report` gets lines of progress."""
        if self.folder.is_dir():
            return self.folder
        go = _Go(self, environ, report)
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            with self._exclusive(report):
                if not self.folder.is_dir():
                    self._fill(go, report)
        except OSError as error:
            full = error.errno == errno.ENOSPC
            raise NotBuilt(
                f"{self.folder} could not be filled: {error}; "
                + (_REASONS["no space left on device"] if full else "set XDG_CACHE_HOME elsewhere")
            ) from error
        return self.folder

    @contextmanager
    def _exclusive(self, report: Callable[[str], None]) -> Generator[None]:
        with Path(f"{self.folder}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report(f"another `{self.command}` is building; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _fill(self, go: "_Go", report: Callable[[str], None]) -> None:
        """Build everything into a temporary folder, then rename it."""
        partial = Path(f"{self.folder}.partial")
        # Left by a killed build: the lock excludes a concurrent one.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            started = time.monotonic()
            for number, program in enumerate(self.programs, start=1):
                title = f"{number} of {len(self.programs)}, {program.name}"
                report(f"{title} …")
                go.build(program, title, partial)
            if self.finish:
                self.finish(partial)
            partial.rename(self.folder)
            report(f"built in {_minutes(time.monotonic() - started)}")
        finally:
            shutil.rmtree(partial, ignore_errors=True)


class _Go:
    def __init__(
        self, build: Build, environ: Mapping[str, str], report: Callable[[str], None]
    ) -> None:
        self._build = build
        self._report = report
        system, architecture = go_target()
        self._environ = {**environ, "GOOS": system, "GOARCH": architecture, "GOWORK": "off"}
        go = shutil.which("go", path=environ.get("PATH", ""))
        if go is None:
            raise NotBuilt(build.without_go)
        self._go = go

    def build(self, program: Program, title: str, folder: Path) -> None:
        """Build one program into this folder."""
        flags = ["-s", "-w", *(f"-X {key}={value}" for key, value in program.variables.items())]
        if program.static:
            flags.append("-extldflags=-static")
        self._run(
            title,
            *("build", "-mod=readonly", "-trimpath"),
            *(("-tags", program.tags) if program.tags else ()),
            *("-ldflags", " ".join(flags), "-o", str(folder / program.name), program.package),
            module=self._build.modules / program.module,
            environ={"CGO_ENABLED": "1" if program.static else "0", **program.environ},
        )

    def _run(self, title: str, *arguments: str, module: Path, environ: Mapping[str, str]) -> None:
        started = time.monotonic()
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                [self._go, *arguments],
                cwd=module,
                env={**self._environ, **environ},
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
                raise self._failure(title, process.returncode, output.read())

    def _failure(self, title: str, code: int, output: str) -> NotBuilt:
        reasons = [reason for sign, reason in _REASONS.items() if sign in output]
        last = "\n".join(f"  {line}" for line in output.splitlines()[-_LAST_LINES:])
        what_to_do = (
            reasons[0]
            if reasons
            else f"fix the error below and run `{self._build.command}` again; compiled packages "
            "are kept"
        )
        return NotBuilt(
            f"{title} failed (exit code {code}): {what_to_do}. Go's last lines:\n{last}"
        )


def cache_folder(
    environ: Mapping[str, str], kind: str, version: str, pins: Sequence[Path], *also: str
) -> Path:
    """Return the folder of a build, named by its version, what it is built from, and platform."""
    digest = hashlib.sha256()
    for part in (*(pin.read_bytes() for pin in pins), *(text.encode() for text in also)):
        digest.update(part + b"\0")
    system, architecture = go_target()
    name = f"{version}-{digest.hexdigest()[:12]}-{system}-{architecture}"
    return cache_root(environ) / kind / name


def pinned_version(go_mod: Path, module: str) -> str:
    """Return the version of a module that this file requires."""
    pattern = rf"^(?:require )?\s*{re.escape(module)} (v\S+)"
    pinned = re.search(pattern, go_mod.read_text(), re.MULTILINE)
    if pinned is None:
        raise ServerFailed(f"{go_mod} does not require {module}: restore the file")
    return pinned[1]


def go_target() -> tuple[str, str]:
    """Return this machine's system and architecture, as Go names them."""
    machine = platform.machine()
    return sys.platform, _ARCHITECTURES.get(machine, machine)


def run_command(build: Callable[[Callable[[str], None]], Path], *, command: str, what: str) -> int:
    """Build as a command of the Makefile; return the exit status."""

    def report(line: str) -> None:
        sys.stdout.write(f"{command}: {line}\n")
        sys.stdout.flush()

    try:
        folder = build(report)
    except NotBuilt as error:
        sys.stderr.write(f"{command}: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"{command}: stopped; compiled packages are kept\n")
        return 130
    report(f"{what} in {folder}")
    return 0


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
