"""`make vendor`: NVIDIA's own modules and libraries, once, into a cache outside the checkout.

They are Debian's packages of the sections contrib and non-free, by the sources of packages that
this machine has, unpacked and never installed. NVIDIA's licence is that of these sections: nothing
of it is committed, and nothing of it is in an image.
"""

import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.testing import go_build
from libs.testing.go_build import run_command
from libs.testing.guest import build as guest_build
from libs.testing.guest.build import EMULATOR, KernelPackages
from libs.testing.guest.guest import find_guest
from libs.testing.guest.initramfs import KERNEL_MODULES
from libs.testing.vendor.compiling import add_driver, fetch
from libs.testing.vendor.layout import Driver
from libs.testing.vendor.releases import Release, releases

COMMAND: Final = "make vendor"
_RECIPE: Final = "2"
"""Raise it when the same sources give another folder."""
_NEEDED: Final = ("drm", "video", "wmi", "backlight")
"""Modules of the kernel that NVIDIA's depend on."""
_KERNEL_NAME: Final = "kernel-name"


@dataclass(frozen=True, kw_only=True, slots=True)
class VendorSearch:
    """Whether NVIDIA's own driver is at hand for tests in a guest."""

    folder: Path | None
    explanation: str
    """One line: what runs, or what is missing and what to do."""


def find_vendor(environ: Mapping[str, str]) -> VendorSearch:
    """Look for what `make vendor` has built."""
    guest = find_guest(environ)
    if guest.folder is None:
        return VendorSearch(folder=None, explanation=guest.explanation)
    folder = cache_folder(environ)
    if missing := _missing(folder):
        versions = " and ".join(release.version for release in missing)
        explanation = f"no driver of NVIDIA's: it needs modules and libraries of {versions}"
        return VendorSearch(folder=None, explanation=f"{explanation} (`{COMMAND}`)")
    versions = " and ".join(release.version for release in releases())
    return VendorSearch(folder=folder, explanation=f"NVIDIA's {versions} in a guest, from {folder}")


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of `make vendor`, named by the guest that runs the drivers."""
    guest = guest_build.cache_folder(environ).name
    return go_build.cache_folder(environ, "vendor", "nvidia", [], _RECIPE, guest)


def build(environ: Mapping[str, str], *, report: Callable[[str], None]) -> Path:
    """Return the folder, adding the releases that it lacks.

    Each is there as soon as it is compiled: one that does not compile costs the others nothing.
    """
    folder = cache_folder(environ)
    if not _missing(folder):
        return folder
    emulator = guest_build.build(environ, report=report) / EMULATOR
    started, cpu = time.monotonic(), _cpu_seconds()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as temporary:
        kernel = KernelPackages.unpack(Path(temporary) / "kernel", report)
        _add_machine(folder, kernel, emulator)
        # All are fetched first: what the network or apt refuses is told in seconds, not in minutes.
        unpacked = {
            release: fetch(release, Path(temporary) / f"{release.version}.packages", report)
            for release in _missing(folder)
        }
        for release, packages in unpacked.items():
            filled = Driver(release.version, Path(temporary) / release.version)
            add_driver(release, filled, packages, kernel, report)
            _complete(filled.folder, folder / release.name)
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    size = sum(file.stat().st_size for file in files) >> 20
    spent = f"{_cpu_seconds() - cpu:.0f} CPU seconds, {time.monotonic() - started:.0f} s"
    report(f"{size} MiB, built in {spent}")
    return folder


def drivers(folder: Path) -> tuple[Driver, ...]:
    """Return what `make vendor` has built, in the order of the file of releases."""
    return tuple(Driver(release.version, folder / release.name) for release in releases())


def _missing(folder: Path) -> list[Release]:
    return [release for release in releases() if not (folder / release.name).is_dir()]


def _add_machine(folder: Path, kernel: KernelPackages, emulator: Path) -> None:
    """Add what the guest boots; drivers that were compiled for another kernel go."""
    if folder.is_dir() and (folder / _KERNEL_NAME).read_text() == kernel.name:
        return
    shutil.rmtree(folder, ignore_errors=True)
    filled = kernel.folder.parent / "machine"
    filled.mkdir()
    kernel.add_to(filled, (*KERNEL_MODULES, *_NEEDED))
    (filled / EMULATOR).symlink_to(emulator)
    (filled / _KERNEL_NAME).write_text(kernel.name)
    _complete(filled, folder)


def _complete(filled: Path, folder: Path) -> None:
    """Name a folder that is complete."""
    try:
        filled.rename(folder)
    except OSError:  # another build was faster
        if not folder.is_dir():
            raise


def _cpu_seconds() -> float:
    """Return what the programs took that were run."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Build, as `make vendor`."""
    return run_command(
        lambda report: build(os.environ, report=report),
        command=COMMAND,
        what="NVIDIA's modules and libraries are",
    )


if __name__ == "__main__":
    sys.exit(main())
