"""Which operands a node is to have, and which of them stand aside for an upgrade. Pure.

- What people wrote stays: any word that is neither ours nor a pause of ours. An empty one counts as
  none.
- A pause lasts as long as the node's record says so. A key that our own agents are selected by is
  never paused, and is restored at once where somebody else left it so: nobody else would.
"""

from collections.abc import Mapping
from typing import Final

from libs.policy.deploy_labels import DEPLOY_OPERANDS, DEPLOY_PREFIX, NEVER_PAUSED_LABELS
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.kinds.unsupported import CONTAINERS, WORKLOADS
from libs.policy.owners import WORKLOAD_LABEL
from libs.policy.validation import PRESENT_LABEL
from services.discovery.cluster.label_keys import (
    MIG_CAPABLE,
    MIG_MANAGER,
    NO,
    OPERAND_KEYS,
    OPERAND_SETS,
    PAUSED,
    PRODUCT,
    VGPU_HOST,
    YES,
)

Labels = Mapping[str, str]
Changes = dict[str, str | None]
"""What a label is to be; None: it is to go."""

_WITH_MIG: Final = ("h100", "a100", "a30")
_BEFORE_PAUSE: Final = f"_{PAUSED}"
_LONGEST: Final = 63
"""Characters of a label's value."""


def presence(labels: Labels, gpus: bool | None) -> Changes:
    """Whether a node has GPUs; None: that is not known, and nothing changes."""
    said = labels.get(PRESENT_LABEL)
    if gpus and said != YES:
        return {PRESENT_LABEL: YES}
    if gpus is False and said == YES:
        return {PRESENT_LABEL: NO}
    return {}


def operands(labels: Labels, cluster: ClusterPolicy | GpuClusterPolicy | None) -> Changes:
    """The operands of a node with these labels; without a policy they stay as they are."""
    if labels.get(PRESENT_LABEL) == NO:
        return _without(labels, frozenset())
    if cluster is None or labels.get(PRESENT_LABEL) != YES:
        return {}
    if labels.get(DEPLOY_OPERANDS) == NO:
        return _without(labels, frozenset())
    purpose, mode = _purpose(labels, cluster)
    wanted = OPERAND_SETS[purpose, mode]
    found = _without(labels, wanted | {MIG_MANAGER} if purpose == CONTAINERS else wanted)
    found |= {key: YES for key in wanted if not labels.get(key)}
    if purpose == CONTAINERS and not labels.get(MIG_MANAGER) and supports_mig(labels):
        found[MIG_MANAGER] = YES
    return found


def pauses(labels: Labels, paused: bool | None) -> Changes:
    """What stands aside, or comes back; None: it is not known whether an upgrade needs it."""
    found: Changes = {}
    for key, value in labels.items():
        if not key.startswith(DEPLOY_PREFIX):
            continue
        if key in NEVER_PAUSED_LABELS or paused is False:
            word = _restored(value)
        elif paused:
            word = _aside(value)
        else:
            continue
        if word != value:
            found[key] = word
    return found


def supports_mig(labels: Labels) -> bool:
    """Whether the GPUs of a node can be divided by MIG."""
    if labels.get(VGPU_HOST):
        return False
    if MIG_CAPABLE in labels:
        return labels[MIG_CAPABLE] == YES
    named = labels.get(PRODUCT, "").lower()
    return any(model in named for model in _WITH_MIG)


def _purpose(labels: Labels, cluster: ClusterPolicy | GpuClusterPolicy) -> tuple[str, str]:
    """What the GPUs of a node are for, and the mode of virtual machines."""
    if not isinstance(cluster, ClusterPolicy) or not cluster.spec.sandbox_workloads.enabled:
        return CONTAINERS, "kubevirt"
    machines = cluster.spec.sandbox_workloads
    said = labels.get(WORKLOAD_LABEL, "")
    return (said if said in WORKLOADS else machines.default_workload), machines.mode


def _without(labels: Labels, wanted: frozenset[str]) -> Changes:
    """Operands that a node is not to have, as far as no person said something of them."""
    return {
        key: None
        for key in (*OPERAND_KEYS, MIG_MANAGER)
        if key in labels and key not in wanted and _restored(labels[key]) in (YES, "")
    }


def _aside(value: str) -> str:
    if value in ("", NO) or PAUSED in value:
        return value
    longer = f"{value}{_BEFORE_PAUSE}"
    return PAUSED if value == YES else longer if len(longer) <= _LONGEST else value


def _restored(value: str) -> str:
    return YES if value == PAUSED else value.removesuffix(_BEFORE_PAUSE)
