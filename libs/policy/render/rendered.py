"""Settings of rendering, and its results: objects with operand and pool, and failures."""

from enum import StrEnum
from typing import Any

import msgspec

from libs.policy.digest import DriverIdentity
from libs.policy.findings import Finding
from libs.policy.kinds.agents import LEGACY_CLASS
from libs.policy.kinds.common import EnvVar
from libs.policy.wanted import DEFAULT_PULL_POLICY

MANAGED_BY = "sluice"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
"""In the selector of every agent: pods of a GPU Operator bear the same `app` label."""
COMMON_LABELS = {
    MANAGED_BY_LABEL: MANAGED_BY,
    "app.kubernetes.io/part-of": "gpu-operator",
}
"""Labels of every rendered object; scripts select operands by `part-of`."""
CDI_CLASS = "nvidia-cdi"
RUNTIME_CLASSES = ("nvidia", CDI_CLASS, LEGACY_CLASS)
"""The RuntimeClasses that may be deleted. Others are created but never deleted."""
SCRIPT_CONFIG_MAP = "sluice-driver-startup-probe"
EXPORTER = "nvidia-dcgm-exporter"
"""The label `app` of telemetry pods, and the name of their Service and ServiceMonitor."""
VALIDATOR = "nvidia-operator-validator"
"""The label `app` of validator pods."""
NODE_STATUS = "nvidia-node-status-exporter"
"""The name of the Service and the ServiceMonitor for their metrics."""
DEVICE_PLUGIN_APP = "nvidia-device-plugin-daemonset"
DRA_APP = "nvidia-dra-driver-kubelet-plugin"
"""The label of the pods of the plugin for claims."""
MONITOR_KIND = "ServiceMonitor"
MONITOR_GROUP = "monitoring.coreos.com"
"""Of the Prometheus Operator: a cluster may lack the kind."""
POOL_ANNOTATION = "sluice.dev/pool"
TARGET_ANNOTATION = "sluice.dev/target"
INSTALL_ANNOTATION = "sluice.dev/install-digest"
IMAGE_ANNOTATION = "sluice.dev/image"
"""On a driver's DaemonSet: its image, which is brought to nodes before they are drained."""
IMAGE_PULLER = "sluice-image"
"""The label `app` of the pods that bring it, and the beginning of their names."""
IMAGE_LABEL = "sluice.dev/image-of"
"""The driver label, on those pods."""
WAY_BACK = "last-good"
"""The beginning of the names of their containers whose image is that of an earlier driver."""


def agent_selector(app: str) -> dict[str, str]:
    """Return the labels that select the pods of a Sluice agent."""
    return {"app": app, MANAGED_BY_LABEL: MANAGED_BY}


class Operand(StrEnum):
    """The parts of the stack, named as in the GPU Operator's status and logs."""

    PREREQUISITES = "pre-requisites"
    DRIVER = "state-driver"
    TOOLKIT = "state-container-toolkit"
    """The driver agent, which keeps the CDI specs too."""
    VALIDATION = "state-operator-validation"
    DEVICE_PLUGIN = "state-device-plugin"
    DRA = "state-dra-driver"
    TELEMETRY = "state-dcgm-exporter"
    NODE_STATUS = "state-node-status-exporter"
    DISCOVERY = "gpu-feature-discovery"


class RenderedObject(msgspec.Struct, frozen=True, kw_only=True):
    operand: Operand
    pool: str = ""
    """Key of the pool that the object belongs to; empty for objects of the whole cluster."""
    driver: DriverIdentity | None = None
    """Set for driver DaemonSets."""
    object: dict[str, Any]
    """Must not be modified: objects share parts."""

    @property
    def name(self) -> str:
        return self.object["metadata"]["name"]

    @property
    def kind(self) -> str:
        return self.object["kind"]


class RenderFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A wanted driver that could not be rendered."""

    pool: str
    identity: DriverIdentity
    finding: Finding


class RenderResult(msgspec.Struct, frozen=True, kw_only=True):
    objects: tuple[RenderedObject, ...]
    """Sorted by operand, kind and name."""
    failures: tuple[RenderFailure, ...] = ()
    cluster_operands_held: bool = False
    """Whether the cluster-wide policy is missing or has errors. Then operands without a pool are
    not rendered, and existing ones must stay unchanged.
    """


class AgentImages(msgspec.Struct, frozen=True, kw_only=True):
    """Full paths of Sluice's images."""

    discovery: str
    driver: str
    """The image of the driver agent, the device plugin, the plugin for claims and the gate."""
    validator: str
    telemetry: str


class RenderSettings(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    images: AgentImages
    pull_policy: str = DEFAULT_PULL_POLICY
    pull_secrets: tuple[str, ...] = ()
    """Added to every pod."""
    env: tuple[EnvVar, ...] = ()
    """Variables of every agent, such as the address of the bus."""
    telemetry_env: tuple[EnvVar, ...] = ()
    """Variables of the telemetry agent alone: an agent refuses settings that it does not have."""
    bus_ca: str = ""
    """The ConfigMap whose `ca.crt` agents verify the bus with; empty without TLS."""
    brings_images: bool = False
    """Driver images are brought to nodes on request: the scheduler waits for them."""
