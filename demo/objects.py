"""Objects of Kubernetes of which the demo reads more than the command does."""

from typing import Any, Final

import msgspec

from libs.kube.resources import Resource
from libs.kube.views import Object, Terminated, View
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER


class DriverSpec(View, frozen=True, kw_only=True):
    version: str = ""
    upgrade_policy: dict[str, Any] = {}


class DriverPolicy(Object, frozen=True, kw_only=True):
    spec: DriverSpec = DriverSpec()


class _PodSpec(View, frozen=True, kw_only=True):
    node_name: str = ""


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


PODS: Final = Resource(plural="pods", kind="Pod", view=WatchedPod)
DRIVERS: Final = Resource(
    group=NVIDIA_DRIVER.group,
    version=NVIDIA_DRIVER.version,
    plural=NVIDIA_DRIVER.plural,
    kind=NVIDIA_DRIVER.name,
    namespaced=False,
    view=DriverPolicy,
)
