"""Keys and values of the labels that this role writes. Data only."""

from collections.abc import Mapping
from typing import Final

from libs.policy.render.agents import DEPLOY_PREFIX

FEATURES: Final = "feature.node.kubernetes.io/"
"""Prefix of node feature discovery's labels."""

MIG_MANAGER: Final = f"{DEPLOY_PREFIX}mig-manager"

PCI: Final = f"{FEATURES}pci-10de.present"
"""Set on nodes that have an NVIDIA device."""
FOREIGN_PCI: Final = (PCI, f"{FEATURES}pci-0302_10de.present", f"{FEATURES}pci-0300_10de.present")
"""The keys that another feature discovery may use for the same."""

CLAIM_SUFFIX: Final = "nfd.node.kubernetes.io/feature-labels"
"""Suffix of the annotation in which a feature discovery lists its labels."""

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
"""The operands of a node by workload of its GPUs and mode of virtual machines."""

OPERAND_KEYS: Final = frozenset[str]().union(*OPERAND_SETS.values())
"""Every operand's key but the MIG manager's, which depends on the model of the GPUs."""
