"""The labels that this role writes, and the words in them that people know. Data only."""

from collections.abc import Mapping
from typing import Final

from libs.policy.deploy_labels import DEPLOY_PREFIX

FEATURES: Final = "feature.node.kubernetes.io/"
"""Before every key of node feature discovery."""

MIG_MANAGER: Final = f"{DEPLOY_PREFIX}mig-manager"

PCI: Final = f"{FEATURES}pci-10de.present"
"""Says that a device of NVIDIA is there."""
PCI_OF_OTHERS: Final = (PCI, f"{FEATURES}pci-0302_10de.present", f"{FEATURES}pci-0300_10de.present")
"""The same, as somebody else's feature discovery may say it."""

CLAIM_SUFFIX: Final = "nfd.node.kubernetes.io/feature-labels"
"""The end of the annotation in which a feature discovery lists the labels that are its own."""

MIG_CAPABLE: Final = "nvidia.com/mig.capable"
PRODUCT: Final = "nvidia.com/gpu.product"
VGPU_HOST: Final = "nvidia.com/vgpu.host-driver-version"

YES: Final = "true"
NO: Final = "false"
PAUSED: Final = "paused-for-driver-upgrade"

_CONTAINER: Final = (
    "driver",
    "gpu-feature-discovery",
    "container-toolkit",
    "device-plugin",
    "dcgm",
    "dcgm-exporter",
    "node-status-exporter",
    "operator-validator",
    "client",
)
_PASSTHROUGH: Final = ("sandbox-validator", "vfio-manager", "kata-manager", "cc-manager", "client")
_VGPU: Final = (
    "sandbox-device-plugin",
    "vgpu-manager",
    "vgpu-device-manager",
    "sandbox-validator",
    "cc-manager",
    "client",
)
_FOR_VMS: Final = "sandbox-device-plugin"
_FOR_KATA: Final = "kata-sandbox-device-plugin"


def _keys(*names: str) -> frozenset[str]:
    return frozenset(f"{DEPLOY_PREFIX}{name}" for name in names)


OPERAND_SETS: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("container", "kubevirt"): _keys(*_CONTAINER),
    ("container", "kata"): _keys(*_CONTAINER),
    ("vm-passthrough", "kubevirt"): _keys(*_PASSTHROUGH, _FOR_VMS),
    ("vm-passthrough", "kata"): _keys(*_PASSTHROUGH, _FOR_KATA),
    ("vm-vgpu", "kubevirt"): _keys(*_VGPU),
    ("vm-vgpu", "kata"): _keys(*_VGPU),
}
"""The operands of a node, by what its GPUs are for and the mode of virtual machines."""

OPERAND_KEYS: Final = frozenset[str]().union(*OPERAND_SETS.values())
"""Every key that a node may be given, but that of the MIG manager, which follows its GPUs."""
