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
    index: Count
    product: str
    memory: Count = 0
    """In MiB."""


class DeviceHealth(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The verdict of the node's telemetry agent."""

    state: str
    reason: str = ""
    message: str = ""
    remedy: str = ""
    since: str = ""


class MigDevice(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A MIG device of the GPU."""

    uuid: str
    profile: str = ""
    gpu_instance: Count = 0
    compute_instance: Count = 0
    memory: Count = 0


class DeviceMig(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The MIG state of a GPU."""

    capable: bool = False
    mode: str = ""
    pending: str = ""
    devices: tuple[MigDevice, ...] = ()


class DeviceNvlink(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The NVLinks of a GPU."""

    links: Count = 0
    down: tuple[Count, ...] = ()


class DeviceFabric(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The NVLink fabric that a GPU belongs to."""

    state: str = ""
    clique: str = ""


class DeviceStatus(_Part, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What is known of a GPU, and its health."""

    uuid: str = ""
    pci: str = ""
    serial: str = ""
    driver: str = ""
    compute_capability: str = ""
    health: DeviceHealth | None = None
    mig: DeviceMig | None = None
    nvlink: DeviceNvlink | None = None
    fabric: DeviceFabric | None = None
