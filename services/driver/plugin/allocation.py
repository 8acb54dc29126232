"""The answer to the kubelet for a container that gets devices. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from libs.host.cdi.extras import GDRCOPY, GDS, IMEX, MOFED
from libs.host.cdi.published import ALL, GPU_KIND
from libs.host.deviceplugin.port import Allocation, AllocationRefused, DeviceFile, Mount
from libs.policy.plugin_config.config import IdStrategy, ListStrategy, PluginConfig
from services.driver.plugin.replicas import uuids_of
from services.driver.plugin.resources import Device

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_MOUNTED: Final = "/var/run/nvidia-container-devices"
_ANNOTATION: Final = "nvidia-device-plugin_"
IMEX_CHANNEL: Final = "/dev/nvidia-caps-imex-channels/channel0"
IMEX_DEVICE: Final = f"{IMEX}=0"


def allocate(
    ids: Sequence[str],
    *,
    devices: Mapping[str, Device],
    config: PluginConfig,
    extras: Collection[str],
    shared: bool,
    new_id: Callable[[], str],
    files: Callable[[Device], Iterable[str]],
) -> Allocation:
    """Return what a container gets for the devices with these names.

    `devices` are those that can be used, by UUID; `extras` are the CDI devices beside GPUs;
    `shared`: the resource is; `files` returns the device files of a device with those that all
    share. Raise `AllocationRefused`.
    """
    if shared and config.time_slicing.one_per_container and len(ids) > 1:
        raise AllocationRefused(f"maximum request size for shared resources is 1; found {len(ids)}")
    uuids = uuids_of(ids)
    if unknown := next((uuid for uuid in uuids if uuid not in devices), None):
        raise AllocationRefused(f"the device {unknown[:80]} cannot be used now")
    chosen = [devices[uuid] for uuid in uuids]
    by_cdi = _by_cdi((*_gpu_names(uuids), *_extra_names(config, extras)), config, new_id)
    others = config.list_strategies - {ListStrategy.CDI_CRI, ListStrategy.CDI_ANNOTATIONS}
    if not others:
        return by_cdi
    names = uuids if config.id_strategy is IdStrategy.UUID else [each.index for each in chosen]
    return Allocation(
        cdi_devices=by_cdi.cdi_devices,
        annotations=by_cdi.annotations,
        env=_env(names, others, config),
        mounts=_mounts(names, others, config),
        files=_files(chosen, config, files),
    )


def _gpu_names(uuids: Iterable[str]) -> Iterator[str]:
    return (f"{GPU_KIND}={uuid}" for uuid in uuids)


def _extra_names(config: PluginConfig, extras: Collection[str]) -> Iterator[str]:
    """Yield the CDI devices that are switched on, as far as the machine has them."""
    switches = {
        IMEX_DEVICE: config.imex,
        f"{GDRCOPY}={ALL}": config.gdrcopy,
        f"{GDS}={ALL}": config.gds,
        f"{MOFED}={ALL}": config.mofed,
    }
    return (name for name, is_on in switches.items() if is_on and name in extras)


def _by_cdi(names: tuple[str, ...], config: PluginConfig, new_id: Callable[[], str]) -> Allocation:
    """Return the devices by their names in CDI specs, in the ways that the configuration lists."""
    annotations: dict[str, str] = {}
    if ListStrategy.CDI_ANNOTATIONS in config.list_strategies:
        annotations[f"{config.annotation_prefix}{_ANNOTATION}{new_id()}"] = ",".join(names)
    by_field = ListStrategy.CDI_CRI in config.list_strategies
    return Allocation(cdi_devices=names if by_field else (), annotations=annotations)


def _env(
    names: Sequence[str], others: frozenset[ListStrategy], config: PluginConfig
) -> dict[str, str]:
    """Return the variables by which NVIDIA's older runtime gives devices to a container."""
    env: dict[str, str] = {}
    if ListStrategy.ENVVAR in others:
        env[VISIBLE] = ",".join(names)
        if config.imex:
            env["NVIDIA_IMEX_CHANNELS"] = "0"
    if ListStrategy.VOLUME_MOUNTS in others:
        env[VISIBLE] = _MOUNTED
    switches = {
        "NVIDIA_GDRCOPY": config.gdrcopy,
        "NVIDIA_GDS": config.gds,
        "NVIDIA_MOFED": config.mofed,
    }
    return env | {name: "enabled" for name, is_on in switches.items() if is_on}


def _mounts(
    names: Sequence[str], others: frozenset[ListStrategy], config: PluginConfig
) -> tuple[Mount, ...]:
    """Return mounts whose paths name the devices."""
    if ListStrategy.VOLUME_MOUNTS not in others:
        return ()
    listed = [*names, *(("imex/0",) if config.imex else ())]
    return tuple(Mount(source="/dev/null", target=f"{_MOUNTED}/{name}") for name in listed)


def _files(
    chosen: Sequence[Device], config: PluginConfig, files: Callable[[Device], Iterable[str]]
) -> tuple[DeviceFile, ...]:
    if not config.pass_device_specs:
        return ()
    paths = dict.fromkeys(path for device in chosen for path in files(device))
    if config.imex:
        paths[IMEX_CHANNEL] = None
    return tuple(DeviceFile(path=path) for path in paths)
