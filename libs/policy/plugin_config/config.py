"""The settings of the device plugin, with the names and values of NVIDIA's. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

PREFIX: Final = "nvidia.com/"
"""Of the names of all resources."""
GPU: Final = f"{PREFIX}gpu"
ANNOTATION_PREFIX: Final = "cdi.k8s.io/"


class MigStrategy(StrEnum):
    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class ListStrategy(StrEnum):
    """How a container runtime is told the devices of a container."""

    CDI_CRI = "cdi-cri"
    CDI_ANNOTATIONS = "cdi-annotations"
    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"


CDI: Final = frozenset((ListStrategy.CDI_CRI, ListStrategy.CDI_ANNOTATIONS))


class IdStrategy(StrEnum):
    """How the environment of a container names devices."""

    UUID = "uuid"
    INDEX = "index"


class SharingPolicy(StrEnum):
    """Which of the shared devices a container gets."""

    DISTRIBUTED = "distributed"
    """One with the fewest containers."""
    PACKED = "packed"
    """One with the most containers."""


class TimeSlicing(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of which a device is offered several times."""

    replicas: Mapping[str, int] = {}
    """By name of the resource."""
    rename: bool = False
    """Whether the shared resource is `<name>.shared`."""
    one_per_container: bool = False
    """Whether a container that requests several is refused."""


class PluginConfig(msgspec.Struct, frozen=True, kw_only=True):
    mig_strategy: MigStrategy = MigStrategy.NONE
    list_strategies: frozenset[ListStrategy] = frozenset((ListStrategy.CDI_CRI,))
    id_strategy: IdStrategy = IdStrategy.UUID
    pass_device_specs: bool = False
    annotation_prefix: str = ANNOTATION_PREFIX
    sharing_policy: SharingPolicy = SharingPolicy.DISTRIBUTED
    gdrcopy: bool = False
    gds: bool = False
    mofed: bool = False
    imex: bool = False
    """Whether containers get the IMEX channel 0, where the machine has it."""
    imex_required: bool = False
    """Whether no GPU is offered while the machine lacks that channel."""
    time_slicing: TimeSlicing = TimeSlicing()

    @property
    def uses_cdi(self) -> bool:
        return not CDI.isdisjoint(self.list_strategies)


class RefusedConfig(Exception):
    """The configuration cannot be used. The text says where, why, and what to do."""
