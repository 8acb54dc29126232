"""One of NVIDIA's drivers: its packages, its modules for one kernel, its libraries and programs."""

import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from libs.testing import debian
from libs.testing.go_build import SIGN_OF_LIFE, NotBuilt
from libs.testing.guest.actions import DRIVER_MODULES
from libs.testing.guest.build import KernelPackages
from libs.testing.vendor.layout import LIBRARIES, PROGRAMS, Driver
from libs.testing.vendor.releases import FILE, Release

_COMPONENTS: Final = "contrib non-free"
_DEBIANS: Final = "nvidia/current"
"""Where Debian has the files of a driver, below the folders of all others."""
_LEFT_OUT: Final = "nvidia-drm nvidia-peermem"
"""Modules that compute nodes do without: displays, and network cards that read GPUs' memory."""
_LAST_LINES: Final = 12


def fetch(release: Release, work: Path, report: Callable[[str], None]) -> Path:
    """Return the folder of the unpacked packages of a release, below this one."""
    report(f"NVIDIA's {release.version}, Debian packages {', '.join(release.packages)} …")
    unpacked = work / "unpacked"
    unpacked.mkdir(parents=True)
    options = debian.own_state(work / "apt", components=_COMPONENTS, suite=release.suite)
    debian.unpack(release.packages, unpacked, options=options)
    return unpacked


def add_driver(
    release: Release,
    driver: Driver,
    unpacked: Path,
    kernel: KernelPackages,
    report: Callable[[str], None],
) -> None:
    """Fill the folder of a driver from the unpacked packages of its release."""
    _compile(release, _sources(release, unpacked), driver.modules, kernel, report)
    _add_root(unpacked, driver.root, release.version)


def _sources(release: Release, unpacked: Path) -> Path:
    """Unpack the sources of the modules, and repair them for this kernel."""
    (archive,) = (unpacked / "usr/src").glob("*.tar.*")
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked / "sources", filter="data")
    folder = next(path.parent for path in (unpacked / "sources").rglob("Kbuild"))
    for repair in release.repair:
        file = folder / repair.file
        before = file.read_text()
        if repair.old not in before:
            raise NotBuilt(
                f"{FILE.name} repairs {repair.file} of {release.version}, which has no longer "
                f"{repair.old!r}: remove that repair, or write it anew"
            )
        file.write_text(before.replace(repair.old, repair.new))
    return folder


def _compile(
    release: Release,
    sources: Path,
    target: Path,
    kernel: KernelPackages,
    report: Callable[[str], None],
) -> None:
    make = shutil.which("make") or "make"
    command = [
        *(make, f"-j{os.cpu_count() or 1}", f"SYSSRC={kernel.common_headers}"),
        *(f"SYSOUT={kernel.headers}", f"NV_EXCLUDE_KERNEL_MODULES={_LEFT_OUT}"),
        # The compiler need not be of the version that compiled the kernel.
        *("IGNORE_CC_MISMATCH=1", "CC=gcc", "LD=ld"),
        # What a debugger needs would take a third of the time, and be dropped.
        *("KCFLAGS=-g0", "modules"),
    ]
    what = f"the modules of {release.version} for the kernel {kernel.name}"
    _run(command, folder=sources, what=what, report=report)
    target.mkdir(parents=True)
    strip = shutil.which("strip") or "strip"
    for name in DRIVER_MODULES:
        file = target / f"{name}.ko"
        (sources / f"{name.replace('_', '-')}.ko").rename(file)
        subprocess.run([strip, "--strip-debug", str(file)], check=True)


def _run(command: Sequence[str], *, folder: Path, what: str, report: Callable[[str], None]) -> None:
    """Compile, with a sign of life meanwhile: it takes minutes."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                try:
                    process.wait(SIGN_OF_LIFE)
                except subprocess.TimeoutExpired:
                    report(f"{what}: {time.monotonic() - started:.0f} s …")
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            output.seek(0)
            raise NotBuilt(
                f"{what} do not compile (exit code {process.returncode}): add a repair to "
                f"{FILE.name} for what these lines name.\n{complaints(output.read())}"
            )


def complaints(said: str) -> str:
    """Return the compiler's errors, or the last lines if it has none: others compile meanwhile."""
    lines = said.splitlines()
    errors = [line for line in lines if "error:" in line] or lines
    return "\n".join(f"  {line}" for line in errors[-_LAST_LINES:])


def _add_root(unpacked: Path, target: Path, version: str) -> None:
    """Add libraries and programs where NVIDIA's own installer puts them, not where Debian does."""
    libraries = target / LIBRARIES
    libraries.mkdir(parents=True)
    for file in (unpacked / LIBRARIES / _DEBIANS).glob(f"*.so.{version}"):
        file.rename(libraries / file.name)
        short = libraries / file.name.replace(f".so.{version}", ".so.1")
        short.symlink_to(file.name)
    (target / PROGRAMS).mkdir()
    (unpacked / "usr/lib" / _DEBIANS / "nvidia-smi").rename(target / PROGRAMS / "nvidia-smi")
