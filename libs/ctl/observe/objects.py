"""Kubernetes objects of a fleet that the GPU Operator looks after: the fields that are read."""

from collections.abc import Mapping
from typing import Final

import msgspec

from libs.contracts.node import UpgradeState
from libs.kube import views
from libs.kube.resources import Resource
from libs.kube.views.placing import Toleration, Volume

DRIVER_PODS: Final = "app.kubernetes.io/component=nvidia-driver"
VALIDATOR_PODS: Final = "app=nvidia-operator-validator"
OWNER_LABEL: Final = "nvidia.com/gpu-operator.driver.owner"
JOBS_SINCE_ANNOTATION: Final = "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time"
VALIDATION_SINCE_ANNOTATION: Final = "nvidia.com/gpu-driver-upgrade-validation-start-time"
PAUSED: Final = "paused-for-driver-upgrade"
DEPLOY_PREFIX: Final = "nvidia.com/gpu.deploy."
DONE: Final = frozenset({UpgradeState.UNKNOWN.value, UpgradeState.UPGRADE_DONE.value})


class Env(views.View, frozen=True, kw_only=True):
    name: str
    value: str = ""


class Container(views.Container, frozen=True, kw_only=True):
    env: tuple[Env, ...] = ()


class PodSpec(views.PodSpec, frozen=True, kw_only=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class Pod(views.Pod, frozen=True, kw_only=True):
    """A pod, with what decides whether and how the operator evicts it."""

    spec: PodSpec = PodSpec()

    @property
    def is_active(self) -> bool:
        return self.status.phase in ("Running", "Pending")

    @property
    def is_ready(self) -> bool:
        """Whether it runs and all its containers are ready."""
        found = self.status.container_statuses
        return self.status.phase == "Running" and bool(found) and all(each.ready for each in found)


class PodTemplate(views.View, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()


class DaemonSetSpec(views.View, frozen=True, kw_only=True):
    template: PodTemplate = PodTemplate()


class DaemonSet(views.DaemonSet, frozen=True, kw_only=True):
    spec: DaemonSetSpec = DaemonSetSpec()


class PodDeletion(views.View, frozen=True, kw_only=True):
    force: bool = False
    timeout_seconds: int = 300
    delete_empty_dir: bool = False


class Drain(PodDeletion, frozen=True, kw_only=True):
    enable: bool = False


class WaitForCompletion(views.View, frozen=True, kw_only=True):
    pod_selector: str = ""
    timeout_seconds: int = 0


class UpgradePolicy(views.View, frozen=True, kw_only=True):
    auto_upgrade: bool = False
    max_parallel_upgrades: int = 1
    max_unavailable: int | str | None = "25%"
    pod_deletion: PodDeletion | None = None
    drain: Drain | None = None
    wait_for_completion: WaitForCompletion | None = None


class DriverSection(views.View, frozen=True, kw_only=True):
    version: str = ""
    use_nvidia_driver_crd: bool = msgspec.field(name="useNvidiaDriverCRD", default=False)
    upgrade_policy: UpgradePolicy | None = None


class ClusterPolicySpec(views.View, frozen=True, kw_only=True):
    driver: DriverSection = DriverSection()


class ClusterPolicy(views.Object, frozen=True, kw_only=True):
    spec: ClusterPolicySpec = ClusterPolicySpec()


class NvidiaDriver(views.Object, frozen=True, kw_only=True):
    spec: DriverSection = DriverSection()


class LabelRequirement(views.View, frozen=True, kw_only=True):
    """One expression of a label selector, as the API server evaluates it."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        return {
            "In": value in self.values,
            "NotIn": value not in self.values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }.get(self.operator, False)


class LabelSelector(views.View, frozen=True, kw_only=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class BudgetSpec(views.View, frozen=True, kw_only=True):
    selector: LabelSelector | None = None


class BudgetStatus(views.View, frozen=True, kw_only=True):
    disruptions_allowed: int = 0


class DisruptionBudget(views.Object, frozen=True, kw_only=True):
    """A PodDisruptionBudget: which pods it counts, and how many of them may be away now."""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    def protects(self, pod: Pod) -> bool:
        """Whether it counts the pod; without a selector it counts none."""
        selector, labels = self.spec.selector, pod.metadata.labels
        return (
            selector is not None
            and self.metadata.namespace == pod.metadata.namespace
            and selector.match_labels.items() <= labels.items()
            and all(each.holds(labels) for each in selector.match_expressions)
        )


PODS: Final = Resource(plural="pods", kind="Pod", view=Pod)
DAEMON_SETS: Final = Resource(group="apps", plural="daemonsets", kind="DaemonSet", view=DaemonSet)
BUDGETS: Final = Resource(
    group="policy",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    view=DisruptionBudget,
)
CLUSTER_POLICIES: Final = Resource(
    group="nvidia.com",
    plural="clusterpolicies",
    kind="ClusterPolicy",
    namespaced=False,
    view=ClusterPolicy,
)
NVIDIA_DRIVERS: Final = Resource(
    group="nvidia.com",
    version="v1alpha1",
    plural="nvidiadrivers",
    kind="NVIDIADriver",
    namespaced=False,
    view=NvidiaDriver,
)
