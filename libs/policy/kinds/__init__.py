"""Every kind in which people say what they want, a module each.

Here may live: fields with their types, defaults, limits and effects. Here must not live: what
follows from several objects together.
"""

from collections.abc import Mapping
from typing import Final

from libs.policy.kinds.cluster_policy import CLUSTER_POLICY
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY
from libs.policy.kinds.kind import ForeignKind, Kind
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from libs.policy.kinds.rollout import ROLLOUT
from libs.policy.kinds.strategy import ROLLOUT_STRATEGY

KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (CLUSTER_POLICY, NVIDIA_DRIVER, GPU_CLUSTER_POLICY, ROLLOUT_STRATEGY, ROLLOUT)
}
"""By the name that objects say."""

NODE_SELECTING_KINDS: Final = (CLUSTER_POLICY, NVIDIA_DRIVER, GPU_CLUSTER_POLICY)
"""By these nodes are selected."""

POLICY_KINDS: Final = (*NODE_SELECTING_KINDS, ROLLOUT_STRATEGY)
"""In these people say what they want."""

GPU_CLUSTER: Final = ForeignKind(
    name="GPUCluster", group="nvidia.com", version="v1alpha1", plural="gpuclusters"
)
"""The GPU Operator's own: where there is one, policies beside it are in conflict."""
