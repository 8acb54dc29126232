"""All objects of an installation, in the order in which they are applied."""

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
"""Agents and drivers change the machine that they run on."""


def installation_objects(namespace: str) -> tuple[Object, ...]:
    """Namespace, accounts, roles and bindings."""
    return (
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {**_LABELS, **_PRIVILEGED}},
        },
        *(_account(name, namespace) for name in _accounts()),
        *(
            made
            for writer, rights in RBAC_RULES.items()
            for made in _roles(service_account_of(writer), namespace, rights)
        ),
    )


def _accounts() -> Iterator[str]:
    """Whoever has a pod; people have accounts of their own."""
    yield DRIVER_ACCOUNT
    yield from (service_account_of(writer) for writer in COMPONENTS)
    yield from (
        service_account_of(writer) for writer in CLUSTER_WRITERS if writer is not Writer.CTL
    )


def _account(name: str, namespace: str) -> Object:
    """None mounts a token by itself: a pod that needs one says so."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "labels": _LABELS},
        "automountServiceAccountToken": False,
    }


def _roles(account: str, namespace: str, rights: tuple[RbacRule, ...]) -> Iterator[Object]:
    for reach, role in ((RbacScope.CLUSTER, "ClusterRole"), (RbacScope.NAMESPACE, "Role")):
        rules = [_rule(right) for right in rights if right.scope is reach]
        if not rules:
            continue
        # What is the cluster's own is told apart by namespace: there may be two installations.
        wide = reach is RbacScope.CLUSTER
        metadata = {"name": f"{namespace}:{account}" if wide else account, "labels": _LABELS}
        if not wide:
            metadata["namespace"] = namespace
        api = f"{_RBAC}/v1"
        yield {"apiVersion": api, "kind": role, "metadata": metadata, "rules": rules}
        yield {
            "apiVersion": api,
            "kind": f"{role}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": role, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        }


def _rule(right: RbacRule) -> Object:
    made: Object = {"apiGroups": [right.group], "resources": list(right.resources)}
    made |= {"resourceNames": list(right.names)} if right.names else {}
    return made | {"verbs": list(right.verbs)}
