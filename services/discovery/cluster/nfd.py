"""Labels of node feature discovery from facts. Pure.

Each family of labels is returned completely, with None for a label to remove. A family without any
fact is left out, so that its labels stay (docs/invariants.md#i6).
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from libs.contracts.facts import (
    Cpu,
    Facts,
    Kernel,
    LocalFeatures,
    Memory,
    OperatingSystem,
    PciDevice,
)
from libs.contracts.node import is_vendor_label
from libs.host.local_features import MAX_LABELS as MAX_LOCAL
from services.discovery.cluster import cpu_features
from services.discovery.cluster.label_values import FEATURES, REFUSED, Labels, number

PCI: Final = f"{FEATURES}pci-10de.present"
"""Set on nodes that have an NVIDIA device."""
OF_GPUS: Final = (PCI, f"{FEATURES}pci-10de.sriov.capable")
FOREIGN_PCI: Final = (PCI, f"{FEATURES}pci-0302_10de.present", f"{FEATURES}pci-0300_10de.present")
"""The keys that another feature discovery may set for an NVIDIA device."""

_YES: Final = "true"
_PCI_CLASSES: Final = ("02", "0300", "0302")
"""Network and display controllers: what the GPU Operator tells NFD to label, by vendor."""
_MELLANOX: Final = "15b3"
_MAX_VENDORS: Final = 32
"""Vendors of a class that are labelled; a node that lies must not get labels without end."""
_RDMA: Final = frozenset(("ib_uverbs", "rdma_ucm"))
"""The modules that make RDMA available to programs."""
_HIGHEST_MODEL: Final = 0xFFFF
"""Of a CPU's family and model; a higher number cannot be true."""
_OPTIONS: Final = ("NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT")

_OTHER_VENDORS: Final = f"{FEATURES}pci-other.present"
"""Is never written: it stands for vendors that are left out."""

_VENDOR: Final = re.compile(r"[0-9a-f]{4}", re.ASCII)
_OF_PCI: Final = re.compile(
    re.escape(FEATURES) + r"(?:pci-[0-9a-f]{4}\.(?:present|sriov\.capable)|rdma\.capable)", re.ASCII
)
_LOCAL: Final = re.compile(
    re.escape(FEATURES) + r"(?!cpu-|kernel-|memory-|pci-|rdma\.|system-).+", re.ASCII
)
"""The keys that feature files may have of NFD's domain: not those that begin like discovery's."""
_OF_CPU: Final = re.compile(
    re.escape(FEATURES) + r"cpu-(?:cpuid\.[A-Z0-9_]+|model\.[a-z_]+)", re.ASCII
)
_NOT_IN_KERNEL: Final = re.compile(r"[^-A-Za-z0-9_.]", re.ASCII)
_NUMBERS: Final = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-.*)?", re.ASCII)
_RELEASE: Final = re.compile(r"(\d+)(?:\.(\d+))?(?:\..*)?", re.ASCII)


def system_labels(facts: Facts, present: Iterable[str] = ()) -> Labels:
    """Return the labels of a machine without its GPUs, not checked yet.

    `present` are the node's labels that are ours.
    """
    labels: Labels = {}
    if facts.kernel is not None:
        labels |= _kernel(facts.kernel)
    if facts.os is not None:
        labels |= _os(facts.os)
    if facts.cpu is not None:
        labels |= _removed(_OF_CPU, present) | _cpu(facts.cpu)
    if facts.memory is not None:
        labels |= _memory(facts.memory)
    if facts.pci is not None:
        # Only a confirmed absence of the GPUs removes their labels.
        others = [key for key in present if key not in OF_GPUS]
        labels |= _removed(_OF_PCI, others) | _pci(facts.pci)
    if facts.features is not None:
        labels |= {key: None for key in present if _is_local(key)} | _local(facts.features)
    return labels


def _removed(family: re.Pattern[str], present: Iterable[str]) -> Labels:
    return {key: None for key in present if family.fullmatch(key)}


def _kernel(kernel: Kernel) -> Labels:
    full = _NOT_IN_KERNEL.sub("_", kernel.release).strip("-_.")
    parts = _NUMBERS.fullmatch(full)
    major, minor, revision = parts.groups("") if parts else (None, None, None)
    return {
        f"{FEATURES}kernel-version.full": full or None,
        f"{FEATURES}kernel-version.major": major,
        f"{FEATURES}kernel-version.minor": minor,
        f"{FEATURES}kernel-version.revision": revision,
        f"{FEATURES}kernel-selinux.enabled": _YES if kernel.selinux else None,
        f"{FEATURES}rdma.available": _YES if set(kernel.modules) >= _RDMA else None,
        **{f"{FEATURES}kernel-config.{name}": _option(kernel, name) for name in _OPTIONS},
    }


def _option(kernel: Kernel, name: str) -> str | None:
    value = kernel.config.get(name)
    return _YES if value in ("y", "m") else value


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


def _cpu(cpu: Cpu) -> Labels:
    labels: Labels = {
        f"{FEATURES}cpu-hardware_multithreading": _YES if cpu.multithreading else "false"
    }
    vendor = cpu_features.VENDORS.get(cpu.vendor)
    if vendor is None:
        return labels
    labels |= {
        f"{FEATURES}cpu-model.vendor_id": vendor,
        f"{FEATURES}cpu-model.family": number(cpu.family, high=_HIGHEST_MODEL),
        f"{FEATURES}cpu-model.id": number(cpu.model, high=_HIGHEST_MODEL),
    }
    if cpu_features.is_bare_metal(cpu):
        labels[f"{FEATURES}cpu-model.hypervisor"] = "none"
    return labels | {f"{FEATURES}cpu-cpuid.{name}": _YES for name in cpu_features.names(cpu)}


def _memory(memory: Memory) -> Labels:
    return {
        f"{FEATURES}memory-numa": _YES if memory.numa_nodes > 1 else None,
        f"{FEATURES}memory-swap": _YES if memory.swap else None,
    }


def _pci(devices: Sequence[PciDevice]) -> Labels:
    labelled = [each for each in devices if each.device_class.lower().startswith(_PCI_CLASSES)]
    vendors = sorted({each.vendor for each in labelled if _VENDOR.fullmatch(each.vendor)})
    capable = {each.vendor for each in labelled if each.sriov_total_vfs}
    labels: Labels = {}
    for vendor in vendors[:_MAX_VENDORS]:
        labels[f"{FEATURES}pci-{vendor}.present"] = _YES
        if vendor in capable:
            labels[f"{FEATURES}pci-{vendor}.sriov.capable"] = _YES
    if len(vendors) > _MAX_VENDORS or any(not _VENDOR.fullmatch(each.vendor) for each in labelled):
        labels[_OTHER_VENDORS] = REFUSED
    if any(each.vendor == _MELLANOX for each in devices):
        labels[f"{FEATURES}rdma.capable"] = _YES
    return labels


def _local(features: LocalFeatures) -> Labels:
    return {
        key: value if _is_local(key) and place < MAX_LOCAL else REFUSED
        for place, (key, value) in enumerate(features.labels.items())
    }


def _is_local(key: str) -> bool:
    return _LOCAL.fullmatch(key) is not None or is_vendor_label(key)
