"""The strategy of each kind."""

from collections.abc import Mapping

from libs.testing.apiserver.kinds.custom_resources import RESOURCE, CustomResourceDefinitionStrategy
from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.strategies import (
    CustomObjectStrategy,
    EventStrategy,
    KindStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    RoleStrategy,
    SecretStrategy,
    ServiceAccountStrategy,
)
from libs.testing.apiserver.kinds.workloads import (
    DaemonSetStrategy,
    DisruptionBudgetStrategy,
    JobStrategy,
    PodStrategy,
    ReplicaSetStrategy,
)
from libs.testing.apiserver.schemas.rules import Predicate

_RBAC = ("clusterrolebindings", "clusterroles", "rolebindings", "roles")


class StrategyRegistry:
    def __init__(self, rules: Mapping[str, Predicate]) -> None:
        self._ordinary = KindStrategy()
        self._own: dict[str, KindStrategy] = {
            RESOURCE: CustomResourceDefinitionStrategy(rules),
            "nodes": NodeStrategy(),
            "namespaces": NamespaceStrategy(),
            "events": EventStrategy(),
            "secrets": SecretStrategy(),
            "serviceaccounts": ServiceAccountStrategy(),
            "leases.coordination.k8s.io": LeaseStrategy(),
            "pods": PodStrategy(),
            "daemonsets.apps": DaemonSetStrategy(),
            "replicasets.apps": ReplicaSetStrategy(),
            "jobs.batch": JobStrategy(),
            "poddisruptionbudgets.policy": DisruptionBudgetStrategy(),
            **{f"{name}.rbac.authorization.k8s.io": RoleStrategy() for name in _RBAC},
        }

    def __call__(self, kind: ResourceKind) -> KindStrategy:
        if kind.custom:
            return CustomObjectStrategy(status="status" in kind.subresources)
        return self._own.get(kind.resource, self._ordinary)
