"""The folders of a root file system in which a driver's files can be, whoever installed it."""

from typing import Final

_USUAL: Final = tuple(
    f"{above}{folder}"
    for above in ("/usr", "")
    for folder in (
        "/lib64",
        "/lib/x86_64-linux-gnu",
        "/lib/x86_64-linux-gnu/nvidia/current",
        "/lib/aarch64-linux-gnu",
        "/lib/aarch64-linux-gnu/nvidia/current",
    )
)
_GKE: Final = "/home/kubernetes/bin/nvidia"
"""On nodes of GKE with Google's Container-Optimized OS."""
_FLATCAR: Final = ("/opt/nvidia", "/opt/nvidia/current")
"""On Flatcar, and where its layout was taken over."""
_TALOS: Final = "/usr/local"
"""On Talos, whose own C library is another one."""

LIBRARIES: Final = (
    *_USUAL,
    f"{_GKE}/lib64",
    *(f"{above}/{folder}" for above in _FLATCAR for folder in ("lib64", "lib", "usr/lib64")),
    f"{_TALOS}/glibc/usr/lib",
    f"{_TALOS}/glibc/lib",
)
"""Those of 64 bits, the usual ones first."""

PROGRAMS: Final = (
    *("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/lib/wsl/lib", "/opt/bin"),
    f"{_GKE}/bin",
    *(f"{above}/{folder}" for above in _FLATCAR for folder in ("bin", "usr/bin")),
    f"{_TALOS}/bin",
)
