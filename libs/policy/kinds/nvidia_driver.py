"""NVIDIADriver (`nvidia.com/v1alpha1`): the driver of a pool of nodes."""

from enum import StrEnum
from typing import Annotated

from libs.policy.kinds.common import (
    AGE,
    Conditions,
    ConfigName,
    Kind,
    Labels,
    Metadata,
    ObservedGeneration,
    PrinterColumn,
    Toleration,
)
from libs.policy.kinds.driver import NO_VGPU, DriverBase, Gdrcopy, Gds
from libs.policy.kinds.upgrade_policy import AutoUpgradePolicy
from libs.policy.shapes import About, FreeForm, PolicyStruct, Rule

IMMUTABLE = "self == oldSelf"
NO_SELECTOR_OF_DEFAULT = "!self.default || !has(self.nodeSelector) || size(self.nodeSelector) == 0"


class DriverType(StrEnum):
    """The purpose of a driver."""

    GPU = "gpu"
    VGPU = "vgpu"
    VGPU_HOST_MANAGER = "vgpu-host-manager"


class DriverLicensing(PolicyStruct, frozen=True, kw_only=True):
    """The licence of a vGPU guest driver."""

    name: Annotated[str, About("The ConfigMap with the licence.", deprecated="use secretName")] = ""
    secret_name: Annotated[str, About("The Secret with the licence.")] = ""
    nls_enabled: Annotated[
        bool, About("Whether the licence comes from the NVIDIA License System (NLS).")
    ] = True


class NvidiaDriverSpec(DriverBase, frozen=True, kw_only=True):
    default: Annotated[
        bool,
        About(
            "Whether the driver applies to nodes that no other driver selects.",
            effect="at most one driver is the default, and it has no nodeSelector",
            stored=True,
            required=True,
        ),
    ] = False
    driver_type: Annotated[
        DriverType,
        About(
            "The purpose of the driver; cannot be changed.",
            effect="only gpu is supported",
            refuses="every value but `gpu`",
            stored=True,
            required=True,
            rules=(Rule(IMMUTABLE, "driverType is an immutable field"),),
        ),
    ] = DriverType.GPU
    use_precompiled: Annotated[
        bool,
        About(
            "Whether the driver uses precompiled kernel modules, with one image per kernel;"
            " cannot be changed.",
            effect="the image's tag contains the kernel: one driver DaemonSet per kernel",
            rules=(Rule(IMMUTABLE, "usePrecompiled is an immutable field"),),
        ),
    ] = False
    image: Annotated[
        str,
        About(
            "The image's name, or its full path if repository and version are not set.",
            effect="part of the image's path",
            stored=True,
            required=True,
        ),
    ] = "nvcr.io/nvidia/driver"
    args: Annotated[
        tuple[str, ...],
        About(
            "Arguments of the container.",
            effect="follow the argument init, unless the first is init itself",
        ),
    ] = ()
    gds: Annotated[Gds, About("GPUDirect Storage.")] = Gds()
    gdrcopy: Annotated[Gdrcopy, About("GDRCopy.")] = Gdrcopy()
    upgrade_policy: Annotated[AutoUpgradePolicy, About("How nodes are upgraded.")] = (
        AutoUpgradePolicy()
    )
    node_selector: Annotated[
        Labels,
        About(
            "The labels that a node must have to get this driver.",
            effect="selects among GPU nodes",
            unset="nvidia.com/gpu.present=true",
        ),
    ] = {}
    node_affinity: Annotated[
        FreeForm,
        About(
            "Rules that select nodes.",
            effect="required terms select among the nodes of nodeSelector; preferences have no"
            " effect",
        ),
    ] = {}
    tolerations: Annotated[
        tuple[Toleration, ...], About("Tolerations of the pods.", effect="added to Sluice's own")
    ] = ()
    labels: Annotated[
        Labels, About("Labels.", effect="set on the DaemonSets and pods, except reserved keys")
    ] = {}
    annotations: Annotated[
        Labels, About("Annotations.", effect="set on the DaemonSets and pods")
    ] = {}
    priority_class_name: Annotated[
        str,
        About(
            "The priority class of the pods.",
            effect="set on the pods",
            unset="system-node-critical",
        ),
    ] = ""
    pod_security_context: Annotated[
        FreeForm, About("The security context of the pods.", effect="set on the pods")
    ] = {}
    repo_config: Annotated[ConfigName, About("Package repositories.")] = ConfigName()
    licensing_config: Annotated[
        DriverLicensing, About("The licence of a vGPU guest.", no_effect_because=NO_VGPU)
    ] = DriverLicensing()
    virtual_topology_config: Annotated[
        ConfigName, About("The topology in a virtual machine.", no_effect_because=NO_VGPU)
    ] = ConfigName()


class DriverState(StrEnum):
    """`status.state` of a NVIDIADriver."""

    IGNORED = "ignored"
    READY = "ready"
    NOT_READY = "notReady"
    DISABLED = "disabled"


class NvidiaDriverStatus(PolicyStruct, frozen=True, kw_only=True):
    state: Annotated[DriverState, About("The state in one word.", required=True)] = (
        DriverState.NOT_READY
    )
    namespace: Annotated[str, About("The namespace of the DaemonSets.")] = ""
    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None


class NvidiaDriver(PolicyStruct, frozen=True, kw_only=True):
    """The driver of the nodes that it selects."""

    metadata: Metadata = Metadata()
    spec: NvidiaDriverSpec = NvidiaDriverSpec()


NVIDIA_DRIVER = Kind(
    name="NVIDIADriver",
    group="nvidia.com",
    version="v1alpha1",
    plural="nvidiadrivers",
    singular="nvidiadriver",
    short_names=("nvd", "nvdriver", "nvdrivers"),
    description="The driver of the nodes that it selects.",
    spec=NvidiaDriverSpec,
    status=NvidiaDriverStatus,
    object_type=NvidiaDriver,
    columns=(
        PrinterColumn("Status", ".status.state"),
        PrinterColumn("Default", ".spec.default", "boolean"),
        AGE,
    ),
    rules=(Rule(NO_SELECTOR_OF_DEFAULT, "default NVIDIADriver must not use nodeSelector"),),
)
