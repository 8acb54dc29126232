"""Labels of GPU feature discovery from facts: GPUs, MIG devices, and the loaded driver. Pure.

Each family of labels is returned completely, with None for a label to remove. A family without any
fact is left out, so that its labels stay (docs/invariants.md#i6).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from libs.contracts.facts import Facts, Gpu, LoadedDriver, PciDevice, Vgpu
from libs.policy.kinds.mig import MigStrategy
from services.discovery.cluster import mig_labels
from services.discovery.cluster.label_values import REFUSED, Labels, number, product
from services.discovery.cluster.mig_labels import ATTRIBUTES, GPU_RESOURCE, MOST_MEMORY
from services.discovery.cluster.reported_gpus import MAX_GPUS
from services.discovery.cluster.sharing import UNSHARED, Sharing, SharingStrategy

MIG_CAPABLE: Final = "nvidia.com/mig.capable"
PRODUCT: Final = f"{GPU_RESOURCE}.product"
_MACHINE: Final = f"{GPU_RESOURCE}.machine"
_MODE: Final = f"{GPU_RESOURCE}.mode"
_COUNT: Final = f"{GPU_RESOURCE}.count"

_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
_MPS_CAPABLE: Final = "nvidia.com/mps.capable"
_BASE: Final = ("product", "count", "replicas", "sharing-strategy", "memory")
_ARCHITECTURE: Final = ("family", "compute.major", "compute.minor")
_OF_NODE: Final = ("machine", "mode", "clique")
_GPUS: Final = (
    *(f"{GPU_RESOURCE}.{name}" for name in (*_BASE, *_ARCHITECTURE, *_OF_NODE, *ATTRIBUTES)),
    MIG_CAPABLE,
    _MIG_STRATEGY,
    _MPS_CAPABLE,
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
VGPU_HOST: Final = "nvidia.com/vgpu.host-driver-version"
_VGPU: Final = ("nvidia.com/vgpu.present", VGPU_HOST, "nvidia.com/vgpu.host-driver-branch")
TIMESTAMP: Final = "nvidia.com/gfd.timestamp"
"""When the labels of GFD were last changed, in Unix seconds."""
GPU_LABELS: Final = (*_GPUS, *_VERSIONS, *_VGPU, TIMESTAMP)
"""Every label that describes the GPUs of a node, without those of MIG profiles."""

_KEYS: Final = frozenset(GPU_LABELS)

_OF_PROFILE: Final = re.compile(
    r"nvidia\.com/mig-[0-9].*\.(?:" + "|".join(map(re.escape, (*_BASE, *ATTRIBUTES))) + ")",
    re.ASCII,
)
_DRIVER: Final = re.compile(r"(\d{1,5})\.(\d{1,5})(?:\.(\d{1,5}))?", re.ASCII)
_CUDA: Final = re.compile(r"(\d{1,5})\.(\d{1,5})", re.ASCII)
_CLIQUE: Final = re.compile(r"[0-9A-Fa-f-]{36}\.[0-9]{1,10}", re.ASCII)

_DISPLAYS: Final = ("DGX Display", "NVIDIA DGX Display")
"""GPUs that are not for computing."""
_MAX_MIGS: Final = 16
"""MIG devices of a GPU."""
_HIGHEST_CAPABILITY: Final = 999
"""Of each number of a compute capability; a higher one cannot be true."""

_MODES: Final = {"0300": "graphics", "0302": "compute"}
"""By PCI class."""

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


def gpu_labels(
    facts: Facts,
    driver: LoadedDriver | None,
    *,
    strategy: MigStrategy = MigStrategy.NONE,
    sharing: Sharing = UNSHARED,
) -> Labels:
    """Return the labels of the GPUs and of the loaded driver, not checked yet."""
    labels: Labels = {}
    gpus = [gpu for gpu in facts.gpus or () if gpu.name and gpu.name not in _DISPLAYS]
    unnamed = sum(not gpu.name for gpu in facts.gpus or ())
    if len(gpus) > MAX_GPUS or any(len(gpu.migs) > _MAX_MIGS for gpu in gpus):
        labels[_COUNT] = REFUSED
    elif gpus:
        labels = (
            dict.fromkeys(_GPUS) | _model(gpus, unnamed, sharing) | _of_node(gpus, facts, sharing)
        )
        if strategy is not MigStrategy.NONE:
            labels[_MIG_STRATEGY] = strategy.value
        if strategy is MigStrategy.SINGLE:
            labels |= mig_labels.single(gpus, sharing)
        if strategy is MigStrategy.MIXED:
            labels |= mig_labels.mixed(gpus, sharing)
    if driver is not None and driver.version:
        labels |= _versions(driver)
    if facts.vgpu is not None:
        labels |= _virtual(facts.vgpu)
    # What was not read keeps its label.
    unread = {key for key, fact in ((_MACHINE, facts.machine), (_MODE, facts.pci)) if fact is None}
    return {key: value for key, value in labels.items() if key not in unread}


def of_profiles(keys: Iterable[str]) -> Labels:
    """Return the removal of the labels of MIG profiles among these keys."""
    return {key: None for key in keys if _OF_PROFILE.fullmatch(key)}


def is_label(key: str) -> bool:
    """Return whether a label is one of GFD's, or of a MIG profile."""
    return key in _KEYS or _OF_PROFILE.fullmatch(key) is not None


def describes_gpus(labels: Labels) -> bool:
    """Return whether these labels are those of known GPUs."""
    return PRODUCT in labels


def _model(gpus: Sequence[Gpu], unnamed: int, sharing: Sharing) -> Labels:
    """Describe the most frequent model; among equals, the first by name.

    A GPU that failed before it was ever described is `unnamed`: the driver lists it, and it is one
    more of the model that all others are. Where they are of several, it may be any of them.
    """
    counts = Counter(gpu.name for gpu in gpus)
    name, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
    count += unnamed if len(counts) == 1 else 0
    same = [gpu for gpu in gpus if gpu.name == name]
    whole = [gpu for gpu in same if not gpu.mig_mode]
    first = min(whole or same, key=lambda gpu: gpu.index)
    labels = mig_labels.base(GPU_RESOURCE, sharing if whole else UNSHARED, count, name)
    if not whole:
        labels[f"{GPU_RESOURCE}.replicas"] = "0"
    memory = first.memory_mib
    labels[f"{GPU_RESOURCE}.memory"] = number(memory, high=MOST_MEMORY) if memory else None
    major, minor = first.compute_capability
    if major:
        is_true = max(major, minor) <= _HIGHEST_CAPABILITY
        labels |= {
            f"{GPU_RESOURCE}.family": _family(major, minor) if is_true else REFUSED,
            f"{GPU_RESOURCE}.compute.major": number(major, high=_HIGHEST_CAPABILITY),
            f"{GPU_RESOURCE}.compute.minor": number(minor, high=_HIGHEST_CAPABILITY),
        }
    return labels


def _of_node(gpus: Sequence[Gpu], facts: Facts, sharing: Sharing) -> Labels:
    """Return the labels that all GPUs of the node decide together."""
    mps = sharing.strategy is SharingStrategy.MPS
    labels: Labels = {
        _MACHINE: product(facts.machine or "") or "unknown",
        _MODE: _mode(gpus, facts.pci or ()),
        f"{GPU_RESOURCE}.clique": _clique(gpus),
        MIG_CAPABLE: "true" if any(gpu.mig_capable for gpu in gpus) else "false",
        _MPS_CAPABLE: "true" if mps else "false",
    }
    if mps and any(gpu.mig_mode for gpu in gpus):
        labels[_MPS_CAPABLE] = None  # MPS cannot share MIG devices
    return labels


def _mode(gpus: Sequence[Gpu], devices: Sequence[PciDevice]) -> str:
    classes = {_slot(device.address): device.device_class[:4] for device in devices}
    modes = {
        "compute" if gpu.mig_mode else _MODES.get(classes.get(_slot(gpu.pci), ""), "unknown")
        for gpu in gpus
    }
    return modes.pop() if len(modes) == 1 else "unknown"


def _slot(address: str) -> str:
    """Return a PCI address as sysfs writes it: NVML gives the domain eight digits."""
    domain, colon, rest = address.lower().partition(":")
    return f"{domain[-4:]}{colon}{rest}"


def _clique(gpus: Sequence[Gpu]) -> str | None:
    """Return the clique if all GPUs in a fabric are in the same one."""
    cliques = {gpu.fabric for gpu in gpus if gpu.fabric}
    if len(cliques) != 1:
        return None
    clique = cliques.pop()
    return clique if _CLIQUE.fullmatch(clique) else REFUSED


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
    else:
        labels["nvidia.com/cuda.driver-version.full"] = REFUSED
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


def _virtual(vgpu: Vgpu) -> Labels:
    present, version, branch = _VGPU
    return {
        present: "true" if vgpu.present else "false",
        version: vgpu.host_driver_version or None,
        branch: vgpu.host_driver_branch or None,
    }
