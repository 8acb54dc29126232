"""The Kubernetes permissions of each service, as RBAC rules.

Agents have no permissions. Rules of scope `NAMESPACE` apply to the operands' namespace only.
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
    CLUSTER = "cluster"
    NAMESPACE = "namespace"


class RbacRule(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Object names; empty means all. Clients that list or watch must name the object in a field
    selector."""
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
"""Policies that select nodes."""
_READ_ROLLOUTS: Final = RbacRule(group="sluice.dev", resources=("rollouts",), verbs=READ_VERBS)
_FOREIGN_LEASE: Final = RbacRule(
    group="coordination.k8s.io",
    resources=("leases",),
    verbs=READ_VERBS,
    names=("53822513.nvidia.com",),
)
"""The leader lease of a GPU Operator, in any namespace."""

_WRITE_EVENTS: Final = RbacRule(group="", resources=("events",), verbs=("create", "patch"))
_READ_NODES: Final = RbacRule(group="", resources=("nodes",), verbs=READ_VERBS)
_WRITE_NODES: Final = RbacRule(group="", resources=("nodes",), verbs=(*READ_VERBS, "patch"))


def _namespace_rule(group: str, resources: tuple[str, ...], verbs: tuple[str, ...]) -> RbacRule:
    return RbacRule(group=group, resources=resources, verbs=verbs, scope=RbacScope.NAMESPACE)


_LEADER_LEASE: Final = _namespace_rule(
    "coordination.k8s.io", ("leases",), ("get", "create", "patch")
)
"""For leader election."""


RBAC_RULES: Final[Mapping[Writer, tuple[RbacRule, ...]]] = {
    Writer.DISCOVERY_CLUSTER: (
        *_READ_POLICIES,
        _FOREIGN_LEASE,
        _WRITE_NODES,
        _LEADER_LEASE,
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
        _namespace_rule("apps", ("daemonsets",), OWNER_VERBS),
        _namespace_rule("", ("configmaps",), OWNER_VERBS),
        _namespace_rule("", ("pods",), READ_VERBS),
        _WRITE_EVENTS,
        _LEADER_LEASE,
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
        _namespace_rule("", ("pods",), ("delete",)),
        _namespace_rule("apps", ("daemonsets",), READ_VERBS),
        _LEADER_LEASE,
    ),
    Writer.VALIDATOR_CLUSTER: (_READ_NODES, *_READ_DRIVER_POLICIES),
    Writer.TELEMETRY_CLUSTER: (_READ_NODES, *_READ_DRIVER_POLICIES),
}
"""Rules by service. Pods outside the operands' namespace are evicted, never deleted, even when they
are removed without a grace period."""
