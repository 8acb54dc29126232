"""All objects of an installation, in the order of application."""

from collections.abc import Iterator
from typing import Any, Final

from libs.contracts.identities import CLUSTER_WRITERS, COMPONENTS, Writer
from libs.policy.installation.rbac import RBAC_RULES, RbacRule, RbacScope
from libs.policy.render.rendered import MANAGED_BY
from libs.policy.service_accounts import DRIVER_ACCOUNT, service_account_of

Object = dict[str, Any]

_RBAC: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"app.kubernetes.io/managed-by": MANAGED_BY}
_PRIVILEGED: Final = {
    f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")
}
"""Agents and drivers change the host, so their namespace must allow privileged pods."""


def installation_objects(namespace: str) -> tuple[Object, ...]:
    """Return the namespace, ServiceAccounts, roles and bindings."""
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
    )


def _accounts() -> Iterator[str]:
    """Yield the account of every pod; people use their own accounts."""
    yield DRIVER_ACCOUNT
    yield from (service_account_of(writer) for writer in COMPONENTS)
    yield from (
        service_account_of(writer) for writer in CLUSTER_WRITERS if writer is not Writer.CTL
    )


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
        rules = [_rule(permission) for permission in rules_of_account if permission.scope is scope]
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
        api = f"{_RBAC}/v1"
        yield {"apiVersion": api, "kind": kind, "metadata": metadata, "rules": rules}
        yield {
            "apiVersion": api,
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        }


def _rule(permission: RbacRule) -> Object:
    rule: Object = {"apiGroups": [permission.group], "resources": list(permission.resources)}
    rule |= {"resourceNames": list(permission.names)} if permission.names else {}
    return rule | {"verbs": list(permission.verbs)}
