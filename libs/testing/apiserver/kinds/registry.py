"""Which strategy each kind has."""

from collections.abc import Mapping

from libs.testing.apiserver.kinds import Kind
from libs.testing.apiserver.kinds.custom import RESOURCE, CustomDefinitions
from libs.testing.apiserver.kinds.strategies import (
    CustomObjects,
    Events,
    Leases,
    Namespaces,
    Nodes,
    Roles,
    Secrets,
    ServiceAccounts,
    Services,
    Strategy,
)
from libs.testing.apiserver.kinds.workloads import (
    Budgets,
    DaemonSets,
    Deployments,
    Jobs,
    Pods,
    ReplicaSets,
)
from libs.testing.apiserver.schemas.rules import Predicate

_RBAC = ("clusterrolebindings", "clusterroles", "rolebindings", "roles")


class Registry:
    """Of the server's own kinds, and of those that were added."""

    def __init__(self, rules: Mapping[str, Predicate]) -> None:
        self._ordinary = Strategy()
        self._own: dict[str, Strategy] = {
            RESOURCE: CustomDefinitions(rules),
            "nodes": Nodes(),
            "namespaces": Namespaces(),
            "services": Services(),
            "events": Events(),
            "secrets": Secrets(),
            "serviceaccounts": ServiceAccounts(),
            "leases.coordination.k8s.io": Leases(),
            "pods": Pods(),
            "daemonsets.apps": DaemonSets(),
            "deployments.apps": Deployments(),
            "replicasets.apps": ReplicaSets(),
            "jobs.batch": Jobs(),
            "poddisruptionbudgets.policy": Budgets(),
            **{f"{name}.rbac.authorization.k8s.io": Roles() for name in _RBAC},
        }

    def __call__(self, kind: Kind) -> Strategy:
        """A kind's own, or the ordinary one."""
        if kind.custom:
            return CustomObjects(status="status" in kind.subresources)
        return self._own.get(kind.resource, self._ordinary)
