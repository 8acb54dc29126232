"""A file of MIG configurations as data."""

from collections.abc import Mapping
from typing import Final

import msgspec

CONFIG_KEY: Final = "config.yaml"
"""The key of a ConfigMap that holds the file."""
DEFAULT_CONFIG: Final = "default-mig-parted-config"
"""The name of the ConfigMap that stands for the built-in file."""


class DeviceId(msgspec.Struct, frozen=True, kw_only=True):
    """A product's PCI id: eight lower-case hexadecimal digits, the device before the vendor.

    Of a filter, also any other word, which is the id of no product.
    """

    device: str
    subsystem: str = ""
    """Empty if every subsystem is meant."""

    def __str__(self) -> str:
        subsystem = f":0x{self.subsystem}" if self.subsystem else ""
        return f"0x{self.device}{subsystem}"


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """How some GPUs of a node are divided."""

    filter: tuple[DeviceId, ...] = ()
    """The products that the entry is for; empty for all."""
    devices: tuple[int, ...] | None = None
    """The indices of the GPUs; None for all."""
    enabled: bool = False
    """Whether MIG mode is on."""
    profiles: Mapping[str, int] = {}
    """The number of MIG devices by profile."""


class MigConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    configs: Mapping[str, tuple[ConfigEntry, ...]]
    """By name. A later entry goes before an earlier one for the same GPU."""
