"""Read the configuration file of NVIDIA's device plugin, version v1. Pure.

A file loads or is refused as there, with these exceptions: sharing by MPS is refused, because
nothing here would share by it, and so is what `libs.policy.plain_yaml` refuses in any text of
others, such as aliases and a key that occurs twice.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from libs.policy.plain_yaml import RefusedYaml, load_yaml
from libs.policy.plugin_config.config import (
    PREFIX,
    IdStrategy,
    ListStrategy,
    MigStrategy,
    PluginConfig,
    RefusedConfig,
    SharingPolicy,
    TimeSlicing,
)
from libs.policy.plugin_config.section import Section, integer

E = TypeVar("E", bound=StrEnum)

MAX_REPLICAS: Final = 1024
"""The most replicas of a device; the kubelet lists each."""
MAX_NAME: Final = 63
_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DURATION: Final = re.compile(r"[-+]?(0|(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+")
_LONGEST_DURATION: Final = 64
"""Characters; how long a text takes to be matched grows with the square of its length."""
_UUID: Final = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DEVICE: Final = re.compile(rf"\d+|\d+:\d+|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+")
_DISCOVERY: Final = ("auto", "nvml")


class LoadedConfig(msgspec.Struct, frozen=True, kw_only=True):
    config: PluginConfig
    ignored: tuple[str, ...] = ()
    """The places of what the file sets without effect."""


def load_config(text: str, defaults: PluginConfig | None = None) -> LoadedConfig:
    """Return the configuration, or raise `RefusedConfig`."""
    file = Section(_yaml(text))
    version = file.text("version") or "v1"
    if version != "v1":
        raise RefusedConfig(f"version {version[:64]!r} is not known: write v1")
    ignored = list(_ignored_resources(file.section("resources")))
    config = _with_flags(defaults or PluginConfig(), file.section("flags"), ignored)
    imex, is_required = _imex(file.section("imex"))
    return LoadedConfig(
        config=replace(
            config,
            time_slicing=_sharing(file.section("sharing"), ignored),
            imex=imex,
            imex_required=imex and is_required,
        ),
        ignored=tuple(ignored),
    )


def chosen(kind: type[E], value: str, where: str) -> E:
    """Return the member with this value, or raise `RefusedConfig`."""
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(kind)
        raise RefusedConfig(f"{where} is {value[:64]!r}: write one of {names}") from None


def list_strategies(values: Iterable[str], where: str) -> frozenset[ListStrategy]:
    """Return the strategies with these names, or raise `RefusedConfig`."""
    found = frozenset(chosen(ListStrategy, value, where) for value in values)
    if not found:
        raise RefusedConfig(f"{where} is empty: write {ListStrategy.CDI_CRI}")
    return found


def resource_name(value: object, where: str) -> str:
    """Return the name of a resource with its prefix, or raise `RefusedConfig`."""
    if not isinstance(value, str) or not value:
        raise RefusedConfig(f"{where} is missing or no text: write the name of a resource")
    base = value.removeprefix(PREFIX)
    if len(PREFIX + base) > MAX_NAME or not _RESOURCE.fullmatch(base):
        raise RefusedConfig(
            f"{where} is {value[:80]!r}: write up to {MAX_NAME - len(PREFIX)} lower-case letters,"
            " digits, '-' and '.'"
        )
    return PREFIX + base


def _yaml(text: str) -> object:
    try:
        return load_yaml(text)
    except RefusedYaml as error:
        where = f", line {error.line}" if error.line else ""
        raise RefusedConfig(f"the file{where}: {error.problem}") from None


def _with_flags(config: PluginConfig, flags: Section, ignored: list[str]) -> PluginConfig:
    changes: dict[str, object] = {}
    if strategy := flags.text("migStrategy"):
        changes["mig_strategy"] = chosen(MigStrategy, strategy, flags.place("migStrategy"))
    for field in ("gdrcopy", "gds", "mofed"):
        if (found := flags.flag(f"{field}Enabled")) is not None:
            changes[field] = found
    unused = {
        **{name: flags.flag(name) for name in ("failOnInitError", "useNodeFeatureAPI")},
        **{name: flags.text(name) for name in ("mpsRoot", "nvidiaDriverRoot", "nvidiaDevRoot")},
    }
    ignored += [flags.place(name) for name, value in unused.items() if value not in (None, "")]
    discovery = flags.text("deviceDiscoveryStrategy")
    if discovery and discovery not in _DISCOVERY:
        where = flags.place("deviceDiscoveryStrategy")
        raise RefusedConfig(f"{where} is {discovery[:64]!r}: write auto or nvml")
    _check_gfd(flags.section("gfd"))
    return replace(config, **changes, **_plugin_flags(flags.section("plugin"), ignored))


def _plugin_flags(flags: Section, ignored: list[str]) -> dict[str, object]:
    changes: dict[str, object] = {}
    for name, field, kind in (
        ("deviceIDStrategy", "id_strategy", IdStrategy),
        ("sharedDevicesAllocationPolicy", "sharing_policy", SharingPolicy),
    ):
        if value := flags.text(name):
            changes[field] = chosen(kind, value, flags.place(name))
    if (listed := flags.get("deviceListStrategy")) is not None:
        where = flags.place("deviceListStrategy")
        names = [listed] if isinstance(listed, str) else flags.items("deviceListStrategy")
        if not all(isinstance(name, str) for name in names):
            raise RefusedConfig(f"{where} has an entry that is no text: write names")
        changes["list_strategies"] = list_strategies(cast("list[str]", names), where)
    if (passes := flags.flag("passDeviceSpecs")) is not None:
        changes["pass_device_specs"] = passes
    if prefix := flags.text("cdiAnnotationPrefix"):
        changes["annotation_prefix"] = prefix
    paths = ("nvidiaCTKPath", "containerDriverRoot")
    ignored += [flags.place(name) for name in paths if flags.text(name)]
    return changes


def _check_gfd(flags: Section) -> None:
    """Check what is for another program, because a mistake there refuses the whole file."""
    for name in ("oneshot", "noTimestamp"):
        flags.flag(name)
    for name in ("outputFile", "machineTypeFile"):
        flags.text(name)
    interval = flags.get("sleepInterval")
    is_number = isinstance(interval, int | float) and not isinstance(interval, bool)
    is_text = isinstance(interval, str) and _is_duration(interval)
    if interval is not None and not is_number and not is_text:
        where = flags.place("sleepInterval")
        raise RefusedConfig(f"{where} is no duration: write such as 60s")


def _is_duration(text: str) -> bool:
    return len(text) <= _LONGEST_DURATION and _DURATION.fullmatch(text) is not None


def _ignored_resources(resources: Section) -> Iterable[str]:
    for kind in ("gpus", "mig"):
        for resource in resources.sections(kind):
            resource.text("pattern")
            if resource.has("name"):
                resource_name(resource.get("name"), resource.place("name"))
            yield resource.where


def _sharing(sharing: Section, ignored: list[str]) -> TimeSlicing:
    slicing = TimeSlicing()
    if sharing.has("timeSlicing"):
        slicing = _replicated(sharing.section("timeSlicing"), ignored)
    if sharing.get("mps") is not None:
        _replicated(sharing.section("mps"), ignored)
        raise RefusedConfig(
            "sharing.mps is set, and Sluice does not support MPS: use sharing.timeSlicing, or run"
            " another device plugin"
        )
    return slicing


def _replicated(shared: Section, ignored: list[str]) -> TimeSlicing:
    resources = list(shared.sections("resources"))
    if not resources:
        where = shared.place("resources")
        raise RefusedConfig(f"{where} is missing or empty: list the shared resources")
    replicas = dict(_replicas_of(resource, ignored) for resource in resources)
    return TimeSlicing(
        replicas=replicas,
        rename=bool(shared.flag("renameByDefault")),
        one_per_container=bool(shared.flag("failRequestsGreaterThanOne")),
    )


def _replicas_of(resource: Section, ignored: list[str]) -> tuple[str, int]:
    name = resource_name(resource.get("name"), resource.place("name"))
    if resource.has("devices"):
        devices = resource.get("devices")
        if not _are_devices(devices):
            where = resource.place("devices")
            raise RefusedConfig(f"{where} is neither all, nor a count, nor a list of devices")
        if devices != "all":
            ignored.append(resource.place("devices"))
    count = integer(resource.get("replicas"))
    if count is None or not 2 <= count <= MAX_REPLICAS:
        where = resource.place("replicas")
        raise RefusedConfig(f"{where} is no number from 2 to {MAX_REPLICAS}")
    if resource.has("rename"):
        resource_name(resource.get("rename"), resource.place("rename"))
        ignored.append(resource.place("rename"))
    return name, count


def _are_devices(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_device, cast("list[object]", value)))
    count = integer(value)
    return value == "all" or (count is not None and count > 0)


def _is_device(value: object) -> bool:
    if isinstance(value, str):
        return _DEVICE.fullmatch(value) is not None
    index = integer(value)
    return index is not None and index >= 0


def _imex(imex: Section) -> tuple[bool, bool]:
    """Return whether containers get the channel 0, and whether they need it."""
    is_required = imex.flag("required") is True
    channels = list(map(integer, imex.items("channelIDs")))
    if channels not in ([], [0]):
        raise RefusedConfig("imex.channelIDs has other channels than 0: write [0] or []")
    return bool(channels), is_required
