"""Files that people give a driver container by ConfigMap: repositories, certificates, modules."""

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
"""The keys of each ConfigMap of the operands' namespace, by its name."""


class ConfigFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Volumes, and a mount for each file: a whole directory would hide what the image has there."""

    volumes: tuple[JsonObject, ...]
    mounts: tuple[JsonObject, ...]
    """What the driver's container alone reads."""
    modules: tuple[JsonObject, ...]
    """Parameters, for whoever loads a kernel module of the driver's."""


def config_files(
    driver: WantedDriver, variant: Variant, config_maps: ConfigMaps
) -> ConfigFiles | Finding:
    """All of them; else what one is missing."""
    wanted = {
        "repoConfig": (driver.repo_config, "repo-config", _repositories(variant)),
        "certConfig": (driver.cert_config, "cert-config", _certificates(variant)),
        "kernelModuleConfig": (driver.kernel_module_config, _MODULES, "/drivers"),
    }
    volumes: list[JsonObject] = []
    mounts: list[JsonObject] = []
    for field, (name, volume, folder) in wanted.items():
        if not name:
            continue
        problem = _problem(name, folder, variant, config_maps)
        if problem:
            what, remedy = problem
            return Finding(field=field, value=quote_value(name), problem=what, remedy=remedy)
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
    """Why a ConfigMap cannot be mounted, and what to do."""
    if not folder:
        place = f"has no place in the driver image of {variant.system}"
        return place, "remove it for the pool with such nodes"
    if not config_maps.get(name):
        there = "is empty" if name in config_maps else "is not there"
        remedy = "make it in the namespace of the operands, a key for each file"
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
