"""What rendering gives: objects with what they are for, and what could not be rendered."""

from enum import StrEnum
from typing import Any

import msgspec

from libs.policy.digest import DriverIdentity
from libs.policy.findings import Finding

MANAGED_BY = "sluice"
POOL_ANNOTATION = "sluice.dev/pool"
TARGET_ANNOTATION = "sluice.dev/target"
INSTALL_ANNOTATION = "sluice.dev/install-digest"


class Operand(StrEnum):
    """The parts of the stack, by the names that people know from status and logs."""

    PREREQUISITES = "pre-requisites"
    DRIVER = "state-driver"
    TOOLKIT = "state-container-toolkit"
    """The driver agent, which does toolkit, CDI and MIG too."""
    VALIDATION = "state-operator-validation"
    DEVICE_PLUGIN = "state-device-plugin"
    TELEMETRY = "state-dcgm-exporter"
    DISCOVERY = "gpu-feature-discovery"


class RenderedObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object."""

    operand: Operand
    pool: str = ""
    """The key of the pool that it is for; empty: for all."""
    driver: DriverIdentity | None = None
    """Of a driver's DaemonSet: which driver it is."""
    object: dict[str, Any]
    """To be read, never changed: objects share their parts."""

    @property
    def name(self) -> str:
        """The object's."""
        return self.object["metadata"]["name"]

    @property
    def kind(self) -> str:
        """The object's."""
        return self.object["kind"]


class RenderFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A driver that is wanted and could not be rendered."""

    pool: str
    identity: DriverIdentity
    finding: Finding


class RenderResult(msgspec.Struct, frozen=True, kw_only=True):
    """All operands that are wanted."""

    objects: tuple[RenderedObject, ...]
    """By operand, then by name."""
    failures: tuple[RenderFailure, ...] = ()
    is_held: bool = False
    """The policy of the whole cluster has errors: of operands without a pool nothing is said here,
    and what is there stays as it is.
    """
