"""What makes one wanted driver render differently on two nodes, read from the nodes' labels.

Knows what a node's labels say of its system; which driver a node should have is said by pools.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from libs.policy.owners import NodeLabels
from libs.policy.pools import Pools
from libs.policy.wanted import InstallMethod, WantedDriver

OS_LABEL: Final = "feature.node.kubernetes.io/system-os_release.ID"
OS_VERSION_LABEL: Final = "feature.node.kubernetes.io/system-os_release.VERSION_ID"
OS_MAJOR_LABEL: Final = "feature.node.kubernetes.io/system-os_release.VERSION_ID.major"
KERNEL_LABEL: Final = "feature.node.kubernetes.io/kernel-version.full"
ARCHITECTURE_LABEL: Final = "kubernetes.io/arch"

_BY_MAJOR: Final = frozenset(("ol", "rhel", "rocky"))
"""Systems whose drivers are built once for each major version."""


class Variant(msgspec.Struct, frozen=True, kw_only=True, order=True, omit_defaults=True):
    """Nodes of one variant get the same pod, or the same artefact."""

    system: str = ""
    """Its ID, as /etc/os-release says it."""
    version: str = ""
    """Of the system; the major one alone where drivers do not tell the others apart."""
    kernel: str = ""
    """Of precompiled drivers alone."""
    architecture: str = ""
    """Of drivers on the host itself alone: an image brings every architecture with it."""

    @property
    def os_tag(self) -> str:
        """The system as the tags of driver images end."""
        return f"{self.system}{self.version}"


class NodeVariants(msgspec.Struct, frozen=True, kw_only=True):
    """Of which variant every node is."""

    nodes: Mapping[str, Variant]
    """By name, of the nodes whose system is known."""
    pools: Mapping[str, tuple[Variant, ...]]
    """Those of each pool, by its key, in order."""
    unknown: Mapping[str, str]
    """By name of a node: the label without which its variant cannot be told."""


def variant_of(driver: WantedDriver, labels: Mapping[str, str]) -> Variant | str:
    """The variant of a node with these labels; a text is the label that it lacks."""
    if driver.method is InstallMethod.PRE_INSTALLED:
        return Variant()
    system = labels.get(OS_LABEL, "")
    version_label = OS_MAJOR_LABEL if system in _BY_MAJOR else OS_VERSION_LABEL
    version = labels.get(version_label, "")
    if not system or not version:
        return version_label if system else OS_LABEL
    if driver.method is InstallMethod.HOST:
        architecture = labels.get(ARCHITECTURE_LABEL, "")
        if not architecture:
            return ARCHITECTURE_LABEL
        return Variant(system=system, version=version, architecture=architecture)
    if not driver.use_precompiled:
        return Variant(system=system, version=version)
    kernel = labels.get(KERNEL_LABEL, "")
    return Variant(system=system, version=version, kernel=kernel) if kernel else KERNEL_LABEL


def assign_variants(pools: Pools, nodes: Iterable[NodeLabels]) -> NodeVariants:
    """The variant of every node that is in a pool."""
    drivers = {pool.key: pool.driver for pool in pools.pools}
    variants: dict[str, Variant] = {}
    unknown: dict[str, str] = {}
    among: dict[str, set[Variant]] = {key: set() for key in drivers}
    for node in nodes:
        key = pools.owners.get(node.name)
        if key is None:
            continue
        found = variant_of(drivers[key], node.labels)
        if isinstance(found, str):
            unknown[node.name] = found
        else:
            variants[node.name] = found
            among[key].add(found)
    return NodeVariants(
        nodes=variants,
        pools={key: tuple(sorted(among[key])) for key in among},
        unknown=unknown,
    )


_SYSTEM: Final = (OS_LABEL, OS_VERSION_LABEL, KERNEL_LABEL, ARCHITECTURE_LABEL)
_ANY: Final = "any"
"""The variant of every node where the driver is there already."""


def variant_key(driver: WantedDriver, labels: Mapping[str, str]) -> str:
    """The word for a node that is to have this driver; empty where its system is not known."""
    if driver.method is InstallMethod.PRE_INSTALLED:
        return _ANY
    return "" if known_variant(driver, labels) is None else system_key(labels)


def known_variant(driver: WantedDriver, labels: Mapping[str, str]) -> Variant | None:
    """Of this driver, for nodes with these labels."""
    found = variant_of(driver, labels)
    return None if isinstance(found, str) else found


def system_key(labels: Mapping[str, str]) -> str:
    """All that any driver may tell nodes apart by: so it stays when another driver is wanted."""
    if not labels.get(OS_LABEL):
        return ""
    return "/".join(labels.get(key, "") for key in _SYSTEM)


def labels_of_key(word: str) -> Mapping[str, str]:
    """The way back; the major version is a part of the version."""
    if word == _ANY:
        return {}
    labels: dict[str, str] = dict(zip(_SYSTEM, word.split("/"), strict=False))
    labels[f"{OS_VERSION_LABEL}.major"] = labels.get(OS_VERSION_LABEL, "").partition(".")[0]
    return {key: value for key, value in labels.items() if value}
