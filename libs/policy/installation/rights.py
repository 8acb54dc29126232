"""What each of our services may do in the cluster, as data: nothing that it does not do.

Agents are not here: they have no rights at all. One row is one rule of RBAC, in the words of
Kubernetes; where it says `namespace`, the right ends at the namespace of the operands.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from libs.contracts.identities import Writer

LOOK: Final = ("get", "list", "watch")
APPLY: Final = ("get", "list", "watch", "create", "patch")
OWN: Final = (*APPLY, "delete")


class Reach(Enum):
    """How far a right reaches."""

    CLUSTER = "cluster"
    NAMESPACE = "namespace"


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """Verbs on kinds of object."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Of the only objects; empty: all. To list or watch one is to name it in a field selector."""
    reach: Reach = Reach.CLUSTER


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
    Right(group=group, resources=resources, verbs=LOOK) for group, resources in _POLICIES
)
_READ_WISHES: Final = (
    Right(group="nvidia.com", resources=("clusterpolicies", "nvidiadrivers"), verbs=LOOK),
    Right(group="gpu.nvidia.com", resources=("gpuclusterpolicies",), verbs=LOOK),
)
"""Which policy selects which nodes."""
_READ_ROLLOUTS: Final = Right(group="sluice.dev", resources=("rollouts",), verbs=LOOK)
_FOREIGN_LEASE: Final = Right(
    group="coordination.k8s.io",
    resources=("leases",),
    verbs=LOOK,
    names=("53822513.nvidia.com",),
)
"""That of a GPU Operator, in whatever namespace it is."""

_TELL: Final = Right(group="", resources=("events",), verbs=("create", "patch"))
_READ_NODES: Final = Right(group="", resources=("nodes",), verbs=LOOK)
_WRITE_NODES: Final = Right(group="", resources=("nodes",), verbs=(*LOOK, "patch"))


def _here(group: str, resources: tuple[str, ...], verbs: tuple[str, ...]) -> Right:
    return Right(group=group, resources=resources, verbs=verbs, reach=Reach.NAMESPACE)


_LEAD: Final = _here("coordination.k8s.io", ("leases",), ("get", "create", "patch"))
"""Of several processes one leads."""


RIGHTS: Final[Mapping[Writer, tuple[Right, ...]]] = {
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
            Right(group=group, resources=resources, verbs=("patch",))
            for group, resources in _STATUSES
        ),
        Right(group="node.k8s.io", resources=("runtimeclasses",), verbs=OWN),
        _here("apps", ("daemonsets",), OWN),
        _here("", ("configmaps",), OWN),
        _here("", ("pods",), LOOK),
        _TELL,
        _LEAD,
    ),
    Writer.SCHEDULER: (
        *_READ_POLICIES,
        _READ_ROLLOUTS,
        _FOREIGN_LEASE,
        _WRITE_NODES,
        _TELL,
        Right(group="sluice.dev", resources=("rollouts",), verbs=("create", "patch")),
        Right(group="sluice.dev", resources=("rollouts/status",), verbs=("update",)),
        Right(group="", resources=("pods",), verbs=LOOK),
        Right(group="", resources=("pods/eviction",), verbs=("create",)),
        _here("", ("pods",), ("delete",)),
        _here("apps", ("daemonsets",), LOOK),
        _LEAD,
    ),
    Writer.VALIDATOR_CLUSTER: (_READ_NODES, *_READ_WISHES),
    Writer.TELEMETRY_CLUSTER: (_READ_NODES, *_READ_WISHES),
}
"""By service. Pods of people are evicted, whatever the grace period: nobody may delete them."""
