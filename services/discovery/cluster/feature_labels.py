"""Labels of NFD and GFD from facts. Pure.

Each function returns a family of labels completely, with None for a label to remove. A family
without any fact is left out, so that its labels stay (docs/invariants.md#i6).
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from libs.contracts.facts import Facts, Gpu, Kernel, LoadedDriver, OperatingSystem

FEATURES: Final = "feature.node.kubernetes.io/"
"""Prefix of node feature discovery's labels."""

PCI: Final = f"{FEATURES}pci-10de.present"
"""Set on nodes that have an NVIDIA device."""
FOREIGN_PCI: Final = (PCI, f"{FEATURES}pci-0302_10de.present", f"{FEATURES}pci-0300_10de.present")
"""The keys that another feature discovery may set for an NVIDIA device."""

MIG_CAPABLE: Final = "nvidia.com/mig.capable"
PRODUCT: Final = "nvidia.com/gpu.product"

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
"""Every label that describes the GPUs of a node."""

_DISPLAYS: Final = ("DGX Display", "NVIDIA DGX Display")
"""GPUs that are not for computing."""

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
    """Return the labels of the kernel and the operating system."""
    labels: Labels = {}
    if facts.kernel is not None:
        labels |= _kernel(facts.kernel)
    if facts.os is not None:
        labels |= _os(facts.os)
    return _valid(labels)


def gpu_labels(facts: Facts, driver: LoadedDriver | None) -> Labels:
    """Return the labels of the GPUs and of the loaded driver."""
    labels: Labels = {}
    gpus = [gpu for gpu in facts.gpus or () if gpu.name not in _DISPLAYS]
    if gpus:
        labels |= _model(gpus)
        labels[_MACHINE] = product(facts.machine or "") or "unknown"
    if driver is not None and driver.version:
        labels |= _versions(driver)
    return _valid(labels)


def product(name: str) -> str:
    """Return a product name as a label's value."""
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
    prefix = f"{FEATURES}system-os_release."
    return {
        f"{prefix}ID": system.id or None,
        f"{prefix}VERSION_ID": system.version_id or None,
        f"{prefix}VERSION_ID.major": major,
        f"{prefix}VERSION_ID.minor": minor,
        f"{prefix}OSTREE_VERSION": system.ostree_version or None,
    }


def _model(gpus: Sequence[Gpu]) -> Labels:
    """Describe the most frequent model; among equals, the first by name."""
    counts = Counter(gpu.name for gpu in gpus)
    name, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
    first = min((gpu for gpu in gpus if gpu.name == name), key=lambda gpu: gpu.index)
    major, minor = first.compute_capability
    return {
        **dict.fromkeys(_MODEL),
        PRODUCT: product(name),
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.memory": str(first.memory_mib) if first.memory_mib else None,
        "nvidia.com/gpu.family": _family(major, minor) if major else None,
        "nvidia.com/gpu.compute.major": str(major) if major else None,
        "nvidia.com/gpu.compute.minor": str(minor) if major else None,
        MIG_CAPABLE: "true" if any(gpu.mig_capable for gpu in gpus) else "false",
    }


def _family(major: int, minor: int) -> str:
    if major == 7:
        return "volta" if minor < 5 else "turing"
    if major == 8:
        return "ampere" if minor < 9 else "ada-lovelace"
    return _FAMILIES.get(major, "undefined")


def _versions(driver: LoadedDriver) -> Labels:
    """Return the versions under GFD's present keys and its deprecated ones."""
    labels: Labels = {}
    if parts := _DRIVER.fullmatch(driver.version):
        major, minor, revision = parts.groups("")
        labels |= {
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
        labels |= {
            "nvidia.com/cuda.runtime.major": major,
            "nvidia.com/cuda.runtime.minor": minor,
            "nvidia.com/cuda.runtime-version.major": major,
            "nvidia.com/cuda.runtime-version.minor": minor,
            "nvidia.com/cuda.runtime-version.full": driver.cuda,
        }
    return labels


def _valid(labels: Labels) -> Labels:
    """Replace values that the API server would refuse with None."""
    return {
        key: value if value is not None and _VALUE.fullmatch(value) else None
        for key, value in labels.items()
    }
