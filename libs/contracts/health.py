"""The verdict on the health of a node's GPUs, which the telemetry agent reports."""

from libs.contracts.message import Data, OpenEnum
from libs.contracts.numbers import Count


class HealthState(OpenEnum):
    """How far a GPU can be used. The worst of its findings decides."""

    OK = "ok"
    DEGRADED = "degraded"
    """Usable, but slower or less safe than it should be."""
    FAILED = "failed"
    """Not to be used before it is repaired."""


class HealthRule(OpenEnum):
    """The rules that a GPU can break."""

    UNUSABLE = "unusable"
    """NVML cannot use the GPU: it is hung, lost, or waits for a reset."""
    RECOVERY_ACTION = "recovery-action"
    XID = "xid"
    ECC = "ecc"
    ROW_REMAP = "row-remap"
    NVLINK = "nvlink"
    THERMAL = "thermal"
    POWER = "power"


class HealthFinding(Data, frozen=True, kw_only=True):
    """One rule that a GPU breaks."""

    rule: HealthRule
    state: HealthState
    message: str
    """What is wrong, for people."""
    remedy: str = ""
    since: float = 0.0
    """Unix seconds, by the node's clock."""
    xid: Count | None = None
    """The XID, where one broke the rule."""
    gpu_instances: tuple[Count, ...] = ()
    """The MIG GPU instances of which it is true; empty: of the whole GPU. One that cannot be used
    before it is repaired degrades the GPU, because the others can be.
    """


class GpuHealth(Data, frozen=True, kw_only=True):
    """The verdict on one GPU."""

    uuid: str
    """Empty if it was never known."""
    index: Count
    pci: str = ""
    state: HealthState = HealthState.OK
    findings: tuple[HealthFinding, ...] = ()
    """The worst first."""


class Health(Data, frozen=True, kw_only=True):
    """The verdict on all GPUs of a node. It stays while the agent has released the GPUs."""

    gpus: tuple[GpuHealth, ...] = ()
