"""`spec.mig` and `spec.migManager` of a ClusterPolicy: how GPUs are divided."""

from enum import StrEnum
from typing import Annotated

from libs.policy.kinds.common import AgentSection, EnvVar
from libs.policy.shapes import About, PolicyStruct

NO_MIG_DEFAULT = (
    "the GPUs of a node without the label nvidia.com/mig.config stay divided as they are: set the"
    " label to all-disabled where MIG is to be off"
)
WITH_REBOOT = "WITH_REBOOT"
DividesGpus = Annotated[
    bool,
    About(
        "Whether MIG layouts are applied to nodes.",
        effect="true: the GPUs of a node are divided as its label nvidia.com/mig.config says;"
        " false: labels about MIG are left alone",
    ),
]
NO_GPU_CLIENTS = "the driver agent itself finds the processes that use a GPU"


class MigStrategy(StrEnum):
    """How MIG devices are offered to pods."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class MigSection(PolicyStruct, frozen=True, kw_only=True):
    """MIG settings."""

    strategy: Annotated[
        MigStrategy | None,
        About(
            "How MIG devices are shown in the labels of nodes.",
            unset="none",
            effect="discovery labels nodes for this strategy, and the device plugin offers MIG"
            " devices by it",
        ),
    ] = None


class MigManagerConfig(PolicyStruct, frozen=True, kw_only=True):
    """The available MIG layouts."""

    name: Annotated[
        str,
        About(
            "The ConfigMap that holds the MIG layouts.",
            effect="its key config.yaml has the configurations that labels of nodes can name",
            unset="the layouts that come with Sluice",
        ),
    ] = ""
    default: Annotated[
        str,
        About(
            "The layout of nodes that do not select one.",
            no_effect_because=NO_MIG_DEFAULT,
            stored=True,
            choices=("all-disabled", ""),
        ),
    ] = "all-disabled"


class GpuClientsConfig(PolicyStruct, frozen=True, kw_only=True):
    """Host services that must release GPUs before MIG changes."""

    name: Annotated[str, About("The ConfigMap with the names of the services.")] = ""


class MigManager(AgentSection, frozen=True, kw_only=True):
    """MIG changes on nodes, made by the driver agent."""

    enabled: DividesGpus = True
    env: Annotated[
        tuple[EnvVar, ...],
        About(
            "Environment variables.",
            effect=f"{WITH_REBOOT}=true accepts layouts that only a reboot of the node completes,"
            " which Sluice does not make; other variables have no effect",
        ),
    ] = ()
    config: Annotated[MigManagerConfig, About("The MIG layouts.")] = MigManagerConfig()
    gpu_clients_config: Annotated[
        GpuClientsConfig, About("Host services that use GPUs.", no_effect_because=NO_GPU_CLIENTS)
    ] = GpuClientsConfig()
