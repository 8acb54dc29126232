"""What each of our services may do in the cluster, as data: nothing that it does not do.

Agents are not here: they have no rights at all. One row is one rule of RBAC, in the words of
Kubernetes; where it says `namespace`, the right ends at the namespace of the operands.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from libs.contracts.identities import Writer

READ_VERBS: Final = ("get", "list", "watch")
APPLY_VERBS: Final = ("get", "list", "watch", "create", "patch")
OWNER_VERBS: Final = (*APPLY_VERBS, "delete")


class RbacScope(Enum):
    """How far a right reaches."""

    CLUSTER = "cluster"
    NAMESPACE = "namespace"


class RbacRule(msgspec.Struct, frozen=True, kw_only=True):
    """Verbs on kinds of object."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Of the only objects; empty: all. To list or watch one is to name it in a field selector."""
    scope: RbacScope = RbacScope.CLUSTER


_POLICIES: Final = (
    ("nvidia.com", ("clusterpolicies", "nvidiadrivers", "gpuclusters")),
    ("gpu.nvidia.com", ("gpuclusterpolicies",)),
    ("sluice.dev", ("rolloutstrategies",)),
)
_STATUSES: Final = (
    ("nvidia.com", ("clusterpolicies/status", "nvidiadrivers/status")),
    ("gpu.nvidia.com", ("gpuclusterpolicies/status",)),
    ("sluice.dev", ("rolloutstrategies/status",)),
)
_READ_POLICIES: Final = tuple(
    RbacRule(group=group, resources=resources, verbs=READ_VERBS) for group, resources in _POLICIES
)
_READ_DRIVER_POLICIES: Final = (
    RbacRule(group="nvidia.com", resources=("clusterpolicies", "nvidiadrivers"), verbs=READ_VERBS),
    RbacRule(group="gpu.nvidia.com", resources=("gpuclusterpolicies",), verbs=READ_VERBS),
)
"""Which policy selects which nodes."""
_READ_ROLLOUTS: Final = RbacRule(group="sluice.dev", resources=("rollouts",), verbs=READ_VERBS)
_FOREIGN_LEASE: Final = RbacRule(
    group="coordination.k8s.io",
    resources=("leases",),
    verbs=READ_VERBS,
    names=("53822513.nvidia.com",),
)
"""That of a GPU Operator, in whatever namespace it is."""

_WRITE_EVENTS: Final = RbacRule(group="", resources=("events",), verbs=("create", "patch"))
_READ_NODES: Final = RbacRule(group="", resources=("nodes",), verbs=READ_VERBS)
_WRITE_NODES: Final = RbacRule(group="", resources=("nodes",), verbs=(*READ_VERBS, "patch"))


def _here(group: str, resources: tuple[str, ...], verbs: tuple[str, ...]) -> RbacRule:
    return RbacRule(group=group, resources=resources, verbs=verbs, scope=RbacScope.NAMESPACE)


_LEAD: Final = _here("coordination.k8s.io", ("leases",), ("get", "create", "patch"))
"""Of several processes one leads."""


RBAC_RULES: Final[Mapping[Writer, tuple[RbacRule, ...]]] = {
    Writer.DISCOVERY_CLUSTER: (
        *_READ_POLICIES,
        _FOREIGN_LEASE,
        _WRITE_NODES,
        _LEAD,
    ),
    Writer.DRIVER_CLUSTER: (
        *_READ_POLICIES,
        _READ_ROLLOUTS,
        _FOREIGN_LEASE,
        _WRITE_NODES,
        *(
            RbacRule(group=group, resources=resources, verbs=("patch",))
            for group, resources in _STATUSES
        ),
        RbacRule(group="node.k8s.io", resources=("runtimeclasses",), verbs=OWNER_VERBS),
        _here("apps", ("daemonsets",), OWNER_VERBS),
        _here("", ("configmaps",), OWNER_VERBS),
        _here("", ("pods",), READ_VERBS),
        _WRITE_EVENTS,
        _LEAD,
    ),
    Writer.SCHEDULER: (
        *_READ_POLICIES,
        _READ_ROLLOUTS,
        _FOREIGN_LEASE,
        _WRITE_NODES,
        _WRITE_EVENTS,
        RbacRule(group="sluice.dev", resources=("rollouts",), verbs=("create", "patch")),
        RbacRule(group="sluice.dev", resources=("rollouts/status",), verbs=("update",)),
        RbacRule(group="", resources=("pods",), verbs=READ_VERBS),
        RbacRule(group="", resources=("pods/eviction",), verbs=("create",)),
        _here("", ("pods",), ("delete",)),
        _here("apps", ("daemonsets",), READ_VERBS),
        _LEAD,
    ),
    Writer.VALIDATOR_CLUSTER: (_READ_NODES, *_READ_DRIVER_POLICIES),
    Writer.TELEMETRY_CLUSTER: (_READ_NODES, *_READ_DRIVER_POLICIES),
}
"""By service. Pods of people are evicted, whatever the grace period: nobody may delete them."""
