"""Where the files of one of NVIDIA's drivers are in the cache."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from libs.testing.guest.actions import DRIVER_MODULES
from libs.testing.guest.initramfs import in_order

LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"
PROGRAMS: Final = "usr/bin"


@dataclass(frozen=True, slots=True)
class Driver:
    version: str
    folder: Path

    @property
    def modules(self) -> Path:
        """The folder with its modules."""
        return self.folder / "modules"

    @property
    def kernel(self) -> Path:
        """The folder with the modules of the kernel that they may need."""
        return self.folder.parent / "kernel"

    def files(self, *modules: str) -> tuple[str, ...]:
        """Return the files of modules, those of the kernel that they need among them, in order.

        It is for this machine: in a guest, to look through a large module takes seconds.
        """
        return _files(self, modules or DRIVER_MODULES)

    @property
    def root(self) -> Path:
        """The root of its libraries and programs, laid out as in a driver container."""
        return self.folder / "root"

    @property
    def library(self) -> Path:
        return self.root / LIBRARIES / "libnvidia-ml.so.1"


@cache
def _files(driver: Driver, modules: tuple[str, ...]) -> tuple[str, ...]:
    own = [driver.modules / f"{name}.ko" for name in modules]
    paths = {path.stem: path for path in (*driver.kernel.glob("*.ko"), *own)}
    order = in_order(modules, {name: path.read_bytes() for name, path in paths.items()})
    return tuple(str(paths[name]) for name in order)
