"""Objects that must exist before Sluice runs: namespace, ServiceAccounts and RBAC.

They are applied by the person who installs Sluice, never by a service: a service that can grant
permissions effectively has all of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from libs.contracts.identities import CLUSTER_WRITERS, COMPONENTS, Writer
from libs.contracts.nats_names import CA_CONFIG_MAP
from libs.contracts.nats_names import PODS as NATS_PODS
from libs.policy.admission.nodes import limit_of_nodes
from libs.policy.admission.operands import limit_of_operands
from libs.policy.admission.slices import limit_of_slices
from libs.policy.render.claims import DEVICE_CLASS_GROUP, DEVICE_CLASSES
from libs.policy.render.rendered import (
    EXPORTER,
    MANAGED_BY,
    MONITOR_GROUP,
    NODE_STATUS,
    RUNTIME_CLASSES,
    SCRIPT_CONFIG_MAP,
)

DRIVER_ACCOUNT: Final = "sluice-driver-container"
"""The account of driver pods. It has no permissions."""


def service_account_of(writer: Writer) -> str:
    return f"sluice-{writer.value}"


READ_VERBS: Final = ("get", "list", "watch")
APPLY_VERBS: Final = ("get", "list", "watch", "create", "patch")
OWNER_VERBS: Final = (*APPLY_VERBS, "delete")


class RbacScope(Enum):
    CLUSTER = "cluster"
    NAMESPACE = "namespace"


class RbacRule(msgspec.Struct, frozen=True, kw_only=True):
    group: str = ""
    resources: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    """Paths of the API server that are no resources; then there are no resources."""
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
_WRITE_NODE_STATUS: Final = RbacRule(group="", resources=("nodes/status",), verbs=("patch",))


def _namespace_rule(
    group: str, resources: tuple[str, ...], verbs: tuple[str, ...], *, names: tuple[str, ...] = ()
) -> RbacRule:
    return RbacRule(
        group=group, resources=resources, verbs=verbs, names=names, scope=RbacScope.NAMESPACE
    )


def _leader_lease(writer: Writer) -> tuple[RbacRule, RbacRule]:
    """Return the rules for the Lease that bears the service's name; RBAC cannot limit creation."""
    group, resources = "coordination.k8s.io", ("leases",)
    return (
        _namespace_rule(
            group, resources, (*READ_VERBS, "patch"), names=(service_account_of(writer),)
        ),
        _namespace_rule(group, resources, ("create",)),
    )


RBAC_RULES: Final[Mapping[Writer, tuple[RbacRule, ...]]] = {
    Writer.DISCOVERY_CLUSTER: (
        *_READ_POLICIES,
        _FOREIGN_LEASE,
        _WRITE_NODES,
        _WRITE_NODE_STATUS,
        RbacRule(group="gpu.nvidia.com", resources=("devices",), verbs=OWNER_VERBS),
        _namespace_rule("", ("configmaps",), READ_VERBS),
        _WRITE_EVENTS,
        *_leader_lease(Writer.DISCOVERY_CLUSTER),
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
        RbacRule(group="node.k8s.io", resources=("runtimeclasses",), verbs=APPLY_VERBS),
        RbacRule(
            group="node.k8s.io",
            resources=("runtimeclasses",),
            verbs=("delete",),
            names=RUNTIME_CLASSES,
        ),
        RbacRule(group=DEVICE_CLASS_GROUP, resources=("resourceclaims",), verbs=READ_VERBS),
        RbacRule(group=DEVICE_CLASS_GROUP, resources=("deviceclasses",), verbs=APPLY_VERBS),
        RbacRule(
            group=DEVICE_CLASS_GROUP,
            resources=("deviceclasses",),
            verbs=("delete",),
            names=DEVICE_CLASSES,
        ),
        _namespace_rule("apps", ("daemonsets",), OWNER_VERBS),
        _namespace_rule("", ("configmaps",), READ_VERBS),
        _namespace_rule("", ("configmaps",), ("create", "patch"), names=(SCRIPT_CONFIG_MAP,)),
        *(
            _namespace_rule(group, resources, verbs, names=names)
            for group, resources in (("", ("services",)), (MONITOR_GROUP, ("servicemonitors",)))
            for verbs, names in (
                (READ_VERBS, ()),
                (("create", "patch", "delete"), (EXPORTER, NODE_STATUS)),
            )
        ),
        _namespace_rule("", ("pods",), (*READ_VERBS, "create", "delete")),
        _WRITE_EVENTS,
        *_leader_lease(Writer.DRIVER_CLUSTER),
    ),
    Writer.DRA: (
        # A policy of the API server limits these to the node of the pod.
        RbacRule(group=DEVICE_CLASS_GROUP, resources=("resourceslices",), verbs=APPLY_VERBS),
        RbacRule(group=DEVICE_CLASS_GROUP, resources=("resourceclaims",), verbs=("get",)),
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
        RbacRule(group="policy", resources=("poddisruptionbudgets",), verbs=("list",)),
        RbacRule(group="resource.k8s.io", resources=("resourceclaims",), verbs=READ_VERBS),
        RbacRule(group="", resources=("pods/eviction",), verbs=("create",)),
        _namespace_rule("", ("pods",), ("delete",)),
        _namespace_rule("apps", ("daemonsets",), READ_VERBS),
        _namespace_rule("", ("configmaps",), READ_VERBS),
        *_leader_lease(Writer.SCHEDULER),
    ),
    Writer.SIGN_IN: (
        _namespace_rule("", ("pods", "serviceaccounts"), ("list", "watch")),
        RbacRule(group="", resources=("nodes",), verbs=("list", "watch")),
        RbacRule(group="authentication.k8s.io", resources=("tokenreviews",), verbs=("create",)),
        RbacRule(urls=("/.well-known/openid-configuration", "/openid/v1/jwks"), verbs=("get",)),
    ),
    Writer.VALIDATOR_CLUSTER: (_READ_NODES, *_READ_DRIVER_POLICIES),
    Writer.TELEMETRY_CLUSTER: (_READ_NODES, *_READ_DRIVER_POLICIES),
}
"""Rules by service. Pods outside the operands' namespace are evicted, never deleted, even when they
are removed without a grace period."""


Object = dict[str, Any]

_RBAC: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"app.kubernetes.io/managed-by": MANAGED_BY}
_PRIVILEGED: Final = {
    f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")
}
"""Agents and drivers change the host, so their namespace must allow privileged pods."""


PEOPLE_ROLE: Final = "sluice-people"
"""People who are bound to this Role may sign in to the bus from where their kubeconfig is: request
tokens, and reach NATS's pods through the API server. They may nothing else by it."""
_PEOPLE: Final = (
    _namespace_rule(
        "", ("serviceaccounts/token",), ("create",), names=(service_account_of(Writer.CTL),)
    ),
    _namespace_rule("", ("configmaps",), ("get",), names=(CA_CONFIG_MAP,)),
    _namespace_rule("", ("pods",), ("get",), names=NATS_PODS),
    # A port-forward by websocket is a GET; later versions of Kubernetes ask for `create` too.
    _namespace_rule("", ("pods/portforward",), ("get", "create"), names=NATS_PODS),
)


def installation_objects(namespace: str) -> tuple[Object, ...]:
    """Return the namespace, ServiceAccounts, roles, bindings, and what limits some of them."""
    return (
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {**_LABELS, **_PRIVILEGED}},
        },
        *(_account(name, namespace) for name in _accounts()),
        *(
            role
            for writer, rights in RBAC_RULES.items()
            for role in _roles(service_account_of(writer), namespace, rights)
        ),
        _role("Role", {"name": PEOPLE_ROLE, "labels": _LABELS, "namespace": namespace}, _PEOPLE),
        *_limits(namespace),
    )


def _limits(namespace: str) -> Iterator[Object]:
    """Yield the policies of the API server on what accounts write, which RBAC cannot say."""
    dra, driver = service_account_of(Writer.DRA), service_account_of(Writer.DRIVER_CLUSTER)
    yield from limit_of_slices(namespace, account=dra, labels=_LABELS)
    discovery = service_account_of(Writer.DISCOVERY_CLUSTER)
    yield from limit_of_nodes(namespace, discovery=discovery, driver=driver, labels=_LABELS)
    yield from limit_of_operands(
        namespace,
        account=driver,
        agents=tuple(map(service_account_of, COMPONENTS)),
        drivers=DRIVER_ACCOUNT,
        asking=dra,
        labels=_LABELS,
    )


def _accounts() -> Iterator[str]:
    """Yield the account of every pod, and that for which people request tokens."""
    yield DRIVER_ACCOUNT
    yield from map(service_account_of, (*COMPONENTS, *CLUSTER_WRITERS))


def _account(name: str, namespace: str) -> Object:
    """Return a ServiceAccount without automatic tokens: a pod that needs one mounts it."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "labels": _LABELS},
        "automountServiceAccountToken": False,
    }


def _roles(
    account: str, namespace: str, rules_of_account: tuple[RbacRule, ...]
) -> Iterator[Object]:
    for scope, kind in ((RbacScope.CLUSTER, "ClusterRole"), (RbacScope.NAMESPACE, "Role")):
        rules = [permission for permission in rules_of_account if permission.scope is scope]
        if not rules:
            continue
        # Names of cluster-wide objects contain the namespace, so that installations can coexist.
        is_cluster_wide = scope is RbacScope.CLUSTER
        metadata = {
            "name": f"{namespace}:{account}" if is_cluster_wide else account,
            "labels": _LABELS,
        }
        if not is_cluster_wide:
            metadata["namespace"] = namespace
        yield _role(kind, metadata, rules)
        yield {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        }


def _role(kind: str, metadata: Object, rules: Iterable[RbacRule]) -> Object:
    listed = [_rule(permission) for permission in rules]
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": listed}


def _rule(permission: RbacRule) -> Object:
    if permission.urls:
        return {"nonResourceURLs": list(permission.urls), "verbs": list(permission.verbs)}
    rule: Object = {"apiGroups": [permission.group], "resources": list(permission.resources)}
    rule |= {"resourceNames": list(permission.names)} if permission.names else {}
    return rule | {"verbs": list(permission.verbs)}
