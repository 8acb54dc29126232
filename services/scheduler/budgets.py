"""Disruption budgets, and the pods that they protect."""

from collections.abc import Mapping
from typing import Final

from libs.kube import views
from libs.kube.resources import Resource
from libs.kube.views.lean import Unmanaged
from services.scheduler.resources import Pod


class LabelRequirement(views.View, frozen=True, kw_only=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(views.View, frozen=True, kw_only=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        return self.match_labels.items() <= labels.items() and all(
            _meets(each, labels) for each in self.match_expressions
        )


def _meets(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


class BudgetSpec(views.View, frozen=True, kw_only=True):
    selector: LabelSelector | None = None
    """None selects nothing, an empty one every pod of the namespace."""


class BudgetStatus(views.View, frozen=True, kw_only=True):
    disruptions_allowed: int = 0


class DisruptionBudget(Unmanaged, frozen=True, kw_only=True):
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    def protects(self, pod: Pod) -> bool:
        selector = self.spec.selector
        return selector is not None and selector.selects(pod.metadata.labels)


BUDGETS: Final = Resource(
    group="policy",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    view=DisruptionBudget,
)
