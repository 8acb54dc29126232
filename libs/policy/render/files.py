"""Files mounted into the driver from ConfigMaps: repositories, certificates, module parameters."""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from libs.policy.findings import Finding, quote_value
from libs.policy.render.pod_fields import JsonObject
from libs.policy.variants import Variant
from libs.policy.wanted import WantedDriver

_DEBIANS: Final = frozenset(("debian", "ubuntu"))
_RED_HATS: Final = frozenset(("centos", "fedora", "ol", "rhel", "rocky"))
_SUSES: Final = frozenset(("sl-micro", "sles"))

_MODULES: Final = "kernel-module-config"

ConfigMaps = Mapping[str, Collection[str]]
"""Keys of the ConfigMaps in the operands' namespace, by ConfigMap name."""


class ConfigFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Volumes and one mount per file: mounting a directory would hide the image's files there."""

    volumes: tuple[JsonObject, ...]
    mounts: tuple[JsonObject, ...]
    """Mounts of the driver container only."""
    modules: tuple[JsonObject, ...]
    """Module parameters, mounted by every container that loads one of the driver's modules."""


def config_files(
    driver: WantedDriver, variant: Variant, config_maps: ConfigMaps
) -> ConfigFiles | Finding:
    """Return the volumes and mounts, or a finding about a ConfigMap that cannot be mounted."""
    sources = {
        "repoConfig": (driver.repo_config, "repo-config", _repositories(variant)),
        "certConfig": (driver.cert_config, "cert-config", _certificates(variant)),
        "kernelModuleConfig": (driver.kernel_module_config, _MODULES, "/drivers"),
    }
    volumes: list[JsonObject] = []
    mounts: list[JsonObject] = []
    for field, (name, volume, folder) in sources.items():
        if not name:
            continue
        if refusal := _problem(name, folder, variant, config_maps):
            problem, remedy = refusal
            return Finding(field=field, value=quote_value(name), problem=problem, remedy=remedy)
        volumes.append({"name": volume, "configMap": {"name": name}})
        mounts += [
            {"name": volume, "mountPath": f"{folder}/{key}", "subPath": key, "readOnly": True}
            for key in sorted(config_maps[name])
        ]
    return ConfigFiles(
        volumes=tuple(volumes),
        mounts=tuple(part for part in mounts if part["name"] != _MODULES),
        modules=tuple(part for part in mounts if part["name"] == _MODULES),
    )


def _problem(
    name: str, folder: str, variant: Variant, config_maps: ConfigMaps
) -> tuple[str, str] | None:
    """Return why a ConfigMap cannot be mounted and the remedy, or None."""
    if not folder:
        place = f"is not supported by the driver image of {variant.system}"
        return place, "remove it from the policy of the pool with such nodes"
    if not config_maps.get(name):
        there = "is empty" if name in config_maps else "does not exist"
        remedy = "create it in the operands' namespace, with one key per file"
        return f"names a ConfigMap that {there}", remedy
    return None


def _repositories(variant: Variant) -> str:
    if variant.system in _DEBIANS:
        return "/etc/apt/sources.list.d"
    if variant.system in _RED_HATS:
        return "/etc/yum.repos.d"
    return "/etc/zypp/repos.d" if variant.system in _SUSES else ""


def _certificates(variant: Variant) -> str:
    if variant.system in _DEBIANS:
        return "/usr/local/share/ca-certificates"
    if variant.system in _RED_HATS:
        return "/etc/pki/ca-trust/extracted/pem"
    return "/etc/pki/trust/anchors" if variant.system in _SUSES else ""
