"""The policy kinds, one module each: fields with types, defaults, limits and effects."""

from collections.abc import Mapping
from typing import Final

from libs.policy.kinds.cluster_policy import CLUSTER_POLICY
from libs.policy.kinds.common import ForeignKind, Kind
from libs.policy.kinds.device import DEVICE
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from libs.policy.kinds.rollout import ROLLOUT
from libs.policy.kinds.strategy import ROLLOUT_STRATEGY

KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (CLUSTER_POLICY, NVIDIA_DRIVER, GPU_CLUSTER_POLICY, ROLLOUT_STRATEGY, ROLLOUT)
}
"""Kinds that people write, by name."""

DEFINED_KINDS: Final = (*KINDS.values(), DEVICE)
"""Kinds that Sluice defines."""

NODE_SELECTING_KINDS: Final = (CLUSTER_POLICY, NVIDIA_DRIVER, GPU_CLUSTER_POLICY)
"""Kinds that select nodes."""

POLICY_KINDS: Final = (*NODE_SELECTING_KINDS, ROLLOUT_STRATEGY)
"""Kinds in which people state what they want; a Rollout only reports."""

GPU_CLUSTER: Final = ForeignKind(
    name="GPUCluster", group="nvidia.com", version="v1alpha1", plural="gpuclusters"
)
"""A kind of the GPU Operator; policies conflict with any object of it."""
