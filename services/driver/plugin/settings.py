"""The settings of the device plugin's process. A setting goes before the configuration file."""

from msgspec.structs import replace

from libs.bus.agent import AgentSettings
from libs.policy.plugin_config.config import (
    IdStrategy,
    ListStrategy,
    MigStrategy,
    PluginConfig,
    SharingPolicy,
)


class PluginSettings(AgentSettings, frozen=True, kw_only=True):
    """The fields are named as in the environment that NVIDIA's device plugin has."""

    device_plugins: str = ""
    """The folder of the kubelet's sockets for device plugins; if empty, nothing is offered."""
    pod_resources: str = ""
    """The kubelet's socket of the pod-resources API, which tells which GPUs pods have by claims; if
    empty, none is expected to be.
    """
    plugin_config_dir: str = ""
    """The folder of configuration files in the format of NVIDIA's; if empty, there are none."""
    plugin_config: str = ""
    """The name of the file for a node whose label names none; if empty, there is none."""
    mig_strategy: MigStrategy | None = None
    device_list_strategy: tuple[ListStrategy, ...] = ()
    device_id_strategy: IdStrategy | None = None
    pass_device_specs: bool | None = None
    cdi_annotation_prefix: str = ""
    shared_devices_allocation_policy: SharingPolicy | None = None
    gdrcopy_enabled: bool | None = None
    gds_enabled: bool | None = None
    mofed_enabled: bool | None = None
    dp_disable_healthchecks: str = ""
    """XIDs that do not count, or `all`."""
    dp_enable_healthchecks: str = ""
    """XIDs that count whatever they mean, or `all`."""


def with_settings(config: PluginConfig, settings: PluginSettings) -> PluginConfig:
    """Return the configuration with the settings that are set."""
    values: dict[str, object] = {
        "mig_strategy": settings.mig_strategy,
        "list_strategies": frozenset(settings.device_list_strategy) or None,
        "id_strategy": settings.device_id_strategy,
        "pass_device_specs": settings.pass_device_specs,
        "annotation_prefix": settings.cdi_annotation_prefix or None,
        "sharing_policy": settings.shared_devices_allocation_policy,
        "gdrcopy": settings.gdrcopy_enabled,
        "gds": settings.gds_enabled,
        "mofed": settings.mofed_enabled,
    }
    return replace(config, **{name: each for name, each in values.items() if each is not None})
