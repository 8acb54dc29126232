"""Identities on the bus: a writer and, for components, its node."""

from enum import StrEnum

import msgspec


class Writer(StrEnum):
    """Every client that may publish. The first six run on nodes, once per node."""

    DISCOVERY = "discovery"
    DRIVER = "driver"
    PLUGIN = "plugin"
    DRA = "dra"
    VALIDATOR = "validator"
    TELEMETRY = "telemetry"
    DISCOVERY_CLUSTER = "discovery-cluster"
    DRIVER_CLUSTER = "driver-cluster"
    VALIDATOR_CLUSTER = "validator-cluster"
    TELEMETRY_CLUSTER = "telemetry-cluster"
    SCHEDULER = "scheduler"
    SIGN_IN = "sign-in"
    """Admits the others to NATS. It takes part in no plane."""
    CTL = "ctl"
    """People. They send queries and read events; they make changes through Kubernetes."""


COMPONENTS = (
    Writer.DISCOVERY,
    Writer.DRIVER,
    Writer.PLUGIN,
    Writer.DRA,
    Writer.VALIDATOR,
    Writer.TELEMETRY,
)
"""The writers that run on nodes."""

CLUSTER_WRITERS = tuple(writer for writer in Writer if writer not in COMPONENTS)

CHECK_SENDERS = (Writer.SCHEDULER,)
"""The writers that may send checks to components."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of one connection."""

    cluster: str = "default"
    writer: Writer
    node: str = ""
    """The node's name for components; empty for all other writers."""

    def __post_init__(self) -> None:
        if (self.writer in COMPONENTS) != bool(self.node):
            need = "needs a node" if self.writer in COMPONENTS else "belongs to no node"
            raise ValueError(f"identity {self.writer}: it {need}; node is {self.node!r}")

    def __str__(self) -> str:
        return f"{self.cluster}/{self.node or '-'}/{self.writer}"
