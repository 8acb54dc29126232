"""GPUClusterPolicy (`gpu.nvidia.com/v1`): a short cluster-wide policy with host drivers."""

from typing import Annotated

from libs.policy.kinds.agents import Dra
from libs.policy.kinds.cluster_policy import PolicyState
from libs.policy.kinds.common import (
    AGE,
    Conditions,
    Kind,
    Metadata,
    ObservedGeneration,
    PrinterColumn,
)
from libs.policy.kinds.driver import InstallsDriver
from libs.policy.kinds.mig import DividesGpus
from libs.policy.shapes import About, PolicyStruct

WITH_DRIVER = "together with the driver, if spec.driver.enabled"


class HostDriver(PolicyStruct, frozen=True, kw_only=True):
    """A driver that the driver agent installs on the host."""

    enabled: InstallsDriver = True
    version: Annotated[
        str,
        About(
            "The driver's version.",
            effect="the artefact that ConfigMap sluice-driver-artefacts names for it and for the"
            " node's system is installed on the host",
        ),
    ] = ""


class Cuda(PolicyStruct, frozen=True, kw_only=True):
    """CUDA's libraries on the host."""

    enabled: Annotated[
        bool,
        About(
            "Whether CUDA's libraries are installed on the host.",
            effect=f"true, with a version: they are installed {WITH_DRIVER}",
        ),
    ] = True
    version: Annotated[
        str,
        About(
            "The version of CUDA.",
            effect="the artefact that ConfigMap sluice-driver-artefacts names for it is installed"
            f" on the host {WITH_DRIVER}",
            refuses="what is not a CUDA version",
        ),
    ] = ""


class HostDevicePlugin(PolicyStruct, frozen=True, kw_only=True):
    """The kubelet's device plugin."""

    enabled: Annotated[
        bool,
        About(
            "Whether GPUs are offered to pods.",
            effect="deploys the device plugin",
        ),
    ] = True


class HostMigManager(PolicyStruct, frozen=True, kw_only=True):
    """MIG changes on nodes."""

    enabled: DividesGpus = True


class GpuClusterPolicySpec(PolicyStruct, frozen=True, kw_only=True):
    driver: Annotated[HostDriver, About("The driver.")] = HostDriver()
    cuda: Annotated[Cuda, About("CUDA's libraries on the host.")] = Cuda()
    device_plugin: Annotated[HostDevicePlugin, About("The device plugin.")] = HostDevicePlugin()
    dra: Annotated[Dra, About("GPUs by resource claims, instead of the device plugin.")] = Dra()
    mig_manager: Annotated[HostMigManager, About("MIG changes.")] = HostMigManager()


class GpuClusterPolicyStatus(PolicyStruct, frozen=True, kw_only=True):
    state: Annotated[PolicyState, About("The state in one word.", required=True)] = (
        PolicyState.NOT_READY
    )
    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None


class GpuClusterPolicy(PolicyStruct, frozen=True, kw_only=True):
    """One driver on the host of every GPU node."""

    metadata: Metadata = Metadata()
    spec: GpuClusterPolicySpec = GpuClusterPolicySpec()


GPU_CLUSTER_POLICY = Kind(
    name="GPUClusterPolicy",
    group="gpu.nvidia.com",
    version="v1",
    plural="gpuclusterpolicies",
    singular="gpuclusterpolicy",
    description="One driver, installed on the host, for every GPU node of the cluster.",
    spec=GpuClusterPolicySpec,
    status=GpuClusterPolicyStatus,
    object_type=GpuClusterPolicy,
    columns=(
        PrinterColumn("Status", ".status.state"),
        PrinterColumn("Driver", ".spec.driver.version"),
        AGE,
    ),
)
