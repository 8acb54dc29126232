"""`make guest`: a kernel, its modules, ours, and QEMU, once, into a cache outside the checkout."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from libs.testing import debian, go_build
from libs.testing.go_build import TOOLS, NotBuilt, run_command
from libs.testing.guest.actions import DRIVER_MODULES
from libs.testing.guest.initramfs import KERNEL_MODULES, in_order

COMMAND: Final = "make guest"
SOURCES: Final = TOOLS / "guest"
"""Our kernel modules, in C."""

BUSYBOX: Final = "busybox"
KERNEL: Final = "vmlinuz"
EMULATOR: Final = "qemu"
"""The folder of QEMU and its libraries."""

_RECIPE: Final = "1"
"""Raise it when the same sources give another folder."""
_META: Final = ("linux-image-amd64", "linux-headers-amd64")
_EMULATOR: Final = "qemu-system-x86"
_KERNEL_PREFIXES: Final = ("linux-image-", "linux-headers-", "linux-kbuild-")
_KEPT: Final = ("lib", "lib64", "usr/lib/x86_64-linux-gnu", "usr/bin", "usr/share/qemu")
_FIRMWARE: Final = "usr/share/seabios"
_LAST_LINES: Final = 12


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of `make guest`, named by our modules' sources."""
    return go_build.cache_folder(environ, "guest", "debian", sorted(SOURCES.iterdir()), _RECIPE)


def build(environ: Mapping[str, str], *, report: Callable[[str], None]) -> Path:
    """Return the folder, filling it if needed."""
    folder = cache_folder(environ)
    if folder.is_dir():
        return folder
    _require_tools(environ)
    started = time.monotonic()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as temporary:
        filled, packages = Path(temporary) / "filled", Path(temporary) / "packages"
        for each in (filled, packages):
            each.mkdir()
        _add_emulator(filled, packages / "emulator", report)
        _add_kernel(filled, packages / "kernel", report)
        try:
            filled.rename(folder)
        except OSError:  # another build was faster
            if not folder.is_dir():
                raise
    report(f"built in {time.monotonic() - started:.0f} s")
    return folder


def _require_tools(environ: Mapping[str, str]) -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise NotBuilt("the guest runs the files of this machine, which must be Linux on x86_64")
    for tool in ("make", "gcc"):
        if shutil.which(tool, path=environ.get("PATH", "")) is None:
            raise NotBuilt(f"kernel modules are built with make and gcc; install {tool}")


def _add_emulator(folder: Path, unpacked: Path, report: Callable[[str], None]) -> None:
    """Add QEMU with all libraries that it needs, down to the C library."""
    names = debian.with_dependencies(_EMULATOR)
    report(f"QEMU, {len(names)} Debian packages …")
    unpacked.mkdir()
    debian.unpack(names, unpacked)
    for kept in (*_KEPT, _FIRMWARE):
        target = folder / EMULATOR / kept
        target.parent.mkdir(parents=True, exist_ok=True)
        (unpacked / kept).rename(target)


def _add_kernel(folder: Path, unpacked: Path, report: Callable[[str], None]) -> None:
    """Add the kernel, its modules that the guest needs, and ours."""
    kernel = KernelPackages.unpack(unpacked, report)
    kernel.add_to(folder, KERNEL_MODULES)
    report(f"our modules {', '.join(DRIVER_MODULES)} …")
    _compile_modules(folder / "driver", kernel)


@dataclass(frozen=True, slots=True)
class KernelPackages:
    """Debian's kernel, with headers that compile modules where they lie."""

    folder: Path

    @classmethod
    def unpack(cls, folder: Path, report: Callable[[str], None]) -> Self:
        names = _kernel_names()
        report(f"the kernel, Debian packages {', '.join(names)} …")
        folder.mkdir()
        debian.unpack((*names, "busybox-static"), folder)
        kernel = cls(folder)
        makefile = kernel.headers / "Makefile"
        # The headers name each other by absolute paths.
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{folder / 'usr/src'}/"))
        return kernel

    @property
    def name(self) -> str:
        """As `uname -r` has it."""
        return self.headers.name.removeprefix("linux-headers-")

    @property
    def headers(self) -> Path:
        return next((self.folder / "usr/src").glob("linux-headers-*-amd64"))

    @property
    def common_headers(self) -> Path:
        return next((self.folder / "usr/src").glob("linux-headers-*-common"))

    def add_to(self, folder: Path, modules: Iterable[str]) -> None:
        """Add what boots, and these modules with all that they depend on."""
        (self.folder / "bin/busybox").rename(folder / BUSYBOX)
        next((self.folder / "boot").glob("vmlinuz-*")).rename(folder / KERNEL)
        found = (self.folder / "lib/modules").rglob("*.ko")
        contents = {path.stem.replace("-", "_"): path.read_bytes() for path in found}
        target = folder / "kernel"
        target.mkdir()
        for name in in_order(modules, contents):
            (target / f"{name}.ko").write_bytes(contents[name])


def _kernel_names() -> list[str]:
    return [
        name
        for name in debian.with_dependencies(*_META)
        if name.startswith(_KERNEL_PREFIXES) and name not in _META
    ]


def _compile_modules(folder: Path, kernel: KernelPackages) -> None:
    work = kernel.folder / "modules"
    shutil.copytree(SOURCES, work)
    make = shutil.which("make") or "make"
    # The compiler need not be of the version that compiled the kernel.
    done = subprocess.run(
        [make, "-C", str(kernel.headers), f"M={work}", "CC=gcc", "modules"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join(f"  {line}" for line in done.stdout.splitlines()[-_LAST_LINES:])
        raise NotBuilt(
            f"our modules do not compile (exit code {done.returncode}); fix what the last lines "
            f"name and run `{COMMAND}` again:\n{last}"
        )
    folder.mkdir()
    for name in DRIVER_MODULES:
        (work / f"{name}.ko").rename(folder / f"{name}.ko")


def main() -> int:
    """Build, as `make guest`."""
    return run_command(
        lambda report: build(os.environ, report=report),
        command=COMMAND,
        what="a guest's kernel, its modules and QEMU are",
    )


if __name__ == "__main__":
    sys.exit(main())
