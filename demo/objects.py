"""The objects of Kubernetes that the demo follows, with the fields that it reads."""

from typing import Any, Final

import msgspec

from libs.contracts.rollout import GROUP, KIND, PLURAL, VERSION, RolloutSpec, RolloutStatus
from libs.kube.resources import Resource
from libs.kube.views import Node, Object, Terminated, View
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER


class DriverSpec(View, frozen=True, kw_only=True):
    version: str = ""
    upgrade_policy: dict[str, Any] = {}


class DriverPolicy(Object, frozen=True, kw_only=True):
    spec: DriverSpec = DriverSpec()


class Rollout(Object, frozen=True, kw_only=True):
    spec: RolloutSpec = RolloutSpec()
    status: RolloutStatus = RolloutStatus()


class _Container(View, frozen=True, kw_only=True):
    name: str
    image: str = ""


class _PodSpec(View, frozen=True, kw_only=True):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()


class _Template(View, frozen=True, kw_only=True):
    spec: _PodSpec = _PodSpec()


class _DaemonSetSpec(View, frozen=True, kw_only=True):
    template: _Template = _Template()


class DriverDaemonSet(Object, frozen=True, kw_only=True):
    spec: _DaemonSetSpec = _DaemonSetSpec()


class _Terminated(Terminated, frozen=True, kw_only=True):
    container_id: str = msgspec.field(name="containerID", default="")


class _ContainerState(View, frozen=True, kw_only=True):
    terminated: _Terminated | None = None


class _ContainerStatus(View, frozen=True, kw_only=True):
    name: str
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _PodStatus(View, frozen=True, kw_only=True):
    phase: str = ""
    container_statuses: tuple[_ContainerStatus, ...] = ()


class WatchedPod(Object, frozen=True, kw_only=True):
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


NODES: Final = Resource(plural="nodes", kind="Node", namespaced=False, view=Node)
PODS: Final = Resource(plural="pods", kind="Pod", view=WatchedPod)
DAEMON_SETS: Final = Resource(
    group="apps", plural="daemonsets", kind="DaemonSet", view=DriverDaemonSet
)
DRIVERS: Final = Resource(
    group=NVIDIA_DRIVER.group,
    version=NVIDIA_DRIVER.version,
    plural=NVIDIA_DRIVER.plural,
    kind=NVIDIA_DRIVER.name,
    namespaced=False,
    view=DriverPolicy,
)
ROLLOUTS: Final = Resource(
    group=GROUP, version=VERSION, plural=PLURAL, kind=KIND, namespaced=False, view=Rollout
)
