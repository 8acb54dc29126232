"""The fields of `Device`, one object per GPU. Only discovery's cluster role writes them.

Names are camel case on the wire, as in Kubernetes.
"""

import msgspec

from libs.contracts.numbers import Count

GROUP = "gpu.nvidia.com"
VERSION = "v1"
KIND = "Device"
PLURAL = "devices"

UNKNOWN = "unknown"
"""The health of a GPU without a verdict; the other states are those of `HealthState`."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    pass


class DeviceSpec(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What identifies a GPU for people."""

    node: str
    """The node of the GPU."""
    index: Count
    """The GPU's index in NVML."""
    product: str
    """The GPU's model, as in the label nvidia.com/gpu.product."""
    memory: Count = 0
    """The GPU's memory in MiB."""


class DeviceHealth(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The verdict of the node's telemetry agent."""

    state: str
    """The state: ok, degraded, failed or unknown."""
    reason: str = ""
    """The reason in one word."""
    message: str = ""
    """What is wrong."""
    remedy: str = ""
    """What to do."""
    since: str = ""
    """Since when the GPU is in this state."""


class MigDevice(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A MIG device of the GPU."""

    uuid: str
    """The UUID of the MIG device."""
    profile: str = ""
    """The profile of the MIG device."""
    gpu_instance: Count = 0
    """The id of the GPU instance."""
    compute_instance: Count = 0
    """The id of the compute instance."""
    memory: Count = 0
    """The memory of the MIG device in MiB."""


class DeviceMig(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The MIG state of a GPU."""

    capable: bool = False
    """Whether the GPU supports MIG."""
    mode: str = ""
    """Enabled or Disabled; empty without MIG."""
    pending: str = ""
    """The mode after the next reset of the GPU, if it differs."""
    devices: tuple[MigDevice, ...] = ()
    """The MIG devices of the GPU."""


class DeviceNvlink(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The NVLinks of a GPU."""

    links: Count = 0
    """The number of NVLinks."""
    down: tuple[Count, ...] = ()
    """The numbers of the NVLinks that are not active."""


class DeviceFabric(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The NVLink fabric that a GPU belongs to."""

    state: str = ""
    """How far the registration with the fabric manager is."""
    clique: str = ""
    """UUID of the fabric's cluster and id of the clique."""


class DeviceStatus(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What is known of a GPU, and its health."""

    uuid: str = ""
    """The GPU's UUID."""
    pci: str = ""
    """The GPU's PCI address."""
    serial: str = ""
    """The serial number of the GPU's board."""
    driver: str = ""
    """The version of the loaded driver."""
    compute_capability: str = ""
    """The GPU's compute capability."""
    health: DeviceHealth | None = None
    """The verdict on the GPU's health."""
    mig: DeviceMig | None = None
    """The GPU's MIG state."""
    nvlink: DeviceNvlink | None = None
    """The GPU's NVLinks."""
    fabric: DeviceFabric | None = None
    """The NVLink fabric that the GPU belongs to."""
