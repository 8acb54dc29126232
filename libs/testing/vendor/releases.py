"""Which of NVIDIA's drivers tests use, from `tools/vendor/releases.toml`."""

import hashlib
import tomllib
from typing import Final

import msgspec

from libs.testing.go_build import TOOLS

FILE: Final = TOOLS / "vendor" / "releases.toml"
LIBRARIES: Final = ("libnvidia-ml1", "libcuda1", "nvidia-smi")
"""Debian's packages with what a process needs to ask the driver."""


class Repair(msgspec.Struct, frozen=True):
    """What a newer kernel demands of sources that do not know it."""

    file: str
    old: str
    new: str
    why: str


class Release(msgspec.Struct, frozen=True, rename="kebab"):
    version: str
    revision: str
    """Debian's, which the version of its packages ends with."""
    kernel_source: str
    """The package with the sources of the modules."""
    suite: str = ""
    """Where it is; empty: in those of this machine."""
    repair: tuple[Repair, ...] = ()

    @property
    def name(self) -> str:
        """Its folder in the cache: another one when its table is another."""
        table = msgspec.json.encode((self, LIBRARIES))
        return f"{self.version}-{hashlib.sha256(table).hexdigest()[:12]}"

    @property
    def packages(self) -> tuple[str, ...]:
        names = (self.kernel_source, *LIBRARIES)
        return tuple(f"{name}={self.version}-{self.revision}" for name in names)


def releases() -> tuple[Release, ...]:
    """Return them in the order of the file: an upgrade goes from the first to the second."""
    return msgspec.convert(tomllib.loads(FILE.read_text())["release"], tuple[Release, ...])
