"""Which operands a node should have, and which are paused for an upgrade. Pure.

- A value that users set stays: any that is neither ours nor our pause. An empty value counts as
  unset.
- A pause lasts as long as the node's record is paused. Keys that select our own agents are never
  paused, and a pause that another operator left on them is removed: nothing else would remove it.
  Where the policy switches an agent of ours off, its key is for another's, and paused.
"""

from collections.abc import Mapping
from typing import Final

from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.kinds.unsupported import CONTAINERS, WORKLOADS
from libs.policy.owners import DEPLOY_DRA, DEPLOY_OPERANDS, DEPLOY_PREFIX, PAUSED, WORKLOAD_LABEL
from libs.policy.render.pauses import absent_agents, never_paused_labels
from libs.policy.validation import PRESENT_LABEL
from libs.policy.wanted import operands_of
from services.discovery.cluster.gfd import MIG_CAPABLE, PRODUCT, VGPU_HOST

MIG_MANAGER: Final = f"{DEPLOY_PREFIX}mig-manager"

YES: Final = "true"
NO: Final = "false"

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

Labels = Mapping[str, str]
Changes = dict[str, str | None]
"""Labels to set; None: to remove."""

_WITH_MIG: Final = ("h100", "a100", "a30")
_PAUSE_SUFFIX: Final = f"_{PAUSED}"
_MAX_LENGTH: Final = 63
"""Characters of a label's value."""


def presence(labels: Labels, gpus: bool | None) -> Changes:
    """Return the change of the label for GPUs; nothing changes while `gpus` is None (unknown)."""
    value = labels.get(PRESENT_LABEL)
    if gpus and value != YES:
        return {PRESENT_LABEL: YES}
    if gpus is False and value == YES:
        return {PRESENT_LABEL: NO}
    return {}


def operands(labels: Labels, cluster: ClusterPolicy | GpuClusterPolicy | None) -> Changes:
    """Return the changes of the operands of a node; none without a policy."""
    if labels.get(PRESENT_LABEL) == NO:
        return _remove_except(labels, frozenset())
    if cluster is None or labels.get(PRESENT_LABEL) != YES:
        return {}
    if labels.get(DEPLOY_OPERANDS) == NO:
        return _remove_except(labels, frozenset())
    workload, mode = CONTAINERS, "kubevirt"
    if isinstance(cluster, ClusterPolicy) and cluster.spec.sandbox_workloads.enabled:
        sandbox = cluster.spec.sandbox_workloads
        chosen, mode = labels.get(WORKLOAD_LABEL, ""), sandbox.mode
        workload = chosen if chosen in WORKLOADS else sandbox.default_workload
    wanted = OPERAND_SETS[workload, mode]
    containers = workload == CONTAINERS
    # Without claims of ours, the label is for another's plugin.
    kept = wanted if operands_of(cluster).dra else wanted | {DEPLOY_DRA}
    if containers and operands_of(cluster).dra:
        wanted = kept = wanted | {DEPLOY_DRA}
    changes = _remove_except(labels, kept | {MIG_MANAGER} if containers else kept)
    changes |= {key: YES for key in wanted if not labels.get(key)}
    if containers and not labels.get(MIG_MANAGER) and supports_mig(labels):
        changes[MIG_MANAGER] = YES
    return changes


def pauses(
    labels: Labels, paused: bool | None, cluster: ClusterPolicy | GpuClusterPolicy | None
) -> Changes:
    """Return the operands to pause or restore; None: the node's record cannot be read."""
    never_paused = never_paused_labels(absent_agents(operands_of(cluster)))
    changes: Changes = {}
    for key, value in labels.items():
        if not key.startswith(DEPLOY_PREFIX):
            continue
        if key in never_paused or paused is False:
            new = _restored(value)
        elif paused:
            new = _paused(value)
        else:
            continue
        if new != value:
            changes[key] = new
    return changes


def supports_mig(labels: Labels) -> bool:
    """Return whether MIG can partition the GPUs of a node."""
    if labels.get(VGPU_HOST):
        return False
    if MIG_CAPABLE in labels:
        return labels[MIG_CAPABLE] == YES
    product = labels.get(PRODUCT, "").lower()
    return any(model in product for model in _WITH_MIG)


def _remove_except(labels: Labels, wanted: frozenset[str]) -> Changes:
    """Remove unwanted operands, unless users set their value."""
    return {
        key: None
        for key in (*OPERAND_KEYS, MIG_MANAGER, DEPLOY_DRA)
        if key in labels and key not in wanted and _restored(labels[key]) in (YES, "")
    }


def _paused(value: str) -> str:
    if value in ("", NO) or PAUSED in value:
        return value
    if value == YES:
        return PAUSED
    suffixed = f"{value}{_PAUSE_SUFFIX}"
    return suffixed if len(suffixed) <= _MAX_LENGTH else value


def _restored(value: str) -> str:
    return YES if value == PAUSED else value.removesuffix(_PAUSE_SUFFIX)
