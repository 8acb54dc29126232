"""GPUClusterPolicy (`gpu.nvidia.com/v1`): a short cluster-wide policy with host drivers."""

from typing import Annotated

from libs.policy.kinds.agents import Dra
from libs.policy.kinds.cluster_policy import PolicyState
from libs.policy.kinds.common import AGE, Conditions, Kind, Metadata, PrinterColumn
from libs.policy.kinds.mig import MIG_EFFECT
from libs.policy.shapes import About, PolicyStruct

NO_HOST_INSTALLATION = "this version of Sluice installs no drivers on hosts"
NO_CUDA = "this version's validator does not compare CUDA versions"


class HostDriver(PolicyStruct, frozen=True, kw_only=True):
    """A driver that the driver agent installs on the host."""

    enabled: Annotated[
        bool,
        About(
            "Whether the driver is installed.",
            effect="false: drivers count as pre-installed; they are validated and never changed",
        ),
    ] = True
    version: Annotated[
        str,
        About(
            "The driver's version.",
            effect=f"names the driver that nodes wait for: {NO_HOST_INSTALLATION}",
        ),
    ] = ""


class Cuda(PolicyStruct, frozen=True, kw_only=True):
    """The CUDA version that containers rely on."""

    enabled: Annotated[
        bool, About("Whether a CUDA version is required.", no_effect_because=NO_CUDA)
    ] = True
    version: Annotated[
        str,
        About(
            "The CUDA version that the driver must support.",
            no_effect_because=NO_CUDA,
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

    enabled: Annotated[
        bool,
        About(
            "Whether MIG layouts are applied to nodes.",
            effect=f"{MIG_EFFECT}; false: labels about MIG are left alone",
        ),
    ] = True


class GpuClusterPolicySpec(PolicyStruct, frozen=True, kw_only=True):
    driver: Annotated[HostDriver, About("The driver.")] = HostDriver()
    cuda: Annotated[Cuda, About("The CUDA version.")] = Cuda()
    device_plugin: Annotated[HostDevicePlugin, About("The device plugin.")] = HostDevicePlugin()
    dra: Annotated[Dra, About("GPUs by resource claims, instead of the device plugin.")] = Dra()
    mig_manager: Annotated[HostMigManager, About("MIG changes.")] = HostMigManager()


class GpuClusterPolicyStatus(PolicyStruct, frozen=True, kw_only=True):
    state: Annotated[PolicyState, About("The state in one word.", required=True)] = (
        PolicyState.NOT_READY
    )
    conditions: Conditions = ()


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
