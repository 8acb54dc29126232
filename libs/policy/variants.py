"""What makes one wanted driver render differently on two nodes, read from the nodes' labels.

Knows what a node's labels say of its system; which driver a node should have is said by pools.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from libs.policy.owners import NodeFacts
from libs.policy.pools import Pools
from libs.policy.wanted import Method, WantedDriver

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


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Of which variant every node is."""

    nodes: Mapping[str, Variant]
    """By name, of the nodes whose system is known."""
    pools: Mapping[str, tuple[Variant, ...]]
    """Those of each pool, by its key, in order."""
    unknown: Mapping[str, str]
    """By name of a node: the label without which its variant cannot be told."""


def variant_of(driver: WantedDriver, labels: Mapping[str, str]) -> Variant | str:
    """The variant of a node with these labels; a text is the label that it lacks."""
    if driver.method is Method.PRE_INSTALLED:
        return Variant()
    system = labels.get(OS_LABEL, "")
    version_label = OS_MAJOR_LABEL if system in _BY_MAJOR else OS_VERSION_LABEL
    version = labels.get(version_label, "")
    if not system or not version:
        return version_label if system else OS_LABEL
    if driver.method is Method.HOST:
        architecture = labels.get(ARCHITECTURE_LABEL, "")
        if not architecture:
            return ARCHITECTURE_LABEL
        return Variant(system=system, version=version, architecture=architecture)
    if not driver.use_precompiled:
        return Variant(system=system, version=version)
    kernel = labels.get(KERNEL_LABEL, "")
    return Variant(system=system, version=version, kernel=kernel) if kernel else KERNEL_LABEL


def placed(pools: Pools, nodes: Iterable[NodeFacts]) -> Placement:
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
    return Placement(
        nodes=variants,
        pools={key: tuple(sorted(among[key])) for key in among},
        unknown=unknown,
    )
