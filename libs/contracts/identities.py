"""Who speaks on the bus. An identity is a writer, and on a node the node it belongs to."""

from enum import StrEnum

import msgspec


class Writer(StrEnum):
    """Everybody who may write anything. The first five live on nodes, once per node."""

    DISCOVERY = "discovery"
    DRIVER = "driver"
    PLUGIN = "plugin"
    VALIDATOR = "validator"
    TELEMETRY = "telemetry"
    DISCOVERY_CLUSTER = "discovery-cluster"
    DRIVER_CLUSTER = "driver-cluster"
    VALIDATOR_CLUSTER = "validator-cluster"
    TELEMETRY_CLUSTER = "telemetry-cluster"
    SCHEDULER = "scheduler"
    CTL = "ctl"
    """People. They ask and read events; what they want changed they write to Kubernetes."""


COMPONENTS = (
    Writer.DISCOVERY,
    Writer.DRIVER,
    Writer.PLUGIN,
    Writer.VALIDATOR,
    Writer.TELEMETRY,
)
"""The writers that live on nodes."""

CLUSTER_WRITERS = tuple(writer for writer in Writer if writer not in COMPONENTS)

CHECK_SENDERS = (Writer.SCHEDULER, Writer.DRIVER_CLUSTER, Writer.VALIDATOR_CLUSTER)
"""Who may put a read-only check to a component."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """One connection's name."""

    cluster: str = "default"
    writer: Writer
    node: str = ""
    """The node's name for a component, empty for everybody else."""

    def __post_init__(self) -> None:
        if (self.writer in COMPONENTS) != bool(self.node):
            need = "needs a node" if self.writer in COMPONENTS else "belongs to no node"
            raise ValueError(f"identity {self.writer}: it {need}; node is {self.node!r}")

    def __str__(self) -> str:
        return f"{self.cluster}/{self.node or '-'}/{self.writer}"
