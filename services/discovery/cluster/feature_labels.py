"""What facts say of a machine, as the labels that people know of NFD and GFD. Pure.

Each function knows a family of labels whole: None for one that the facts do not give, so that it
can go. A family of which no fact is there is not mentioned at all (docs/invariants.md#i6).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from libs.contracts.facts import Facts, Gpu, Kernel, LoadedDriver, OperatingSystem
from services.discovery.cluster.label_keys import FEATURES, MIG_CAPABLE, PRODUCT

Labels = dict[str, str | None]

_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_NOT_IN_KERNEL: Final = re.compile(r"[^-A-Za-z0-9_.]", re.ASCII)
_NOT_IN_PRODUCT: Final = re.compile(r"[^-A-Za-z0-9_. ]", re.ASCII)
_NUMBERS: Final = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-.*)?", re.ASCII)
_RELEASE: Final = re.compile(r"(\d+)(?:\.(\d+))?(?:\..*)?", re.ASCII)
_DRIVER: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?", re.ASCII)
_CUDA: Final = re.compile(r"(\d+)\.(\d+)", re.ASCII)

_MODEL: Final = tuple(
    f"nvidia.com/gpu.{name}"
    for name in ("product", "count", "memory", "family", "compute.major", "compute.minor")
)
_VERSIONS: Final = tuple(
    f"nvidia.com/cuda.{name}"
    for name in (
        "driver.major",
        "driver.minor",
        "driver.rev",
        "driver-version.major",
        "driver-version.minor",
        "driver-version.revision",
        "driver-version.full",
        "runtime.major",
        "runtime.minor",
        "runtime-version.major",
        "runtime-version.minor",
        "runtime-version.full",
    )
)
_MACHINE: Final = "nvidia.com/gpu.machine"
GPU_LABELS: Final = (*_MODEL, *_VERSIONS, _MACHINE, MIG_CAPABLE)
"""Every label that says what the GPUs of a node are."""

_DISPLAYS: Final = ("DGX Display", "NVIDIA DGX Display")
"""GPUs on which nobody computes."""

_FAMILIES: Final[Mapping[int, str]] = {
    1: "tesla",
    2: "fermi",
    3: "kepler",
    5: "maxwell",
    6: "pascal",
    9: "hopper",
    10: "blackwell",
    12: "blackwell",
    13: "rubin",
}


def system_labels(facts: Facts) -> Labels:
    """Kernel and operating system, as far as they are known."""
    found: Labels = {}
    if facts.kernel is not None:
        found |= _kernel(facts.kernel)
    if facts.os is not None:
        found |= _os(facts.os)
    return _valid(found)


def gpu_labels(facts: Facts, driver: LoadedDriver | None) -> Labels:
    """What the GPUs are, as far as they were asked; `driver` is what the kernel has now."""
    found: Labels = {}
    gpus = [gpu for gpu in facts.gpus or () if gpu.name not in _DISPLAYS]
    if gpus:
        found |= _model(gpus)
        found[_MACHINE] = product(facts.machine or "") or "unknown"
    if driver is not None and driver.version:
        found |= _versions(driver)
    return _valid(found)


def product(name: str) -> str:
    """A name as it can stand in a label."""
    return "-".join(_NOT_IN_PRODUCT.sub("", name).split())


def _kernel(kernel: Kernel) -> Labels:
    full = _NOT_IN_KERNEL.sub("_", kernel.release).strip("-_.")
    parts = _NUMBERS.fullmatch(full)
    major, minor, revision = parts.groups("") if parts else (None, None, None)
    return {
        f"{FEATURES}kernel-version.full": full,
        f"{FEATURES}kernel-version.major": major,
        f"{FEATURES}kernel-version.minor": minor,
        f"{FEATURES}kernel-version.revision": revision,
    }


def _os(system: OperatingSystem) -> Labels:
    parts = _RELEASE.fullmatch(system.version_id)
    major, minor = parts.groups() if parts else (None, None)
    named = f"{FEATURES}system-os_release."
    return {
        f"{named}ID": system.id or None,
        f"{named}VERSION_ID": system.version_id or None,
        f"{named}VERSION_ID.major": major,
        f"{named}VERSION_ID.minor": minor,
        f"{named}OSTREE_VERSION": system.ostree_version or None,
    }


def _model(gpus: Iterable[Gpu]) -> Labels:
    """Of the model of which a node has most; of two, the first by name."""
    every = list(gpus)
    counts = Counter(gpu.name for gpu in every)
    name, count = min(counts.items(), key=lambda one: (-one[1], one[0]))
    first = min((gpu for gpu in every if gpu.name == name), key=lambda gpu: gpu.index)
    major, minor = first.compute_capability
    return {
        **dict.fromkeys(_MODEL),
        PRODUCT: product(name),
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.memory": str(first.memory_mib) if first.memory_mib else None,
        "nvidia.com/gpu.family": _family(major, minor) if major else None,
        "nvidia.com/gpu.compute.major": str(major) if major else None,
        "nvidia.com/gpu.compute.minor": str(minor) if major else None,
        MIG_CAPABLE: "true" if any(gpu.mig_capable for gpu in every) else "false",
    }


def _family(major: int, minor: int) -> str:
    if major == 7:
        return "volta" if minor < 5 else "turing"
    if major == 8:
        return "ampere" if minor < 9 else "ada-lovelace"
    return _FAMILIES.get(major, "undefined")


def _versions(driver: LoadedDriver) -> Labels:
    """Under the names that are used now, and those that people still select by."""
    found: Labels = {}
    if parts := _DRIVER.fullmatch(driver.version):
        major, minor, revision = parts.groups("")
        found |= {
            "nvidia.com/cuda.driver.major": major,
            "nvidia.com/cuda.driver.minor": minor,
            "nvidia.com/cuda.driver.rev": revision,
            "nvidia.com/cuda.driver-version.major": major,
            "nvidia.com/cuda.driver-version.minor": minor,
            "nvidia.com/cuda.driver-version.revision": revision,
            "nvidia.com/cuda.driver-version.full": driver.version,
        }
    if parts := _CUDA.fullmatch(driver.cuda):
        major, minor = parts.groups()
        found |= {
            "nvidia.com/cuda.runtime.major": major,
            "nvidia.com/cuda.runtime.minor": minor,
            "nvidia.com/cuda.runtime-version.major": major,
            "nvidia.com/cuda.runtime-version.minor": minor,
            "nvidia.com/cuda.runtime-version.full": driver.cuda,
        }
    return found


def _valid(labels: Labels) -> Labels:
    """What the API server would refuse is not there."""
    return {
        key: value if value is not None and _VALUE.fullmatch(value) else None
        for key, value in labels.items()
    }
