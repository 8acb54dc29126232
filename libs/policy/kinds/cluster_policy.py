"""ClusterPolicy (`nvidia.com/v1`): driver and operands of the whole cluster."""

from enum import StrEnum
from typing import Annotated

import msgspec

from libs.policy.kinds.agents import CDI_ALONE, DevicePlugin, Dra, Gfd, Toolkit, Validator
from libs.policy.kinds.common import (
    AGE,
    NO_OPERATOR,
    Conditions,
    Kind,
    Labels,
    Metadata,
    ObservedGeneration,
    PrinterColumn,
)
from libs.policy.kinds.daemonsets import Daemonsets
from libs.policy.kinds.driver import DriverSection, Gdrcopy, Gds
from libs.policy.kinds.exporter import NO_MONITOR, DcgmExporter
from libs.policy.kinds.mig import MigManager, MigSection
from libs.policy.kinds.node_status import NodeStatusExporter
from libs.policy.kinds.unsupported import (
    NO_VMS,
    CcManager,
    Dcgm,
    InitContainer,
    KataManager,
    OperatorMetrics,
    Psp,
    SandboxDevicePlugin,
    SandboxWorkloads,
    VfioManager,
    VgpuDeviceManager,
    VgpuManager,
)
from libs.policy.shapes import About, PolicyStruct

NO_DCGM = "Sluice runs no DCGM host engine: the telemetry agent reads metrics from NVML"
NO_VFIO = "Sluice does not support VFIO"
NO_VGPU = "Sluice does not support vGPU"
NO_KATA = "Sluice does not support Kata"
NO_CC = "Sluice does not support confidential computing"
NO_OPENSHIFT = "Sluice does not use OpenShift's driver toolkit"
NO_PSP = "Kubernetes no longer has pod security policies"
NO_PSA = "the namespace and its pod security labels are created when Sluice is installed"


class Operator(PolicyStruct, frozen=True, kw_only=True):
    """`spec.operator`."""

    default_runtime: Annotated[
        str,
        About(
            "The container runtime.",
            no_effect_because="the runtime is read from each node",
            deprecated="leave it out",
        ),
    ] = ""
    runtime_class: Annotated[
        str,
        About(
            "The RuntimeClass for pods with GPUs.",
            effect="a RuntimeClass with this name is created where a node knows the handler",
            stored=True,
        ),
    ] = "nvidia"
    init_container: Annotated[
        InitContainer,
        About(
            "The init container of operands.",
            no_effect_because="operands no longer have one",
            deprecated="leave it out",
        ),
    ] = InitContainer()
    labels: Annotated[
        Labels, About("Labels of the operator's pods.", no_effect_because=NO_OPERATOR)
    ] = {}
    annotations: Annotated[
        Labels, About("Annotations of the operator's pods.", no_effect_because=NO_OPERATOR)
    ] = {}
    metrics: Annotated[
        OperatorMetrics, About("Metrics of the operator.", no_effect_because=NO_MONITOR)
    ] = OperatorMetrics()
    use_ocp_driver_toolkit: Annotated[
        bool,
        About(
            "Whether OpenShift's toolkit builds the driver.",
            no_effect_because=NO_OPENSHIFT,
            unsupported=True,
        ),
    ] = msgspec.field(name="use_ocp_driver_toolkit", default=False)


class Cdi(PolicyStruct, frozen=True, kw_only=True):
    """The Container Device Interface."""

    enabled: Annotated[
        bool,
        About(
            "Whether containers get GPUs through the Container Device Interface.",
            effect="true: the RuntimeClass nvidia-cdi is created where a node knows its handler;"
            " nvidia-legacy is not; false: no CDI specs are written, and the policy is not ready"
            " while the toolkit is switched on",
            stored=True,
        ),
    ] = True
    default: Annotated[
        bool,
        About(
            "Whether CDI is the runtime's default.",
            no_effect_because=CDI_ALONE,
            deprecated="use cdi.enabled",
            stored=True,
        ),
    ] = False
    nri_plugin_enabled: Annotated[
        bool,
        About(
            "Whether an NRI plugin gives containers the CDI devices that annotations name.",
            effect="true: the driver agent is a plugin of the container runtime, in the namespaces"
            " that toolkit.env lists (docs/compatibility.md#nri)",
            stored=True,
        ),
    ] = False


class Psa(PolicyStruct, frozen=True, kw_only=True):
    """Pod security labels of the namespace."""

    enabled: Annotated[
        bool, About("Whether the labels are written.", no_effect_because=NO_PSA, unsupported=True)
    ] = False


class HostPaths(PolicyStruct, frozen=True, kw_only=True):
    """Paths on the host."""

    root_fs: Annotated[
        str,
        About(
            "The host's root directory.", effect="containers mount it as the host's root", unset="/"
        ),
    ] = msgspec.field(name="rootFS", default="")
    driver_install_dir: Annotated[
        str,
        About(
            "The root directory of the installed driver.",
            effect="driver containers mount it, the driver agent empties it before a swap, and all"
            " agents look there first for the driver's libraries",
            unset="/run/nvidia/driver",
        ),
    ] = ""
    kubelet_root_dir: Annotated[
        str,
        About(
            "The kubelet's directory.",
            effect="the device plugin registers there, and the telemetry agent asks there which"
            " pods use GPUs",
            stored=True,
        ),
    ] = "/var/lib/kubelet"


def _required(description: str, reason: str = "") -> About:
    return About(description, no_effect_because=reason, required=True)


class ClusterPolicySpec(PolicyStruct, frozen=True, kw_only=True):
    operator: Annotated[Operator, _required("The operator itself.")] = Operator()
    daemonsets: Annotated[Daemonsets, _required("Settings of all DaemonSets.")] = Daemonsets()
    driver: Annotated[DriverSection, _required("The driver.")] = DriverSection()
    toolkit: Annotated[Toolkit, _required("The container toolkit.")] = Toolkit()
    device_plugin: Annotated[DevicePlugin, _required("The device plugin.")] = DevicePlugin()
    dra: Annotated[
        Dra,
        About(
            "GPUs by resource claims. The section devicePlugin has the other settings of its pods;"
            " NVIDIA's ClusterPolicy does not have this one."
        ),
    ] = Dra()
    dcgm_exporter: Annotated[DcgmExporter, _required("GPU metrics.")] = DcgmExporter()
    dcgm: Annotated[Dcgm, _required("The DCGM host engine.", NO_DCGM)] = Dcgm()
    node_status_exporter: Annotated[
        NodeStatusExporter,
        _required(
            "Metrics of node validation. The validator's agent serves them, and the section"
            " validator takes precedence over this one, except with imagePullPolicy: IfNotPresent."
        ),
    ] = NodeStatusExporter()
    gfd: Annotated[Gfd, _required("GPU feature discovery: labels that describe GPUs.")] = Gfd()
    mig: Annotated[MigSection, About("MIG settings.")] = MigSection()
    mig_manager: Annotated[
        MigManager,
        About(
            "MIG changes. The toolkit's agent carries them out, and the toolkit section takes"
            " precedence over this one, except with imagePullPolicy: IfNotPresent."
        ),
    ] = MigManager()
    psp: Annotated[Psp, About("Pod security policies.", no_effect_because=NO_PSP)] = Psp()
    psa: Annotated[Psa, About("Pod security labels.")] = Psa()
    validator: Annotated[Validator, About("The validator's checks.")] = Validator()
    gds: Annotated[Gds, About("GPUDirect Storage.")] = Gds()
    gdrcopy: Annotated[Gdrcopy, About("GDRCopy.")] = Gdrcopy()
    sandbox_workloads: Annotated[SandboxWorkloads, About("GPUs for virtual machines.")] = (
        SandboxWorkloads()
    )
    vfio_manager: Annotated[VfioManager, About("VFIO.", no_effect_because=NO_VFIO)] = VfioManager()
    sandbox_device_plugin: Annotated[
        SandboxDevicePlugin, About("GPUs for virtual machines.", no_effect_because=NO_VMS)
    ] = SandboxDevicePlugin()
    kata_sandbox_device_plugin: Annotated[
        SandboxDevicePlugin, About("GPUs for Kata.", no_effect_because=NO_KATA)
    ] = SandboxDevicePlugin()
    vgpu_manager: Annotated[VgpuManager, About("The vGPU host.", no_effect_because=NO_VGPU)] = (
        VgpuManager()
    )
    vgpu_device_manager: Annotated[
        VgpuDeviceManager, About("vGPU devices.", no_effect_because=NO_VGPU)
    ] = VgpuDeviceManager()
    cdi: Annotated[Cdi, About("The Container Device Interface.")] = Cdi()
    kata_manager: Annotated[KataManager, About("Kata.", no_effect_because=NO_KATA)] = KataManager()
    cc_manager: Annotated[CcManager, About("Confidential computing.", no_effect_because=NO_CC)] = (
        CcManager()
    )
    host_paths: Annotated[HostPaths, About("Paths on the host.")] = HostPaths()


class PolicyState(StrEnum):
    """`status.state` of a ClusterPolicy."""

    IGNORED = "ignored"
    READY = "ready"
    NOT_READY = "notReady"


class ClusterPolicyStatus(PolicyStruct, frozen=True, kw_only=True):
    state: Annotated[PolicyState, About("The state in one word.", required=True)] = (
        PolicyState.NOT_READY
    )
    namespace: Annotated[str, About("The namespace of the operands.")] = ""
    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None


class ClusterPolicy(PolicyStruct, frozen=True, kw_only=True):
    """One driver and one set of operands for every GPU node."""

    metadata: Metadata = Metadata()
    spec: ClusterPolicySpec = ClusterPolicySpec()


CLUSTER_POLICY = Kind(
    name="ClusterPolicy",
    group="nvidia.com",
    version="v1",
    plural="clusterpolicies",
    singular="clusterpolicy",
    description="One driver and one set of operands for every GPU node of the cluster.",
    spec=ClusterPolicySpec,
    status=ClusterPolicyStatus,
    object_type=ClusterPolicy,
    columns=(PrinterColumn("Status", ".status.state"), AGE),
)
