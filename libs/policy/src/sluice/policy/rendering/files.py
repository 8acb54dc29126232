"""Files that people give a driver container by ConfigMap: repositories, certificates, modules."""

from collections.abc import Collection, Mapping
from typing import Final

from sluice.policy.findings import Finding, shown
from sluice.policy.rendering.parts import Part
from sluice.policy.variants import Variant
from sluice.policy.wanted import WantedDriver

_DEBIANS: Final = frozenset(("debian", "ubuntu"))
_RED_HATS: Final = frozenset(("centos", "fedora", "ol", "rhel", "rocky"))
_SUSES: Final = frozenset(("sl-micro", "sles"))

ConfigMaps = Mapping[str, Collection[str]]
"""The keys of each ConfigMap of the operands' namespace, by its name."""


def files(
    driver: WantedDriver, variant: Variant, config_maps: ConfigMaps
) -> tuple[list[Part], list[Part]] | Finding:
    """Volumes, and a mount for each file: a whole directory would hide what the image has there."""
    volumes: list[Part] = []
    mounts: list[Part] = []
    for field, name, folder in (
        ("repoConfig", driver.repo_config, _repositories(variant)),
        ("certConfig", driver.cert_config, _certificates(variant)),
        ("kernelModuleConfig", driver.kernel_module_config, "/drivers"),
    ):
        if not name:
            continue
        if not folder:
            return Finding(
                field=field,
                value=shown(name),
                problem=f"has no place in the driver image of {variant.system}",
                remedy="remove it for the pool with such nodes",
            )
        if not config_maps.get(name):
            there = "is empty" if name in config_maps else "is not there"
            return Finding(
                field=field,
                value=shown(name),
                problem=f"names a ConfigMap that {there}",
                remedy="make it in the namespace of the operands, a key for each file",
            )
        volume = _VOLUMES[field]
        volumes.append({"name": volume, "configMap": {"name": name}})
        mounts += [
            {"name": volume, "mountPath": f"{folder}/{key}", "subPath": key, "readOnly": True}
            for key in sorted(config_maps[name])
        ]
    return volumes, mounts


_VOLUMES: Final = {
    "repoConfig": "repo-config",
    "certConfig": "cert-config",
    "kernelModuleConfig": "kernel-module-config",
}


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
