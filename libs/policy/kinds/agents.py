"""The sections of ClusterPolicy that Sluice's own agents carry out."""

from typing import Annotated

import msgspec

from libs.policy.kinds.common import AgentSection, EnvVar
from libs.policy.shapes import About, PolicyStruct

NO_INSTALLATION = "Sluice writes CDI specs, and installs no programs for containers on the host"
CDI_ALONE = "Sluice gives GPUs to containers by CDI alone"
NO_SETTINGS = "this version's validator takes no settings"
NO_CUDA_POD = "the validator computes on each GPU and MIG device by itself, without a pod"
WITH_WORKLOAD = "WITH_WORKLOAD"
"""The variable that asks for a pod to confirm the check of the device plugin."""
NO_MPS = "Sluice does not support sharing by MPS"
PLUGIN_VARIABLES = (
    "CDI_ANNOTATION_PREFIX",
    "DEVICE_ID_STRATEGY",
    "DEVICE_LIST_STRATEGY",
    "DP_DISABLE_HEALTHCHECKS",
    "DP_ENABLE_HEALTHCHECKS",
    "GDRCOPY_ENABLED",
    "GDS_ENABLED",
    "MOFED_ENABLED",
    "PASS_DEVICE_SPECS",
    "SHARED_DEVICES_ALLOCATION_POLICY",
)
"""The variables of NVIDIA's device plugin that have an effect here."""
NRI_GPUS = "NRI_GPU_CDI_DEVICE_NAMESPACES"
"""The namespaces whose pods may have GPUs by annotation; NVIDIA's toolkit lets all have them."""
NRI_MANAGEMENT = "NRI_MANAGEMENT_CDI_DEVICE_NAMESPACES"
"""The namespaces, beside Sluice's own, whose pods may have management devices by annotation."""
LEGACY_CLASS = "nvidia-legacy"
"""The RuntimeClass of a runtime that Sluice does not have; earlier releases created it."""
RUNTIME_VARIABLES = (
    "CONTAINERD_CONFIG",
    "CONTAINERD_RUNTIME_CLASS",
    "CONTAINERD_SOCKET",
    "NO_RUNTIME_CONFIG",
    "NVIDIA_RUNTIME_NAME",
    "RUNTIME_CONFIG",
    "RUNTIME_DROP_IN_CONFIG",
    "RUNTIME_RESTART_MODE",
    "RUNTIME_SOCKET",
)
"""The variables of NVIDIA's container toolkit that configure a container runtime."""


class Toolkit(AgentSection, frozen=True, kw_only=True):
    """The container toolkit: the driver agent writes CDI specs, and configures the runtime."""

    enabled: Annotated[
        bool,
        About(
            "Whether containers can have GPUs.",
            effect="true: the driver agent keeps CDI specs of the node's GPUs in /var/run/cdi, and"
            " gives containerd or CRI-O the handlers of the RuntimeClasses; false: another toolkit"
            " does that, which reads NVIDIA_VISIBLE_DEVICES unless devicePlugin.env sets another"
            " DEVICE_LIST_STRATEGY, and what was configured is taken back",
        ),
    ] = True
    env: Annotated[
        tuple[EnvVar, ...],
        About(
            "Environment variables.",
            effect="some configure the driver agent (the table at the end); a value that it could"
            " not obey is refused, and other variables have no effect",
        ),
    ] = ()
    install_dir: Annotated[
        str,
        About(
            "The installation directory on the host.",
            no_effect_because=NO_INSTALLATION,
            stored=True,
        ),
    ] = "/usr/local/nvidia"


class PluginConfig(PolicyStruct, frozen=True, kw_only=True):
    """Configurations of the device plugin, by node."""

    name: Annotated[
        str,
        About(
            "The ConfigMap that holds the configurations.",
            effect="mounted into the device plugin, and read for the labels of shared GPUs; the"
            " label nvidia.com/device-plugin.config of a node names the key for that node. MPS is"
            " refused: the condition DevicePluginConfig"
            " names such a key, and one that does not exist",
            unset="none: each device is offered once, and the label has no effect",
        ),
    ] = ""
    default: Annotated[
        str,
        About(
            "The configuration of nodes that do not select one.",
            effect="the key for nodes without the label, and for those that Sluice does not manage",
            unset="none: on such nodes each device is offered once",
        ),
    ] = ""


class Mps(PolicyStruct, frozen=True, kw_only=True):
    """Sharing of a GPU by the CUDA multi-process service."""

    root: Annotated[str, About("The MPS directory on the host.", stored=True)] = "/run/nvidia/mps"


class DevicePlugin(AgentSection, frozen=True, kw_only=True):
    """The kubelet's device plugin."""

    enabled: Annotated[
        bool,
        About(
            "Whether GPUs are offered to pods.",
            effect="deploys the device plugin; false: another one may run",
        ),
    ] = True
    env: Annotated[
        tuple[EnvVar, ...],
        About(
            "Environment variables.",
            effect=f"set in the device plugin: {', '.join(PLUGIN_VARIABLES)}; a value that it could"
            " not read is refused, and other variables have no effect",
        ),
    ] = ()
    config: Annotated[PluginConfig, About("Configurations of the device plugin.")] = PluginConfig()
    mps: Annotated[Mps, About("Sharing by MPS.", no_effect_because=NO_MPS)] = Mps()


CLAIMS_EFFECT = (
    "true: the plugin for claims publishes the GPUs of each node in a ResourceSlice and prepares"
    " claims, and the DeviceClasses gpu.nvidia.com and mig.nvidia.com are created; the device"
    " plugin must be switched off, because both would give the same GPUs to pods"
)


class Dra(PolicyStruct, frozen=True, kw_only=True):
    """Dynamic resource allocation: pods have GPUs by claims."""

    enabled: Annotated[
        bool, About("Whether pods can have GPUs by resource claims.", effect=CLAIMS_EFFECT)
    ] = False


class Gfd(AgentSection, frozen=True, kw_only=True):
    """GPU feature discovery: labels that describe a node's GPUs."""

    enabled: Annotated[
        bool,
        About(
            "Whether nodes get labels that describe their GPUs.",
            effect="the discovery agent reports GPUs, and discovery writes the labels",
        ),
    ] = True


class ValidatorCheck(PolicyStruct, frozen=True, kw_only=True):
    """One check of the validator."""

    env: Annotated[
        tuple[EnvVar, ...],
        About("Environment variables.", no_effect_because=NO_SETTINGS),
    ] = ()


class PluginCheck(PolicyStruct, frozen=True, kw_only=True):
    """The validator's check of the device plugin."""

    env: Annotated[
        tuple[EnvVar, ...],
        About(
            "Environment variables.",
            effect=f"{WITH_WORKLOAD} true: a pod that asks for one GPU has to compute on the node"
            " before its validation passes; other variables have no effect",
        ),
    ] = ()


class CudaCheck(PolicyStruct, frozen=True, kw_only=True):
    """The validator's check of CUDA."""

    env: Annotated[
        tuple[EnvVar, ...],
        About("Environment variables.", no_effect_because=NO_CUDA_POD),
    ] = ()


class Validator(AgentSection, frozen=True, kw_only=True):
    """The checks that prove that a node's driver works."""

    plugin: Annotated[PluginCheck, About("The check of the device plugin.")] = PluginCheck()
    toolkit: Annotated[ValidatorCheck, About("The check of the toolkit.")] = ValidatorCheck()
    driver: Annotated[ValidatorCheck, About("The check of the driver.")] = ValidatorCheck()
    cuda: Annotated[CudaCheck, About("The check of CUDA.")] = CudaCheck()
    vfio_pci: Annotated[
        ValidatorCheck,
        About("The check of VFIO.", no_effect_because="Sluice does not support VFIO"),
    ] = msgspec.field(name="vfioPCI", default=ValidatorCheck())
    vgpu_manager: Annotated[
        ValidatorCheck,
        About("The check of the vGPU manager.", no_effect_because="Sluice does not support vGPU"),
    ] = ValidatorCheck()
    vgpu_devices: Annotated[
        ValidatorCheck,
        About("The check of vGPU devices.", no_effect_because="Sluice does not support vGPU"),
    ] = ValidatorCheck()
